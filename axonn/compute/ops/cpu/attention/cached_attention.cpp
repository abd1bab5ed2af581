#include <bit>
#include <cmath>
#include <cstring>
#include <limits>

#include <omp.h>

#include "axonn/compute/ops/cpu/attention/attention_blocks.h"
#include "axonn/compute/ops/cpu/attention/invariant_cached_attention.h"
#include "axonn/compute/ops/cpu/cpu_backend.h"
#include "axonn/compute/ops/cpu/dequantize.h"
#include "axonn/compute/ops/cpu/launch.h"
#include "axonn/compute/ops/cpu/matmul/row_dots.h"
#include "axonn/compute/ops/operand_checks.h"
#include "axonn/compute/ops/rowwise/math.h"
#include "axonn/compute/tensor/address.h"

// Attention of a new token to the keys of its sequence, in stretches of kStretch positions. Each
// stretch has a maximum m, a sum l and an unnormalised result o, as in attention_forward.cpp; these
// are then combined in the order of the stretches. So long sequences give work to all threads, and
// no bit depends on the number of threads or on the other rows.
//
// Bound by memory: 2 · D · sizeof(T) bytes for each key-value head and position seen, or of codes
// 2 · D · 17/16.

namespace axonn::cpu {

namespace {

constexpr std::int64_t kStretch = 512;

/// One stretch of one row for one key-value head.
struct Task {
  std::int64_t row, kv_head, stretch;
};

/// Partial results of one stretch: o (width), m and l of each query head.
struct Partial {
  float* memory;
  int width;

  static std::int64_t count(int width) { return width + kLanes; }
  float* o(std::int64_t head) const { return memory + head * count(width); }
  float& m(std::int64_t head) const { return o(head)[width]; }
  float& l(std::int64_t head) const { return o(head)[width + 1]; }
};

/// Loads `count` elements, at most 16, as floats; the rest is zero.
template <typename T>
[[gnu::always_inline]] inline Lanes load_floats(const T* p, int count) {
  if constexpr (std::is_same_v<T, float>) {
    return load_lanes(p, count);
  } else {
    T few[kLanes] = {};
    if (count != kLanes) {
      std::memcpy(few, p, count * sizeof(T));
      p = few;
    }
    Lanes lanes;
    Lanes::for_each([&](int i) __attribute__((always_inline)) {
      lanes.r[i] = load_register(p + i * Floats::kEach);
    });
    return lanes;
  }
}

/// o (Vectors · 16) += p (keys) · v (keys, Vectors · 16), rows of D elements. Of the last
/// 16 columns only `count` exist.
template <typename T, int Vectors>
void add_columns(float* o, const float* p, const T* v, int keys, int D, int count = kLanes) {
  Lanes sums[Vectors];
  std::memcpy(sums, o, sizeof sums);
  for (int key = 0; key < keys; ++key, v += D)
#pragma GCC unroll 4
    for (int i = 0; i < Vectors; ++i) {
      const Lanes values = load_floats(v + i * kLanes, count);
      Lanes::for_each([&](int part) __attribute__((always_inline)) {
        sums[i].r[part] += p[key] * values.r[part];
      });
    }
  std::memcpy(o, sums, sizeof sums);
}

/// o (D) += p (keys) · v (keys, D).
template <typename T>
void add_values(float* o, const float* p, const T* v, int keys, int D) {
  int begin = 0;
  for (; begin + 4 * kLanes <= D; begin += 4 * kLanes)
    add_columns<T, 4>(o + begin, p, v + begin, keys, D);
  for (; begin < D; begin += kLanes)
    add_columns<T, 1>(o + begin, p, v + begin, keys, D, std::min(kLanes, D - begin));
}

/// The keys of one stretch that a row sees: [begin, end), empty if it sees none.
struct Seen {
  std::int64_t begin, end;

  Seen(const CachedAttention& args, const Task& task) {
    const std::int64_t at = address<std::int32_t>(args.positions)[task.row];
    begin = std::max(first_key(args, at), task.stretch * kStretch);
    end = std::min(at + 1, (task.stretch + 1) * kStretch);
  }
};

/// Consecutive entries of the cache. Values of codes are made in `memory`, which stays in the L1
/// cache, of kMade entries at a time.
struct Entries {
  static constexpr int kMade = 16;

  std::int64_t first;
  int count, D;
  void* memory;  // of kMade · D values of q's type, if there are codes

  /// Calls f(begin, count, keys or values (count, D) of T) for all entries, in their order.
  template <typename T>
  void each(const View& kept, auto f) const {
    if (kept.dtype != DType::u8) return f(0, count, address<const T>(kept, first));
    T* const made = static_cast<T*>(memory);
    for (int begin = 0; begin < count; begin += kMade) {
      const int some = std::min(kMade, count - begin);
      dequantize_heads(address<const std::uint8_t>(kept, first + begin), some, D, made);
      f(begin, some, made);
    }
  }
};

/// Adds keys to a stretch's partial results.
template <typename T>
void add_keys(const CachedAttention& args, const Task& task, const Partial& out,
              const Entries& entries) {
  constexpr int kMost = 8;  // heads whose scores are computed together
  const int D = entries.D, count = entries.count;
  const HeadRange heads = heads_of(args, task.kv_head);
  const Team team;
  for (std::int64_t first = heads.begin; first < heads.end; first += kMost) {
    alignas(64) float scores[kMost][kBlock];
    const std::int64_t n = std::min<std::int64_t>(kMost, heads.end - first);
    const T* const q = address<T>(args.q, task.row) + first * D;
    entries.each<T>(args.keys, [&](int begin, int some, const T* keys) {
      row_dots<T>({q, D, keys, D, D}, n, some, [&](std::int64_t h, std::int64_t key, float dot) {
        scores[h][begin + key] = args.scale * dot;
      });
    });
    for (std::int64_t h = 0; h < n; ++h) {
      if (args.cap > 0) ScoreFactors{1, args.cap}.apply(scores[h], count);
      float *p = scores[h], &m = out.m(first + h), &l = out.l(first + h), *o = out.o(first + h);
      const float most = std::max(m, team.max(count, p));
      const float rescale = rowwise::exponential(m - most);
      m = most;
      team.map(
          p, count, [=](auto x) { return rowwise::exponential(x - most); }, p);
      l = l * rescale + team.sum(
                            count, [](float x) { return x; }, p);
      if (rescale != 1)
        team.map(
            o, D, [=](float x) { return x * rescale; }, o);
    }
    entries.each<T>(args.values, [&](int begin, int some, const T* values) {
      for (std::int64_t h = 0; h < n; ++h)
        add_values(out.o(first + h), scores[h] + begin, values, some, D);
    });
  }
}

template <typename T>
void stretch_task(const CachedAttention& args, const Task& task, const Partial& out, void* memory) {
  const HeadRange heads = heads_of(args, task.kv_head);
  for (std::int64_t h = heads.begin; h < heads.end; ++h) {
    std::fill_n(out.o(h), out.width, 0.0f);
    out.m(h) = -std::numeric_limits<float>::infinity();
    out.l(h) = 0;
  }
  const std::int64_t slot = address<std::int32_t>(args.slots)[task.row];
  const std::int64_t first = (slot * args.kv_heads + task.kv_head) * args.entries;
  const Seen seen(args, task);
  if (slot < 0) return;
  for (std::int64_t key = seen.begin; key < seen.end;) {
    const std::int64_t entry = key % args.entries;
    const auto count = std::min({std::int64_t{kBlock}, seen.end - key, args.entries - entry});
    add_keys<T>(args, task, out,
                {first + entry, static_cast<int>(count), static_cast<int>(args.head_dim), memory});
    key += count;
  }
}

/// out = the combined stretches of one row and head; zero if they are empty. Returns the log of the
/// sum of exponentials.
template <typename T>
float combine(T* out, int D, const Partial* begin, const Partial* end, std::int64_t head) {
  const Team team;
  float most = -std::numeric_limits<float>::infinity(), total = 0;
  for (const Partial* p = begin; p != end; ++p) most = std::max(most, p->m(head));
  float* sum = begin->o(head);
  for (const Partial* p = begin; p != end; ++p) {
    const float factor = p->l(head) > 0 ? rowwise::exponential(p->m(head) - most) : 0;
    total += factor * p->l(head);
    if (p == begin)
      team.map(
          sum, D, [=](float x) { return x * factor; }, sum);
    else if (factor > 0)
      team.map(
          sum, D, [=](float a, float b) { return a + factor * b; }, sum, p->o(head));
  }
  team.map(
      out, D, [scale = total > 0 ? 1 / total : 0](float x) { return x * scale; }, sum);
  return most + std::log(total);
}

}  // namespace

/// Processes as many rows at a time as have a few megabytes of partial results.
void CpuBackend::cached_attention(const CachedAttention& args) {
  check_cached_attention(args);
  if (batch_invariant_) return invariant_cached_attention(args, scratch_, threads_);
  constexpr std::int64_t kFloats = 1 << 20;
  const int D = static_cast<int>(args.head_dim), width = round_up(D, kLanes);
  const std::int64_t stretches =
                         std::max<std::int64_t>(1, (args.longest + kStretch - 1) / kStretch),
                     each = Partial::count(width) * args.heads;
  const std::int64_t at_once = std::clamp<std::int64_t>(kFloats / (each * stretches), 1,
                                                        std::max<std::int64_t>(1, args.q.rows));
  const std::int64_t made = args.keys.dtype == DType::u8 ? Entries::kMade * width : 0;
  float* memory = scratch_.take<float>(at_once * stretches * each + threads_ * made);
  float* const of_threads = memory + at_once * stretches * each;
  std::vector<Partial> partials;
  for (std::int64_t i = 0; i < at_once * stretches; ++i)
    partials.push_back({memory + i * each, width});
  const int used = args.q.rows * args.longest * args.heads * D < kParallelElements ? 1 : threads_;
  with_type(args.q.dtype, [&]<typename T>(T) {
    for (std::int64_t begin = 0; begin < args.q.rows; begin += at_once) {
      const std::int64_t rows = std::min(at_once, args.q.rows - begin);
#pragma omp parallel num_threads(used)
      {
#pragma omp for schedule(dynamic)
        for (std::int64_t i = 0; i < rows * args.kv_heads * stretches; ++i) {
          const std::int64_t row = i / stretches / args.kv_heads, stretch = i % stretches;
          stretch_task<T>(args, {begin + row, i / stretches % args.kv_heads, stretch},
                          partials[row * stretches + stretch],
                          of_threads + omp_get_thread_num() * made);
        }
#pragma omp for schedule(static)
        for (std::int64_t i = 0; i < rows * args.heads; ++i) {
          const std::int64_t row = i / args.heads, head = i % args.heads;
          const Partial* first = &partials[row * stretches];
          const float sum = combine(address<T>(args.out, begin + row) + head * D, D, first,
                                    first + stretches, head);
          if (args.stats.data) address<float>(args.stats, begin + row)[head] = sum;
        }
      }
    }
  });
}

}  // namespace axonn::cpu
