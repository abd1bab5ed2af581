#pragma once

#include <cstdint>

#include "axonn/train/config.h"

namespace axonn {

/// From this number of blocks on, every further block makes the same difference. The first and the
/// last block have other neighbours; of three, one has blocks on both sides.
inline constexpr std::int64_t kLeastBlocks = 3;

inline Config with_blocks(Config config, std::int64_t blocks) {
  config.model.layers = blocks;
  return config;
}

/// Computes f(config) for a model of any depth by extrapolation from three and four blocks.
/// extend(a, b, weight) is a + weight · (b - a) for results of f.
template <typename F, typename Extend>
auto over_depth(const Config& config, const F& f, const Extend& extend) {
  const std::int64_t blocks = config.model.layers;
  if (blocks <= kLeastBlocks + 1) return f(config);
  return extend(f(with_blocks(config, kLeastBlocks)), f(with_blocks(config, kLeastBlocks + 1)),
                static_cast<double>(blocks - kLeastBlocks));
}

}  // namespace axonn
