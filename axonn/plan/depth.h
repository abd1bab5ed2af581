#pragma once

#include <cstdint>

#include "axonn/train/config.h"

namespace axonn {

/// From here on, a block more makes the same difference. The first and the last block have
/// neighbours of another kind, and with three there is one that has none.
inline constexpr std::int64_t kLeastBlocks = 3;

inline Config with_blocks(Config config, std::int64_t blocks) {
  config.model.layers = blocks;
  return config;
}

/// f(config) of a model of any depth, from f of three and of four blocks.
/// extend(a, b, weight) is a + weight · (b - a) of what f returns.
template <typename F, typename Extend>
auto over_depth(const Config& config, const F& f, const Extend& extend) {
  const std::int64_t blocks = config.model.layers;
  if (blocks <= kLeastBlocks + 1) return f(config);
  return extend(f(with_blocks(config, kLeastBlocks)), f(with_blocks(config, kLeastBlocks + 1)),
                static_cast<double>(blocks - kLeastBlocks));
}

}  // namespace axonn
