#pragma once

#include <array>
#include <cstdint>
#include <string_view>

namespace axonn {

/// Which collectives overlap with later work. If one does not, its caller waits for it at once. No
/// choice changes a bit of any result.
struct Overlap {
  bool input_gradients = true;   ///< OAR: the all-reduce of d_inp with the product of d_weight;
                                 ///< and the loss's collectives with the loss of later rows
  bool weight_gradients = true;  ///< ORS: a block's reduce-scatter with the next block's backward
  bool weights = true;           ///< OAG: the next block's all-gather with this block
  bool data = true;     ///< a block's sum over data with the backward of earlier blocks, and the
                        ///< gather of its new weights with earlier blocks of the next forward
  bool context = true;  ///< keys and values of some heads with the attention of others

  static constexpr Overlap none() { return {false, false, false, false, false}; }
  bool operator==(const Overlap&) const = default;
};

/// How long a block's weights stay gathered over z after it has read them. No choice changes a bit
/// of any result.
enum class KeepWeights : std::uint8_t {
  none,         ///< gathered for forward, and again for backward
  micro_batch,  ///< from forward to backward
  step,         ///< over all micro-batches of a step; frozen weights for good
};
inline constexpr std::array<std::string_view, 3> kKeepWeights = {"none", "micro_batch", "step"};
inline std::string_view name_of(KeepWeights keep) { return kKeepWeights[static_cast<int>(keep)]; }

}  // namespace axonn
