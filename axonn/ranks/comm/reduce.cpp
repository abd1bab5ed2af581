#include "axonn/ranks/comm/reduce.h"

#include <algorithm>

#include "axonn/foundation/base/check.h"

namespace axonn {

namespace {

// AXONN_FOR_EACH_SET: cmake/instructions.cmake defines it. With -DAXONN_MARCH=dispatch, functions
// with loops over values are compiled for several sets of instructions, of which the program takes
// the best one that the processor has. The bits are the same, because nothing is multiplied here.

/// Elements that are reduced over all ranks at a time, so that the sums stay in the L1 cache.
constexpr std::int64_t kBlock = 2048;
/// Operands that are added in one pass, without a sum in between in memory.
constexpr int kAtOnce = 8;

template <typename T>
using Acc = decltype(reduction::load(T{}));

/// acc = the sum of inps [first, first + count), plus, unless it is the first, acc.
template <typename Op, typename T, int count>
[[AXONN_FOR_EACH_SET]] void add_full(Acc<T>* acc, std::span<const Summand> inps, std::int64_t begin,
                                     std::int64_t n, bool is_first) {
  const T* x[count];
  for (int k = 0; k < count; ++k) x[k] = static_cast<const T*>(inps[k].data) + begin;
  const auto sum = [&](std::int64_t i) {
    return reduction::full_branch<Op, count>(
        [&](int k) { return Acc<T>(reduction::load(x[k][i])); }, 0);
  };
  if (is_first) {
#pragma omp simd
    for (std::int64_t i = 0; i < n; ++i) acc[i] = sum(i);
  } else {
#pragma omp simd
    for (std::int64_t i = 0; i < n; ++i) acc[i] = Op::apply(sum(i), acc[i]);
  }
}

/// acc = the sum of at most kAtOnce inps of the same size, of which the last may be smaller. They
/// are branches of 8, 4, 2 and 1 of them, added from the last to the first.
template <typename Op, typename T>
void add_few(Acc<T>* acc, std::span<const Summand> inps, std::int64_t begin, std::int64_t n) {
  const std::size_t count = inps.size();
  bool is_first = true;
  const auto add = [&]<int full>() {
    if ((count & full) == 0) return;
    add_full<Op, T, full>(acc, inps.subspan(count / (2 * full) * (2 * full), full), begin, n,
                          is_first);
    is_first = false;
  };
  add.template operator()<1>();
  add.template operator()<2>();
  add.template operator()<4>();
  add.template operator()<8>();
}

/// Whether add_few() gives the tree over these operands.
bool are_few(std::span<const Summand> inps) {
  const auto ranks = [](const Summand& inp) { return inp.of.ranks; };
  const auto [each, last] = std::pair(ranks(inps.front()), ranks(inps.back()));
  return std::ssize(inps) <= kAtOnce && std::has_single_bit(static_cast<unsigned>(each)) &&
         last <= each &&
         std::ranges::count(inps.first(inps.size() - 1), each, ranks) + 1 == std::ssize(inps) &&
         std::ranges::count(inps, inps.front().summed, &Summand::summed) == std::ssize(inps);
}

template <typename Op, typename T>
[[AXONN_FOR_EACH_SET]] void add_all(Acc<T>* acc, std::span<const Summand> inps, std::int64_t begin,
                                    std::int64_t n) {
  if (inps.size() == 1 || are_few(inps))
    return inps.front().summed ? add_few<Op, Acc<T>>(acc, inps, begin, n)
                               : add_few<Op, T>(acc, inps, begin, n);
  const int first = inps.front().of.first,
            middle = first + sum_split(inps.back().of.first + inps.back().of.ranks - first);
  const auto left = static_cast<std::size_t>(
      std::ranges::lower_bound(inps, middle, {}, [](const Summand& x) { return x.of.first; }) -
      inps.begin());
  Acc<T> others[kBlock];
  add_all<Op, T>(acc, inps.first(left), begin, n);
  add_all<Op, T>(others, inps.subspan(left), begin, n);
#pragma omp simd
  for (std::int64_t i = 0; i < n; ++i) acc[i] = Op::apply(acc[i], others[i]);
}

/// Out: T, or Acc<T> for a sum that is not rounded.
template <typename Op, typename T, typename Out>
[[AXONN_FOR_EACH_SET]] void reduce_blocks(std::span<void* const> outs,
                                          std::span<const Summand> inps, std::int64_t count) {
  Acc<T> acc[kBlock];
  for (std::int64_t begin = 0; begin < count; begin += kBlock) {
    const std::int64_t n = std::min(kBlock, count - begin);
    add_all<Op, T>(acc, inps, begin, n);
    for (void* out : outs) {
      Out* y = static_cast<Out*>(out) + begin;
#pragma omp simd
      for (std::int64_t i = 0; i < n; ++i) reduction::store(y[i], acc[i]);
    }
  }
}

void check_summands(std::span<const Summand> inps) {
  AXONN_CHECK(!inps.empty(), "reduce needs at least one input");
  for (std::size_t i = 1; i < inps.size(); ++i)
    AXONN_CHECK(inps[i].of.first == inps[i - 1].of.first + inps[i - 1].of.ranks,
                "reduce: the branch from rank ", inps[i].of.first, " on does not follow that from ",
                inps[i - 1].of.first, " on of ", inps[i - 1].of.ranks);
}

}  // namespace

std::vector<Branch> branches_of_hosts(std::span<const int> host_of) {
  std::vector<Branch> found;
  // Returns whether the branch has one host; otherwise its parts are among those found.
  const auto visit = [&](const auto& self, Branch at) -> bool {
    if (at.ranks == 1) return true;
    const int split = sum_split(at.ranks);
    const Branch left{at.first, split}, right{at.first + split, at.ranks - split};
    const bool one_left = self(self, left);
    const auto before = std::ssize(found);
    const bool one_right = self(self, right);
    if (one_left && one_right && host_of[left.first] == host_of[right.first]) return true;
    if (one_left) found.insert(found.begin() + before, left);
    if (one_right) found.push_back(right);
    return false;
  };
  const Branch all{0, static_cast<int>(host_of.size())};
  if (all.ranks > 0 && visit(visit, all)) found.push_back(all);
  return found;
}

void reduce(std::span<void* const> outs, std::span<const Summand> inps, std::int64_t count,
            DType dtype, ReduceOp op) {
  check_summands(inps);
  reduction::with_types(dtype, op, [&](auto element, auto operation) {
    using T = decltype(element);
    reduce_blocks<decltype(operation), T, T>(outs, inps, count);
  });
}

void reduce(std::span<void* const> outs, std::span<const void* const> inps, std::int64_t count,
            DType dtype, ReduceOp op) {
  std::vector<Summand> values;
  for (const void* inp : inps) values.push_back({inp, {static_cast<int>(values.size()), 1}});
  reduce(outs, values, count, dtype, op);
}

void reduce_branch(void* out, std::span<const Summand> inps, std::int64_t count, DType dtype,
                   ReduceOp op) {
  check_summands(inps);
  reduction::with_types(dtype, op, [&](auto element, auto operation) {
    using T = decltype(element);
    reduce_blocks<decltype(operation), T, Acc<T>>({&out, 1}, inps, count);
  });
}

}  // namespace axonn
