#include "axonn/comm/reduce.h"

#include <algorithm>

#include "axonn/base/check.h"
#include "axonn/comm/reduce_ops.h"

namespace axonn {

namespace {

/// Elements that are reduced over all ranks at a time, so that the sums stay in the L1 cache.
constexpr std::int64_t kBlock = 2048;

using namespace reduction;

template <typename Op, typename T>
void reduce_blocks(std::span<void* const> outs, std::span<const void* const> inps,
                   std::int64_t count) {
  using Acc = decltype(load(T{}));
  Acc acc[kBlock];
  for (std::int64_t begin = 0; begin < count; begin += kBlock) {
    const std::int64_t n = std::min(kBlock, count - begin);
    const T* first = static_cast<const T*>(inps[0]) + begin;
#pragma omp simd
    for (std::int64_t i = 0; i < n; ++i) acc[i] = load(first[i]);
    for (const void* inp : inps.subspan(1)) {
      const T* x = static_cast<const T*>(inp) + begin;
#pragma omp simd
      for (std::int64_t i = 0; i < n; ++i) acc[i] = Op::apply(acc[i], Acc(load(x[i])));
    }
    for (void* out : outs) {
      T* y = static_cast<T*>(out) + begin;
#pragma omp simd
      for (std::int64_t i = 0; i < n; ++i) store(y[i], acc[i]);
    }
  }
}

template <typename Op>
void reduce_types(std::span<void* const> outs, std::span<const void* const> inps,
                  std::int64_t count, DType dtype) {
  switch (dtype) {
    case DType::f32:
      return reduce_blocks<Op, float>(outs, inps, count);
    case DType::bf16:
      return reduce_blocks<Op, bf16>(outs, inps, count);
    case DType::f64:
      return reduce_blocks<Op, double>(outs, inps, count);
    case DType::i32:
      return reduce_blocks<Op, std::int32_t>(outs, inps, count);
    case DType::i64:
      return reduce_blocks<Op, std::int64_t>(outs, inps, count);
    case DType::u8:
      return reduce_blocks<Op, std::uint8_t>(outs, inps, count);
  }
}

}  // namespace

void reduce(std::span<void* const> outs, std::span<const void* const> inps, std::int64_t count,
            DType dtype, ReduceOp op) {
  AXONN_CHECK(!inps.empty(), "reduce needs at least one input");
  switch (op) {
    case ReduceOp::sum:
      return reduce_types<Sum>(outs, inps, count, dtype);
    case ReduceOp::max:
      return reduce_types<Max>(outs, inps, count, dtype);
    case ReduceOp::min:
      return reduce_types<Min>(outs, inps, count, dtype);
  }
}

}  // namespace axonn
