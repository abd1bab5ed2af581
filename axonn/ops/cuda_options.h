#pragma once

namespace axonn {

/// What computes attention. automatic: cuDNN where it supports the operands, else this project's
/// kernels, which take_remarks() reports. cudnn: cuDNN alone; UsageError where it does not support
/// the operands. own: this project's kernels alone.
enum class CudaAttention { automatic, cudnn, own };

struct CudaOptions {
  CudaAttention attention = CudaAttention::automatic;
  bool deterministic = true;  ///< the same operands give the same bits every time
};

}  // namespace axonn
