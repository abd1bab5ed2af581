#pragma once

#include <cstdint>
#include <span>
#include <type_traits>

#include "axonn/comm/communicator.h"

namespace axonn {

/// outs[k][i] = inps[0][i] + inps[1][i] + ... (or the max or min), in this order, for every k.
///
/// f32 and bf16 are summed in f32 and rounded once; other types are summed in their own type, and
/// integers wrap. A NaN in any input gives NaN also in the max and min. An out may be the same
/// array as an inp. All host transports use this function, so they give the same bits;
/// device/peer_kernels.h gives these bits on GPUs.
///
/// Memory-bound: (inps + outs) · count · bytes per element.
void reduce(std::span<void* const> outs, std::span<const void* const> inps, std::int64_t count,
            DType dtype, ReduceOp op);

}  // namespace axonn

/// How ranks' values are combined on the host and on GPUs: bf16 in f32, all other types in their
/// own type.
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

/// Calls f(T{}, Op{}) for the type of elements and the operation.
template <typename F>
void with_types(DType dtype, ReduceOp op, const F& f) {
  const auto with_op = [&](auto element) {
    switch (op) {
      case ReduceOp::sum:
        return f(element, Sum{});
      case ReduceOp::max:
        return f(element, Max{});
      case ReduceOp::min:
        return f(element, Min{});
    }
  };
  switch (dtype) {
    case DType::f32:
      return with_op(float{});
    case DType::bf16:
      return with_op(bf16{});
    case DType::f64:
      return with_op(double{});
    case DType::i32:
      return with_op(std::int32_t{});
    case DType::i64:
      return with_op(std::int64_t{});
    case DType::u8:
      return with_op(std::uint8_t{});
  }
}

}  // namespace axonn::reduction
