#include "axonn/ops/cuda/launch.cuh"
#include "axonn/ops/rowwise/cross_entropy.h"
#include "axonn/ops/rowwise/optimizer.h"
#include "axonn/ops/rowwise/reduce.h"
#include "axonn/ops/rowwise/softmax.h"

namespace axonn::ops {

template void SoftmaxStats::run(cuda::Launch) const;
template void CombineSoftmax::run(cuda::Launch) const;
template void GreedyTargets::run(cuda::Launch) const;
template void CrossEntropyBackward::run(cuda::Launch) const;
template void Softmax::run(cuda::Launch) const;
template void RowDots::run(cuda::Launch) const;
template void SoftmaxBackward::run(cuda::Launch) const;
template void Sum::run(cuda::Launch) const;
template void SquaredSum::run(cuda::Launch) const;
template void ClipFactor::run(cuda::Launch) const;
template void CountNonfinite::run(cuda::Launch) const;
template void AdamW::run(cuda::Launch) const;
template void Sgd::run(cuda::Launch) const;

}  // namespace axonn::ops
