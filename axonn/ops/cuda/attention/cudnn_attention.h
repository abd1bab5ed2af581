#pragma once

#include <memory>
#include <string>
#include <vector>

#include "axonn/ops/backend.h"
#include "axonn/ops/cuda/scratch.cuh"

namespace axonn::cuda {

/// Attention by cuDNN's fused kernels, made from the graphs of
/// ops/cuda/attention/attention_graph.h.
///
/// The first call with a shape builds a plan, in about half a second, and keeps it. After
/// kMostShapes shapes, new ones are left to other kernels. With CudaOptions::deterministic, d_q is
/// a product with the gradients of the scores, which are written to memory; the batch or its heads
/// are cut into pieces so that they take at most CudaOptions::score_bytes. Otherwise blocks add to
/// d_q in f32, in any order.
class CudnnAttention {
 public:
  static constexpr int kMostShapes = 64;

  /// Runs on the device's compute stream with memory of `scratch`. Both must outlive it.
  CudnnAttention(Device& device, Scratch& scratch, const CudaOptions& options);
  ~CudnnAttention();
  CudnnAttention(const CudnnAttention&) = delete;
  CudnnAttention& operator=(const CudnnAttention&) = delete;

  /// Returns false if cuDNN is not to be used or does not support the operands; other kernels must
  /// then compute it. Throws UsageError if options demand cuDNN and it does not support them.
  bool run(const Attention& args);
  bool run(const AttentionBackward& args);

  /// Cases left to other kernels although cuDNN is to be used, with the reason; each once.
  std::vector<std::string> take_remarks();

  /// "cuDNN 9.19.0", or "" in a build without it.
  static std::string library();

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace axonn::cuda
