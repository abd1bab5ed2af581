#include "axonn/measure/recompute_budget.h"

#include <algorithm>

#include "axonn/base/check.h"
#include "axonn/base/log.h"
#include "axonn/measure/dry_step.h"
#include "axonn/train/loaded_model.h"

namespace axonn {

namespace {

/// Blocks of a model; 1 if a model of another program does not say.
std::int64_t blocks_of(const Config& config) {
  return std::max<std::int64_t>(config.model.layers, 1);
}

/// The largest peak of the ranks that may differ from each other. Ranks along z and data hold
/// pieces of equal size.
std::int64_t largest_peak(const Config& config) {
  const GridShape grid = config.parallelism.grid();
  std::int64_t peak = 0;
  for (int rank = 0; rank < grid.x * grid.y; ++rank)
    peak = std::max(peak, dry_step(config, rank).memory.peak_bytes);
  return peak;
}

}  // namespace

std::int64_t most_recomputation(const Config& config) { return 2 * blocks_of(config); }

Config with_recomputation(Config config, std::int64_t level) {
  RecomputeConfig& recompute = config.activation_checkpoint;
  const std::int64_t blocks = blocks_of(config);
  recompute.mode = level < blocks       ? RecomputeMode::none
                   : level < 2 * blocks ? RecomputeMode::light
                                        : RecomputeMode::full;
  recompute.blocks = level % blocks;
  return config;
}

Config with_least_recomputation(const Config& config,
                                const std::function<bool(const Config&)>& fits) {
  std::int64_t low = 0, high = most_recomputation(config);
  while (low < high) {
    const std::int64_t middle = low + (high - low) / 2;
    if (fits(with_recomputation(config, middle)))
      high = middle;
    else
      low = middle + 1;
  }
  return with_recomputation(config, low);
}

Config within_budget(const Config& given) {
  const std::int64_t budget = given.activation_checkpoint.budget;
  if (budget == 0 || given.parallelism.automatic()) return given;
  const Config config = with_vocab(given);
  const auto fits = [&](const Config& one) { return dry_step(one, 0).memory.peak_bytes <= budget; };
  Config chosen = with_least_recomputation(config, fits);
  // Rank 0 has the largest pieces where they are uneven; the others confirm it.
  for (std::int64_t peak = largest_peak(chosen); peak > budget; peak = largest_peak(chosen)) {
    if (chosen.activation_checkpoint.mode == RecomputeMode::full) {
      // The last block's second run may take more than its light recomputation.
      const std::int64_t before =
                             largest_peak(with_recomputation(config, 2 * blocks_of(config) - 1)),
                         least = std::min(peak, before);
      refuse("[activation_checkpoint] budget = ", budget,
             ": even if blocks are recomputed, a rank's ", "step takes ", format_bytes(least),
             "; set budget to at least ", least,
             ", or use a smaller training.micro_batch, or more ranks");
    }
    const RecomputeConfig& now = chosen.activation_checkpoint;
    chosen = with_recomputation(
        chosen, (now.mode == RecomputeMode::light ? blocks_of(config) : 0) + now.blocks + 1);
  }
  Config result = given;
  result.activation_checkpoint = chosen.activation_checkpoint;
  return result;
}

}  // namespace axonn
