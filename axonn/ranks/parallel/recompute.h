#pragma once

#include <array>
#include <cstdint>
#include <initializer_list>
#include <string_view>

namespace axonn {

/// Values of a block that backward can make again instead of keeping them. The same operations make
/// them from the same values as in forward, so the bits of all results stay the same.
enum class Remade : std::uint8_t {
  norms,        ///< outputs of norms
  activations,  ///< outputs of activation functions
  heads,        ///< queries, keys and values after the norms of queries and keys
  attention,    ///< outputs of attention
  qkv,          ///< outputs of products that make queries, keys and values
  up,           ///< outputs of the first products of MLPs and experts
  residual,     ///< outputs of products whose input is cut over x, and sums of two values
  exchanged,    ///< rows that experts got from other ranks
};
inline constexpr std::array<std::string_view, 8> kRemadeNames = {
    "norms", "activations", "heads", "attention", "qkv", "up", "residual", "exchanged"};

/// Values of a block that backward computes again.
class Recompute {
 public:
  constexpr Recompute() = default;  ///< nothing
  constexpr Recompute(std::initializer_list<Remade> values) {
    for (const Remade value : values) bits_ |= bit(value);
  }
  /// Everything but the block's input: the block's forward pass runs again.
  static constexpr Recompute all() {
    Recompute everything;
    everything.bits_ = kAll;
    return everything;
  }
  /// Values that one pass over memory makes again from large ones that are kept.
  static constexpr Recompute light() { return {Remade::norms, Remade::activations}; }

  constexpr bool is_all() const { return bits_ == kAll; }
  constexpr bool has(Remade value) const { return !is_all() && (bits_ & bit(value)) != 0; }
  constexpr void add(Remade value) { bits_ |= bit(value); }
  /// A number from which of_bits() makes the same.
  constexpr std::int64_t bits() const { return bits_; }
  static constexpr Recompute of_bits(std::int64_t bits) {
    Recompute same;
    same.bits_ = static_cast<std::uint32_t>(bits);
    return same;
  }
  bool operator==(const Recompute&) const = default;

 private:
  static constexpr std::uint32_t kAll = ~0U;
  static constexpr std::uint32_t bit(Remade value) { return 1U << static_cast<unsigned>(value); }
  std::uint32_t bits_ = 0;
};

/// Values that the blocks of a model compute again, counted from the first. The last blocks keep
/// most, because their backward comes first and frees it.
struct RecomputedBlocks {
  std::int64_t first = 0;  ///< number of leading blocks to which of_first applies
  Recompute of_first = {};
  Recompute of_others = {};

  Recompute of(std::int64_t block) const { return block < first ? of_first : of_others; }
};

}  // namespace axonn
