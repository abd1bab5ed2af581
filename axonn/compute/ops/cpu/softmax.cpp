#include "axonn/compute/ops/rowwise/softmax.h"

#include "axonn/compute/ops/cpu/launch.h"
#include "axonn/compute/ops/rowwise/divergence.h"
#include "axonn/compute/ops/rowwise/route.h"
#include "axonn/compute/ops/rowwise/token_record.h"

namespace axonn::ops {

template void SoftmaxStats::run(cpu::Launch, const Checker&) const;
template void CombineSoftmax::run(cpu::Launch, const Checker&) const;
template void GreedyTargets::run(cpu::Launch, const Checker&) const;
template void TokenRecord::run(cpu::Launch, const Checker&) const;
template void KthLargestLogit::run(cpu::Launch, const Checker&) const;
template void PolicyLogProbability::run(cpu::Launch, const Checker&) const;
template void CrossEntropyBackward::run(cpu::Launch, const Checker&) const;
template void CrossEntropy::run(cpu::Launch, const Checker&) const;
template void EntropyTerms::run(cpu::Launch, const Checker&) const;
template void DivergenceTerms::run(cpu::Launch, const Checker&) const;
template void DivergenceTail::run(cpu::Launch, const Checker&) const;
template void DivergenceBackward::run(cpu::Launch, const Checker&) const;
template void Softmax::run(cpu::Launch, const Checker&) const;
template void Route::run(cpu::Launch, const Checker&) const;
template void RouteBackward::run(cpu::Launch, const Checker&) const;
template void RouteCounts::run(cpu::Launch, const Checker&) const;
template void RowDots::run(cpu::Launch, const Checker&) const;
template void SoftmaxBackward::run(cpu::Launch, const Checker&) const;

}  // namespace axonn::ops
