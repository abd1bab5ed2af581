// Stands in for cudnn_attention.cpp in a build with CUDA or HIP and without cuDNN.
#include "axonn/base/check.h"
#include "axonn/ops/cuda/attention/cudnn_attention.h"

namespace axonn::cuda {

struct CudnnAttention::State {};

CudnnAttention::CudnnAttention(Device&, Scratch&, const CudaOptions& options) {
  if (options.attention == CudaAttention::cudnn)
    refuse("attention: this axonn was built without cuDNN; configure with -DAXONN_CUDNN=ON");
}
CudnnAttention::~CudnnAttention() = default;

bool CudnnAttention::run(const Attention&) { return false; }
bool CudnnAttention::run(const AttentionBackward&) { return false; }
std::vector<std::string> CudnnAttention::take_remarks() { return {}; }
std::string CudnnAttention::library() { return {}; }

}  // namespace axonn::cuda
