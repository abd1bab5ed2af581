#pragma once

namespace axonn {

/// What computes attention. automatic: cuDNN what it takes, this project's kernels the rest, of
/// which take_remarks() tells. cudnn: cuDNN alone; what it does not take is a UsageError.
enum class CudaAttention { automatic, cudnn, own };

struct CudaOptions {
  CudaAttention attention = CudaAttention::automatic;
  bool deterministic = true;  ///< the same operands give the same bits every time
};

}  // namespace axonn
