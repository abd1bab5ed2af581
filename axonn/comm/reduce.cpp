#include "axonn/comm/reduce.h"

#include <algorithm>

#include "axonn/base/check.h"

namespace axonn {

namespace {

/// Elements that are reduced over all ranks at a time, so that the sums stay in the L1 cache.
constexpr std::int64_t kBlock = 2048;

template <typename Op, typename T>
void reduce_blocks(std::span<void* const> outs, std::span<const void* const> inps,
                   std::int64_t count) {
  using Acc = decltype(reduction::load(T{}));
  Acc acc[kBlock];
  for (std::int64_t begin = 0; begin < count; begin += kBlock) {
    const std::int64_t n = std::min(kBlock, count - begin);
    const T* first = static_cast<const T*>(inps[0]) + begin;
#pragma omp simd
    for (std::int64_t i = 0; i < n; ++i) acc[i] = reduction::load(first[i]);
    for (const void* inp : inps.subspan(1)) {
      const T* x = static_cast<const T*>(inp) + begin;
#pragma omp simd
      for (std::int64_t i = 0; i < n; ++i) acc[i] = Op::apply(acc[i], Acc(reduction::load(x[i])));
    }
    for (void* out : outs) {
      T* y = static_cast<T*>(out) + begin;
#pragma omp simd
      for (std::int64_t i = 0; i < n; ++i) reduction::store(y[i], acc[i]);
    }
  }
}

}  // namespace

void reduce(std::span<void* const> outs, std::span<const void* const> inps, std::int64_t count,
            DType dtype, ReduceOp op) {
  AXONN_CHECK(!inps.empty(), "reduce needs at least one input");
  reduction::with_types(dtype, op, [&](auto element, auto operation) {
    reduce_blocks<decltype(operation), decltype(element)>(outs, inps, count);
  });
}

}  // namespace axonn
