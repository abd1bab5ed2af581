#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "axonn/compute/ops/backend.h"
#include "axonn/compute/ops/gpu/attention/attention_graph.h"

// The ways in which a GPU can compute attention, each with the memory that it takes besides the
// operands, or the reason why it cannot. Plain arithmetic, so that plans and dry runs on machines
// without a GPU count the same bytes.

namespace axonn {

/// A way to compute attention or its gradients, the best first.
enum class AttentionWay {
  /// cuDNN's fused kernels. If deterministic, the gradients of the scores go through memory.
  cudnn,
  /// cuDNN's fused gradients that add to those of the queries in a fixed order (cuDNN 9.25, compute
  /// capability 9.x).
  cudnn_ordered,
  own,   ///< this project's kernels that keep scores out of memory (flash_attention.cuh)
  parts  ///< products, and kernels between them (attention_parts.h)
};

/// "cudnn", "cudnn ordered", "own", "parts".
std::string_view name_of(AttentionWay way);

/// What the ways depend on besides the operands.
struct AttentionRules {
  CudaOptions options = {};
  int cudnn = 0;       ///< version: 91900; 0: there is none
  int capability = 0;  ///< compute capability of an NVIDIA GPU: 90; 0: another GPU
};

/// A way, and what it takes for certain operands.
struct AttentionOffer {
  AttentionWay way = AttentionWay::parts;
  std::int64_t bytes = 0;    ///< of memory besides the operands, if it can
  std::string why_not = {};  ///< why it cannot; empty: it can
  /// For cuDNN: for each run of queries, the part of the operands that one run of a graph computes.
  std::vector<AttentionGraphShape> pieces = {};
};

/// All ways, in their order. At least the last one has no why_not, unless options demand cuDNN.
std::vector<AttentionOffer> attention_offers(const Attention& args, const AttentionRules& rules);
std::vector<AttentionOffer> attention_offers(const AttentionBackward& args,
                                             const AttentionRules& rules);

/// The operands in words: "2 x 4096, 32 heads over 8 of 128, gradients".
std::string describe(const Attention& args, bool backward);

/// The first offer that can; throws UsageError, which calls the operands what(), if options demand
/// cuDNN, which cannot.
AttentionOffer best_offer(
    std::vector<AttentionOffer> offers,
    const std::function<std::string()>& what = [] { return "it"; });

}  // namespace axonn
