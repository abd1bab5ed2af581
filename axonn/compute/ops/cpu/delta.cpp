// Apart from rowwise.cpp, so that the code of its operations, and their bits, do not depend on it.
#include "axonn/compute/ops/rowwise/delta.h"

#include "axonn/compute/ops/cpu/launch.h"

namespace axonn::ops {

template void Transpose::run(cpu::Launch, const Checker&) const;
template void CausalConvolution::run(cpu::Launch, const Checker&) const;
template void CausalConvolutionWeights::run(cpu::Launch, const Checker&) const;
template void DeltaGates::run(cpu::Launch, const Checker&) const;
template void DeltaGatesBackward::run(cpu::Launch, const Checker&) const;
template void DeltaRule::run(cpu::Launch, const Checker&) const;
template void DeltaRuleBackward::run(cpu::Launch, const Checker&) const;

}  // namespace axonn::ops
