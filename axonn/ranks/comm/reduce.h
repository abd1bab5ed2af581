#pragma once

#include <bit>
#include <cstdint>
#include <span>
#include <type_traits>
#include <vector>

#include "axonn/ranks/comm/communicator.h"

namespace axonn {

/// The order of all sums: a tree over the group's ranks, whatever their hosts. The sum of one rank
/// is its value; the sum of several is the sum of the first ones plus that of the others, split at
/// the largest power of two below their number. So of seven ranks
///
///   ((r0 + r1) + (r2 + r3)) + ((r4 + r5) + r6)
///
/// A host whose ranks are 2^k ranks of a group from a multiple of 2^k on sums one branch of the
/// tree. The error grows with the logarithm of the number of ranks.
inline int sum_split(int ranks) {
  return static_cast<int>(std::bit_floor(static_cast<unsigned>(ranks - 1)));
}

/// The type of sums before they are rounded: f32 for bf16 and f16, otherwise the values' own type.
inline DType sum_type(DType dtype) { return is_half(dtype) ? DType::f32 : dtype; }

/// A branch of the tree: ranks `first` to first + ranks - 1.
struct Branch {
  int first = 0, ranks = 1;
  bool operator==(const Branch&) const = default;
};

/// Cuts the tree into the largest branches whose ranks are all on one host, in the ranks' order.
/// host_of has every rank's host.
std::vector<Branch> branches_of_hosts(std::span<const int> host_of);

/// An operand of a sum: a rank's value, or the sum of a branch, in sum_type().
struct Summand {
  const void* data = nullptr;
  Branch of;
  bool summed = false;
};

/// outs[k][i] = the sum (max, min) over ranks of inps[rank][i], for every k.
///
/// bf16 and f16 are summed in f32 and rounded once; others are summed in their own type, and
/// integers wrap. A NaN in any input gives NaN also in the max and min. An out may be the same
/// array as an inp. All host transports use this function, so they give the same bits;
/// device/peer_kernels.h gives these bits on GPUs.
///
/// Memory-bound: (inps + outs) · count · bytes per element.
void reduce(std::span<void* const> outs, std::span<const void* const> inps, std::int64_t count,
            DType dtype, ReduceOp op);

/// reduce() of the sums of branches, which together are the tree, in the ranks' order.
void reduce(std::span<void* const> outs, std::span<const Summand> inps, std::int64_t count,
            DType dtype, ReduceOp op);

/// The sum of a branch, in sum_type(), which is not rounded. `inps` together are the branch.
void reduce_branch(void* out, std::span<const Summand> inps, std::int64_t count, DType dtype,
                   ReduceOp op);

}  // namespace axonn

/// How ranks' values are combined on the host and on GPUs: bf16 and f16 in f32, all other types in
/// their own type.
namespace axonn::reduction {

template <typename T>
AXONN_DEVICE inline T load(T x) {
  return x;
}
AXONN_DEVICE inline float load(bf16 x) { return get(x); }
AXONN_DEVICE inline float load(f16 x) { return get(x); }

template <typename T>
AXONN_DEVICE inline void store(T& to, T x) {
  to = x;
}
AXONN_DEVICE inline void store(bf16& to, float x) { put(to, x); }
AXONN_DEVICE inline void store(f16& to, float x) { put(to, x); }

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

/// The sum over `count` values, a power of two, from value `first` on; load(i) has value i.
template <typename Op, int count, typename Load>
AXONN_DEVICE inline auto full_branch(const Load& load, int first) {
  if constexpr (count == 1)
    return load(first);
  else
    return Op::apply(full_branch<Op, count / 2>(load, first),
                     full_branch<Op, count / 2>(load, first + count / 2));
}

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
    case DType::f16:
      return with_op(f16{});
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
