// Stands in for cudnn_attention.cpp in a build with CUDA or HIP and without cuDNN.
#include "axonn/compute/ops/gpu/attention/cudnn_attention.h"

namespace axonn::cuda {

struct CudnnAttention::State {};

CudnnAttention::CudnnAttention(Backend&) {}
CudnnAttention::~CudnnAttention() = default;

std::string CudnnAttention::run(const AttentionBackward&, const AttentionOffer&, std::int64_t) {
  return "this axonn was built without cuDNN";
}
int CudnnAttention::version() { return 0; }
std::string CudnnAttention::library() { return {}; }

}  // namespace axonn::cuda
