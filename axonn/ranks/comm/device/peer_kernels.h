#pragma once

#include <algorithm>
#include <cstdint>

#include "axonn/ranks/comm/device/device_threads.h"
#include "axonn/ranks/comm/reduce.h"

/// The kernels of PeerWork, for GPUs and for the CPU. Each is called by `threads` threads with
/// indices 0 to threads - 1, in any order.
///
/// Memory-bound: each inp is read once, and each out is written once.
namespace axonn::peer {

/// Bytes that a thread moves at once if all addresses are aligned to it.
constexpr int kPackBytes = 16;

template <typename T>
struct alignas(kPackBytes) Pack {
  static constexpr int kCount = kPackBytes / sizeof(T);
  T value[kCount];
};

template <typename T, typename Op>
struct Reduce {
  using Acc = decltype(reduction::load(T{}));

  PeerWork work;
  bool packed = false;  ///< whether all arrays are aligned to Pack

  AXONN_DEVICE void operator()(std::int64_t thread, std::int64_t threads) const {
    const std::int64_t packs = packed ? work.count / Pack<T>::kCount : 0;
    for (std::int64_t i = thread; i < packs; i += threads) reduce<Pack<T>, Pack<T>::kCount>(i);
    for (std::int64_t i = packs * Pack<T>::kCount + thread; i < work.count; i += threads)
      reduce<One, 1>(i);
  }

 private:
  struct One {
    T value[1];
  };

  /// The sums of a unit's elements.
  template <int n>
  struct Sums {
    Acc value[n];
  };
  struct Add {
    template <int n>
    AXONN_DEVICE static Sums<n> apply(Sums<n> a, const Sums<n>& b) {
      for (int j = 0; j < n; ++j) a.value[j] = Op::apply(a.value[j], b.value[j]);
      return a;
    }
  };

  template <typename Unit, int n>
  AXONN_DEVICE void reduce(std::int64_t i) const {
    const auto load = [&](int r) {
      const Unit x = static_cast<const Unit*>(work.inps.data()[r])[i];
      Sums<n> values;
      for (int j = 0; j < n; ++j) values.value[j] = Acc(reduction::load(x.value[j]));
      return values;
    };
    Sums<n> total{};
    add_branches<kMostPeers>(load, total);
    Unit sum;
    for (int j = 0; j < n; ++j) reduction::store(sum.value[j], total.value[j]);
    for (int k = 0; k < work.outs_count; ++k) static_cast<Unit*>(work.outs.data()[k])[i] = sum;
  }

  /// Adds the tree's full branches of at most `full` ranks, from the last and smallest one on.
  template <int full, typename Load, int n>
  AXONN_DEVICE void add_branches(const Load& load, Sums<n>& total) const {
    if constexpr (full > 1) add_branches<full / 2>(load, total);
    const int count = work.inps_count;
    if ((count & full) == 0) return;
    const Sums<n> sum = reduction::full_branch<Add, full>(load, count & ~(2 * full - 1));
    total = (count & (full - 1)) == 0 ? sum : Add::apply(sum, total);
  }
};

/// Copies (at_once = 1), or swaps (at_once = 2): reads two inps before it writes either out.
template <typename Unit, int at_once>
struct Copy {
  PeerWork work;

  AXONN_DEVICE void operator()(std::int64_t thread, std::int64_t threads) const {
    for (int k = 0; k < work.outs_count; k += at_once) {
      const std::int64_t units = work.bytes.data()[k] / static_cast<std::int64_t>(sizeof(Unit));
      for (std::int64_t i = thread; i < units; i += threads) {
        Unit kept[at_once];
        for (int j = 0; j < at_once; ++j)
          kept[j] = static_cast<const Unit*>(work.inps.data()[k + j])[i];
        for (int j = 0; j < at_once; ++j) static_cast<Unit*>(work.outs.data()[k + j])[i] = kept[j];
      }
    }
  }
};

/// Whether all addresses, and the bytes of copies, are multiples of `bytes`.
inline bool aligned(const PeerWork& work, std::uintptr_t bytes) {
  std::uintptr_t bits = 0;
  for (int k = 0; k < work.outs_count; ++k)
    bits |=
        reinterpret_cast<std::uintptr_t>(work.outs[k]) | static_cast<std::uintptr_t>(work.bytes[k]);
  for (int k = 0; k < work.inps_count; ++k) bits |= reinterpret_cast<std::uintptr_t>(work.inps[k]);
  return bits % bytes == 0;
}

/// with_kernel_of() for a copy or a swap in units of Unit.
template <typename Unit, typename Launch>
void with_copy_of(const PeerWork& work, const Launch& launch) {
  const std::int64_t units = std::ranges::max(work.bytes) / static_cast<std::int64_t>(sizeof(Unit));
  if (work.kind == PeerWork::Kind::swap)
    launch(Copy<Unit, 2>{work}, units);
  else
    launch(Copy<Unit, 1>{work}, units);
}

/// Calls launch(kernel, items) with the kernel of this work. At most `items` threads have something
/// to do.
template <typename Launch>
void with_kernel_of(const PeerWork& work, const Launch& launch) {
  if (work.empty()) return;
  if (work.kind != PeerWork::Kind::reduce) {
    if (aligned(work, kPackBytes)) return with_copy_of<Pack<std::uint32_t>>(work, launch);
    if (aligned(work, sizeof(std::uint32_t))) return with_copy_of<std::uint32_t>(work, launch);
    return with_copy_of<std::uint8_t>(work, launch);
  }
  reduction::with_types(work.dtype, work.op, [&](auto element, auto op) {
    using T = decltype(element);
    constexpr int kCount = Pack<T>::kCount;
    const bool packed = aligned(work, kPackBytes);
    launch(Reduce<T, decltype(op)>{work, packed},
           packed ? work.count / kCount + kCount : work.count);
  });
}

}  // namespace axonn::peer
