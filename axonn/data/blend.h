#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace axonn {

/// Mixes several sources by weight: which of them draw n comes from is a function of n alone.
///
/// Draw n takes the source that is furthest behind its share of the draws before it, the first of
/// equals, as Megatron-LM's blended data sets do. That order is kept for kPeriod draws and then
/// repeated, so it needs no memory that grows with the draws, and how often a source was drawn
/// before draw n is known at once. Shares are kept to 1 / kPeriod.
class Blend {
 public:
  static constexpr std::int64_t kPeriod = 1 << 16;

  /// Weights are positive and need not sum to 1. Errors: a weight is not positive and finite, or
  /// its share of all is so small that kPeriod draws do not reach it.
  explicit Blend(std::span<const double> weights);

  struct Draw {
    std::int32_t source;
    std::int64_t earlier;  ///< draws of this source before this one
  };
  Draw draw(std::int64_t n) const;

  /// The share that a source gets, to the draw.
  double share(std::int32_t source) const;

 private:
  std::vector<std::int32_t> source_, earlier_;  // (period): draw n, and draws of its source before
  std::vector<std::int64_t> in_period_;         // (sources)
};

/// One entry of data.tokens.
struct WeightedPath {
  double weight;
  std::string path;
};

/// "w1 path1 w2 path2", in one string or several, with weighted = true; or paths, weighted =
/// false, each of weight 1. Errors: UsageError if a weight or a path is missing.
struct BlendPaths {
  bool weighted;
  std::vector<WeightedPath> paths;
};
BlendPaths parse_blend(const std::vector<std::string>& entries);

}  // namespace axonn
