#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace axonn {

/// Mixes several sources by weight. The source of draw n is a function of n alone.
///
/// Draw n takes the source that is furthest behind its share so far (the first of several), as
/// Megatron-LM's blended data sets do. The order of the first kPeriod draws is stored and repeats,
/// so memory does not grow with the draws, and counting a source's draws before draw n takes
/// constant time. Shares are accurate to 1 / kPeriod.
class Blend {
 public:
  static constexpr std::int64_t kPeriod = 1 << 16;

  /// Weights are positive and need not sum to 1. Throws UsageError if a weight is not positive and
  /// finite, or if its share is too small to be drawn in kPeriod draws.
  explicit Blend(std::span<const double> weights);

  struct Draw {
    std::int32_t source;
    std::int64_t earlier;  ///< draws of this source before this one
  };
  Draw draw(std::int64_t n) const;

 private:
  std::vector<std::int32_t> source_, earlier_;  // (period): source of draw n; its earlier draws
  std::vector<std::int64_t> in_period_;         // (sources)
};

/// One entry of data.tokens.
struct WeightedPath {
  double weight;
  std::string path;
};

/// The entries of data.tokens: with weights, or (weighted = false) paths of weight 1 each.
struct BlendPaths {
  bool weighted;
  std::vector<WeightedPath> paths;
};
/// Parses "w1 path1 w2 path2", in one string or several, or a list of paths. Throws UsageError if a
/// weight or a path is missing.
BlendPaths parse_blend(const std::vector<std::string>& entries);

}  // namespace axonn
