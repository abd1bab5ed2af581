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

/// Copies, or swaps. A thread reads units of four arrays before it writes any of them, so that it
/// has that many reads of other ranks' memory under way; pairs that are swapped are among them.
template <typename Unit>
struct Copy {
  static constexpr int kTogether = 4;
  PeerWork work;

  AXONN_DEVICE void operator()(std::int64_t thread, std::int64_t threads) const {
    std::int64_t most = 0;
    for (int k = 0; k < work.outs_count; ++k) most = units(k) > most ? units(k) : most;
    for (std::int64_t i = thread; i < most; i += threads)
      for (int first = 0; first < work.outs_count; first += kTogether) {
        Unit kept[kTogether];
        for (int j = 0; j < kTogether; ++j)
          if (first + j < work.outs_count && i < units(first + j))
            kept[j] = static_cast<const Unit*>(work.inps.data()[first + j])[i];
        for (int j = 0; j < kTogether; ++j)
          if (first + j < work.outs_count && i < units(first + j))
            static_cast<Unit*>(work.outs.data()[first + j])[i] = kept[j];
      }
  }

 private:
  AXONN_DEVICE std::int64_t units(int k) const {
    return work.bytes.data()[k] / static_cast<std::int64_t>(sizeof(Unit));
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

/// Calls launch(kernel, items) with the kernel of this work. At most `items` threads have something
/// to do.
template <typename Launch>
void with_kernel_of(const PeerWork& work, const Launch& launch) {
  if (work.empty()) return;
  if (work.kind != PeerWork::Kind::reduce) {
    const auto copy = [&]<typename Unit>(Unit) {
      launch(Copy<Unit>{work}, std::ranges::max(work.bytes) / std::int64_t{sizeof(Unit)});
    };
    if (aligned(work, kPackBytes)) return copy(Pack<std::uint32_t>{});
    return aligned(work, sizeof(std::uint32_t)) ? copy(std::uint32_t{}) : copy(std::uint8_t{});
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
