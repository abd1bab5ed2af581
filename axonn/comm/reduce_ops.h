#pragma once

#include <cstdint>
#include <type_traits>

#include "axonn/tensor/dtype.h"

/// How ranks' values are combined on the host (reduce.h) and on GPUs (peer_kernels.h): bf16 in f32,
/// all other types in their own type.
namespace axonn::reduction {

template <typename T>
AXONN_DEVICE inline T load(T x) {
  return x;
}
AXONN_DEVICE inline float load(bf16 x) { return get(x); }

template <typename T>
AXONN_DEVICE inline void store(T& to, T x) {
  to = x;
}
AXONN_DEVICE inline void store(bf16& to, float x) { put(to, x); }

struct Sum {
  template <typename T>
  AXONN_DEVICE static T apply(T a, T b) {
    if constexpr (std::is_integral_v<T>) {
      using Bits = std::make_unsigned_t<T>;  // wraps, where a signed sum would be undefined
      return static_cast<T>(static_cast<Bits>(a) + static_cast<Bits>(b));
    } else {
      return a + b;
    }
  }
};

struct Max {
  template <typename T>
  AXONN_DEVICE static T apply(T a, T b) {
    return (b > a || b != b) ? b : a;  // b != b: a NaN wins
  }
};

struct Min {
  template <typename T>
  AXONN_DEVICE static T apply(T a, T b) {
    return (b < a || b != b) ? b : a;
  }
};

}  // namespace axonn::reduction
