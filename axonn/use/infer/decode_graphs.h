#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <tuple>

#include "axonn/network/nn/attention/attention.h"
#include "axonn/network/nn/tokens.h"
#include "axonn/run/load/loaded_model.h"

namespace axonn {

/// Passes of one new token of each sequence, captured as device graphs, one for each number of
/// rows. A launch takes the host the time of one call, where a pass takes hundreds: on a fast GPU
/// the host is slower than a small pass.
class DecodeGraphs {
 public:
  /// Whether passes of this model can be captured: on a device that captures, by one rank, without
  /// anything that the host reads or decides in between, as of experts.
  static bool possible(LoadedModel& model);

  /// For passes of at most `most_rows` rows.
  explicit DecodeGraphs(std::int64_t most_rows) : most_rows_(most_rows) {}

  /// Computes the logits of a pass that has begun in the cache, whose first `wanted` rows need
  /// them, by compute(tokens), which returns them (wanted, V) f32. The first passes of a size are
  /// computed as they are, later ones by a graph. The result is valid until the next call.
  Tensor run(const Context& ctx, KeyValueCache& cache, const Tokens& tokens, std::int64_t wanted,
             const std::function<Tensor(const Tokens&)>& compute);

  /// To be called before anything moves that passes read, as weights.
  void forget() { sizes_.clear(); }

 private:
  struct Size {
    int passes = 0;  ///< so far
    std::unique_ptr<Graph> graph = {};
    Arena::Layout layout = {};
  };

  /// Copies a vector (1, R) of a pass to memory that stays.
  Tensor copy_to(const Context& ctx, Tensor& all, const Tensor& from) const;

  std::int64_t most_rows_;
  /// By rows, rows with logits, and whether rows have rotary positions of their own.
  std::map<std::tuple<std::int64_t, std::int64_t, bool>, Size> sizes_;
  // What graphs read and write, at the same addresses in all passes: of most_rows_ rows.
  Tensor ids_, position_, start_, rotary_, slots_, kept_slots_, logits_;
};

}  // namespace axonn
