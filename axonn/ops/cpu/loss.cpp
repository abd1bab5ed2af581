#include "axonn/ops/cpu/launch.h"
#include "axonn/ops/rowwise/cross_entropy.h"

template void axonn::ops::SoftmaxStats::run(axonn::cpu::Launch) const;
template void axonn::ops::CombineSoftmax::run(axonn::cpu::Launch) const;
template void axonn::ops::GreedyTargets::run(axonn::cpu::Launch) const;
template void axonn::ops::CrossEntropyBackward::run(axonn::cpu::Launch) const;
