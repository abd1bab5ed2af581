#pragma once

#include <memory>
#include <string>

#include "axonn/compute/ops/backend.h"
#include "axonn/compute/ops/gpu/attention/attention_ways.h"

namespace axonn::cuda {

/// Attention by cuDNN's fused kernels, made from the graphs of
/// ops/gpu/attention/attention_graph.h.
///
/// The first call with a shape builds a plan, in about half a second, and keeps it. After
/// kMostShapes shapes, new ones are left to other kernels.
class CudnnAttention {
 public:
  static constexpr int kMostShapes = 64;

  /// Runs on the backend's compute stream. Sums of gradients are the backend's operations; it must
  /// outlive this.
  explicit CudnnAttention(Backend& backend);
  ~CudnnAttention();
  CudnnAttention(const CudnnAttention&) = delete;
  CudnnAttention& operator=(const CudnnAttention&) = delete;

  /// Computes attention, or its gradients if the offer's pieces are of gradients. Takes memory of
  /// offer.bytes, or more if cuDNN's plan needs more. Returns why not, with nothing done, if cuDNN
  /// refuses the graph, or needs more than `most` bytes; empty if it does not.
  std::string run(const AttentionBackward& args, const AttentionOffer& offer, std::int64_t most);

  /// cuDNN's version, 91900; 0 in a build without it.
  static int version();
  /// "cuDNN 9.19.0", or "" in a build without it.
  static std::string library();

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace axonn::cuda
