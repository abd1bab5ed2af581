#pragma once

#include <cstring>
#include <type_traits>

#include "axonn/ops/cpu/bf16.h"
#include "axonn/ops/cpu/matmul/block_matmul.h"

namespace axonn::cpu {

/// The number of elements of T in Lanes: floats, or bf16 in pairs.
template <typename T>
constexpr int kLaneCount = sizeof(Lanes) / sizeof(T);

/// Loads `count` elements from p; the rest is zero.
template <typename T>
[[gnu::always_inline]] inline Lanes load_lanes(const T* p, int count) {
  Lanes lanes{};
  std::memcpy(&lanes, p, count * sizeof(T));
  return lanes;
}

/// sum += left · right, element by element; the products of a pair are added to the same lane.
template <typename T>
void add_lane_products(Lanes& sum, const Lanes& left, const Lanes& right) {
  if constexpr (std::is_same_v<T, float>)
    sum += left * right;
  else
    add_pair_products(sum, left, right);
}

/// The sum of all lanes, folded in halves.
inline float sum_of_lanes(const Lanes& lanes) {
  using Eight = float __attribute__((vector_size(32)));
  using Four = float __attribute__((vector_size(16)));
  Eight eights[2];
  std::memcpy(eights, &lanes, sizeof eights);
  const Eight eight = eights[0] + eights[1];
  Four fours[2];
  std::memcpy(fours, &eight, sizeof fours);
  const Four four = fours[0] + fours[1];
  return (four[0] + four[2]) + (four[1] + four[3]);
}

}  // namespace axonn::cpu
