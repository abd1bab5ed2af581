#include "axonn/compute/ops/rowwise/norm.h"

#include "axonn/compute/ops/cpu/launch.h"

namespace axonn::ops {

template void RowMoments::run(cpu::Launch, const Checker&) const;
template void AddMoments::run(cpu::Launch, const Checker&) const;
template void CombineMoments::run(cpu::Launch, const Checker&) const;
template void LayerNorm::run(cpu::Launch, const Checker&) const;
template void NormForward::run(cpu::Launch, const Checker&) const;
template void LayerNormSums::run(cpu::Launch, const Checker&) const;
template void LayerNormBackward::run(cpu::Launch, const Checker&) const;
template void NormBackward::run(cpu::Launch, const Checker&) const;
template void LayerNormWeightBackward::run(cpu::Launch, const Checker&) const;
template void MomentsAboutZero::run(cpu::Launch, const Checker&) const;
template void RmsNormSums::run(cpu::Launch, const Checker&) const;
template void HeadNorm::run(cpu::Launch, const Checker&) const;
template void HeadNormBackward::run(cpu::Launch, const Checker&) const;

}  // namespace axonn::ops
