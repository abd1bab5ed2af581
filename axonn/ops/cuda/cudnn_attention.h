#pragma once

#include <memory>
#include <string>
#include <vector>

#include "axonn/ops/backend.h"
#include "axonn/ops/cuda/scratch.cuh"
#include "axonn/ops/cuda_options.h"

namespace axonn::cuda {

/// Attention by cuDNN's fused kernels, made of the graphs of ops/attention_graph.h.
///
/// A plan is built, in about half a second, when a shape first comes, and kept; of more than
/// kMostShapes shapes the later ones are not computed here. Deterministic: gradients of queries are
/// one product of the gradients of scores, which go through memory, in pieces of the batch or of
/// its heads so that they take at most kPieceBytes; else every block adds to them as it comes, in
/// f32.
class CudnnAttention {
 public:
  static constexpr std::int64_t kPieceBytes = std::int64_t{256} << 20;
  static constexpr int kMostShapes = 64;

  /// On the device's compute stream, with memory of `scratch`, both of which outlive it.
  CudnnAttention(Device& device, Scratch& scratch, const CudaOptions& options);
  ~CudnnAttention();
  CudnnAttention(const CudnnAttention&) = delete;
  CudnnAttention& operator=(const CudnnAttention&) = delete;

  /// False where it is left to others: cuDNN is not to compute, or does not take it.
  /// Errors: UsageError where cuDNN alone is asked for and does not take it.
  bool run(const Attention& args);
  bool run(const AttentionBackward& args);

  /// What was left to others though cuDNN may compute it, and why; each once.
  std::vector<std::string> take_remarks();

  /// "cuDNN 9.19.0", or "" in a build without it.
  static std::string library();

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace axonn::cuda
