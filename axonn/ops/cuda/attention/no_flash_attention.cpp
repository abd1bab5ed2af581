// Stands in for flash_attention.cu, which uses NVIDIA's instructions, in a build for AMD GPUs.
// There attention.cu computes attention, by products and a kernel between them.
#include "axonn/base/check.h"
#include "axonn/ops/cuda/attention/flash_attention.cuh"

namespace axonn::cuda {

bool flash_fits(const Attention&) { return false; }
bool flash_fits(const AttentionBackward&) { return false; }

void flash_attention(const Launch&, const Attention&) {
  fail(Where::here(), "attention: this build has no flash-attention kernels");
}
void flash_attention_backward(const Launch& launch, const AttentionBackward& args) {
  flash_attention(launch, args.forward);
}

}  // namespace axonn::cuda
