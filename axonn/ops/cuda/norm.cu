#include "axonn/ops/cuda/launch.cuh"
#include "axonn/ops/rowwise/layer_norm.h"
#include "axonn/ops/rowwise/rms_norm.h"

namespace axonn::ops {

template void RowMoments::run(cuda::Launch) const;
template void AddMoments::run(cuda::Launch) const;
template void CombineMoments::run(cuda::Launch) const;
template void LayerNorm::run(cuda::Launch) const;
template void LayerNormSums::run(cuda::Launch) const;
template void LayerNormBackward::run(cuda::Launch) const;
template void LayerNormWeightBackward::run(cuda::Launch) const;
template void MomentsAboutZero::run(cuda::Launch) const;
template void RmsNormSums::run(cuda::Launch) const;
template void HeadNorm::run(cuda::Launch) const;
template void HeadNormBackward::run(cuda::Launch) const;

}  // namespace axonn::ops
