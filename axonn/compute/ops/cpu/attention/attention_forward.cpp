#include <cmath>
#include <limits>
#include <vector>

#include <omp.h>

#include "axonn/compute/ops/cpu/attention/attention_blocks.h"
#include "axonn/compute/ops/cpu/cpu_backend.h"
#include "axonn/compute/ops/cpu/launch.h"
#include "axonn/compute/ops/operand_checks.h"
#include "axonn/compute/ops/rowwise/math.h"
#include "axonn/compute/tensor/address.h"

// out = softmax(scale · q · kᵀ, causal) · v. A task is a block of queries of one key-value head. It
// goes over blocks of keys, with a running maximum m, a running sum l and an unnormalised result o
// for each query:
//
//   s = k · qᵀ    m' = max(m, max s)    p = exp(s - m')    l = l · exp(m - m') + sum p
//   o = o · exp(m - m') + pᵀ · v        at the end: out = o / l, stats = m + log l
//
// Scores are stored transposed, with queries side by side in the lanes of a register. So maxima and
// sums over keys need no operations across lanes, and only q is transposed, once per task.
//
// Bound by arithmetic: 2 · B · h · T² · D flops for the causal half, at the rate of block_matmul.
// Source: Dao et al., "FlashAttention", 2022; Milakov and Gimelshein, "Online normalizer
// calculation for softmax", 2018.

namespace axonn::cpu {

namespace {

struct Task {
  std::int64_t sequence, kv_head;
  int query_block;
};

/// One thread's memory for a task.
struct Workspace {
  float *qt, *o, *m, *l;        // per head: (D, kBlock), (kBlock, width), (kBlock) twice
  float *k, *v, *v_down;        // (kBlock, width) each
  float *s, *p_down, *rescale;  // (kBlock, kBlock) twice, (kBlock)

  static std::int64_t count(int width, std::int64_t group) {
    return kBlock * (group * (2 * width + 2) + 3 * width + 2 * kBlock + 1);
  }

  Workspace(float* memory, int width, std::int64_t group) {
    const auto take = [&](std::int64_t count) { return std::exchange(memory, memory + count); };
    qt = take(group * kBlock * width);
    o = take(group * kBlock * width);
    m = take(group * kBlock);
    l = take(group * kBlock);
    k = take(kBlock * width);
    v = take(kBlock * width);
    v_down = take(kBlock * width);
    s = take(kBlock * kBlock);
    p_down = take(kBlock * kBlock);
    rescale = take(kBlock);
  }
};

/// s (keys, queries) = scale · k · qᵀ, summed over size.k words, and capped. On the diagonal only
/// for the queries at or after the first key of a strip of keys.
template <typename Product>
void scores(float* s, Left k, const float* qt, const ScoreFactors& factors, Extents size,
            bool diagonal) {
  for_strips(diagonal, size.m, [&](int key, int count) {
    const int seen = kBlock - key;
    block_matmul<Product>(s + key * kBlock + key, kBlock, {k.data + key * k.row, k.row, k.col},
                          qt + key, kBlock, {count, seen, size.k}, false);
    for (int r = key; r < key + count; ++r) {
      float* row = s + r * kBlock + key;
      factors.apply(row, seen);
    }
  });
}

/// Calls f(first key, end, query) for the keys of a block and sixteen queries at a time, so that
/// what is kept for the queries stays in registers. On the diagonal, for strips of keys and the
/// queries at or after the first key of the strip.
void for_sixteen_queries(bool diagonal, int keys, auto f) {
  for_strips(diagonal, keys, [&](int key, int count) {
    for (int query = diagonal ? key : 0; query < kBlock; query += kLanes)
      f(key, key + count, query);
  });
}

/// Turns scores into p, updates m and l for the new maximum, and sets rescale, the factor of o.
void softmax_block(float* s, float* m, float* l, float* rescale, int keys, bool diagonal) {
  using Sixteen = FloatStrip<kLanes / Registers::kEach>;
  const Team team;
  team.map(
      rescale, kBlock, [](auto x) { return x; }, m);
  if (diagonal)
    for (int key = 0; key < keys; ++key) {
      float* row = s + key * kBlock + key / kLanes * kLanes;
      team.map_indexed(
          row, kLanes,
          [first = static_cast<float>(key % kLanes)](auto i, auto x) {
            return select_less(i, first, -std::numeric_limits<float>::infinity(), x);
          },
          row);
    }
  for_sixteen_queries(diagonal, keys, [&](int first, int end, int query) {
    Sixteen most = Sixteen::from(m + query);
    for (int key = first; key < end; ++key)
      most = greatest(Sixteen::from(s + key * kBlock + query), most);
    most.to(m + query);
  });
  team.map(
      rescale, kBlock, [](auto a, auto b) { return rowwise::exponential(a - b); }, rescale, m);
  team.map(
      l, kBlock, [](auto a, auto b) { return a * b; }, l, rescale);
  for_sixteen_queries(diagonal, keys, [&](int first, int end, int query) {
    const Sixteen most = Sixteen::from(m + query);
    Sixteen sum = Sixteen::from(l + query);
    for (int key = first; key < end; ++key) {
      float* const p = s + key * kBlock + query;
      const Sixteen x = rowwise::exponential(Sixteen::from(p) - most);
      x.to(p);
      sum = sum + x;
    }
    sum.to(l + query);
  });
}

/// The score of a key that the query does not see: far below any real score but finite, so that a
/// query that has not yet seen a key has a finite maximum. Its sums up to then are multiplied by
/// exp(kHidden - m) = 0 at the first key that it sees.
constexpr float kHidden = -1e30f;

/// Hides from every query the keys that are `window` or more before it. `distance` is that of the
/// first query from the block's first key.
void hide_beyond(float* s, int keys, std::int64_t distance, std::int64_t window) {
  for (int key = 0; key < keys; ++key) {
    const auto first = std::clamp<std::int64_t>(key - distance + window, 0, kBlock);
    std::fill(s + key * kBlock + first, s + (key + 1) * kBlock, kHidden);
  }
}

/// Hides from every query the keys before its first one.
void hide_before(float* s, int keys, int first_key, const FirstKeys& first, int queries) {
  for (int key = 0; key < keys; ++key, s += kBlock)
#pragma omp simd
    for (int q = 0; q < queries; ++q) s[q] = first.each[q] > first_key + key ? kHidden : s[q];
}

/// o (queries, width) = o · rescale + pᵀ · v, p and v down.
template <typename Ops>
void add_values(float* o, const float* p, const float* v, const float* rescale, Extents size,
                bool diagonal) {
  const auto [queries, width, keys] = size;
  for (int r = 0; r < queries; ++r)
    Team{}.map(
        o + r * width, width, [factor = rescale[r]](auto x) { return x * factor; }, o + r * width);
  for_strips(diagonal, queries, [&](int query, int count) {
    const int seen = diagonal ? std::min(keys, query + count) : keys;
    const Extents words{count, width, (seen + Ops::kPack - 1) / Ops::kPack};
    block_matmul<typename Ops::Product>(o + query * width, width, {p + query, 1, kBlock}, v, width,
                                        words, true);
  });
}

template <typename T>
void forward_task(const Attention& args, Task task, const Workspace& work) {
  using Ops = Operands<T>;
  const int D = static_cast<int>(args.head_dim), width = round_up(D, 2 * kLanes);
  const int words = (D + Ops::kPack - 1) / Ops::kPack, row_words = width / Ops::kPack;
  const QueryBlocks queries(args, task.sequence);
  const int rows = queries.rows_of(task.query_block), place = queries.place(task.query_block),
            first_query = place * kBlock;
  const std::int64_t first_row = queries.first_row + std::int64_t{task.query_block} * kBlock,
                     first_key_row = task.sequence * args.positions;
  const HeadRange heads = heads_of(args, task.kv_head);
  const int group = static_cast<int>(heads.end - heads.begin), head_size = kBlock * width;

  for (int g = 0; g < group; ++g) {
    Ops::pack(work.k, width, args.q, {first_row, (heads.begin + g) * D, rows, D});
    transpose(work.qt + g * head_size, work.k, row_words, words);
  }
  std::fill_n(work.o, group * head_size, 0.0f);
  std::fill_n(work.l, group * kBlock, 0.0f);
  std::fill_n(work.m, group * kBlock, -std::numeric_limits<float>::infinity());

  const FirstKeys first(args, {first_row, 0, rows, D});
  const int first_block = std::max(first.first_block(), place - blocks_back(args));
  for (int first_key = first_block * kBlock; first_key <= first_query; first_key += kBlock) {
    const int keys = static_cast<int>(std::min<std::int64_t>(kBlock, args.positions - first_key));
    const Block block{first_key_row + first_key, task.kv_head * D, keys, D};
    const Left k = Ops::left(work.k, width, args.k, block);
    Ops::pack(work.v, width, args.v, block);
    if (first_key < first_query)
      for (const View* next : {&args.k, &args.v})
        prefetch_rows<T>(*next, {block.row + kBlock, block.column, kBlock, D});
    const float* v = Ops::down(work.v_down, work.v, width);
    const bool diagonal = first_key == first_query;
    for (int g = 0; g < group; ++g) {
      scores<typename Ops::Product>(work.s, k, work.qt + g * head_size, {args.scale, args.cap},
                                    {keys, kBlock, words}, diagonal);
      if (args.window > 0) hide_beyond(work.s, keys, first_query - first_key, args.window);
      if (first.most > first_key) hide_before(work.s, keys, first_key, first, rows);
      softmax_block(work.s, work.m + g * kBlock, work.l + g * kBlock, work.rescale, keys, diagonal);
      add_values<Ops>(work.o + g * head_size, Ops::down_of(work.p_down, work.s, keys), v,
                      work.rescale, {rows, width, keys}, diagonal);
    }
  }

  for (int g = 0; g < group; ++g)
    for (int r = 0; r < rows; ++r) {
      const std::int64_t row = first_row + r, head = heads.begin + g;
      const float sum = work.l[g * kBlock + r];
      unpack<T>(args.out, {row, head * D, 1, D}, work.o + g * head_size + r * width, width,
                1 / sum);
      address<float>(args.stats, row)[head] = work.m[g * kBlock + r] + std::log(sum);
    }
}

}  // namespace

void CpuBackend::attention(const Attention& args) {
  check_attention(Attention::kName, args);
  if (args.q.count() == 0) return;
  const std::int64_t sequences = args.sequences(), kv_heads = args.k.cols / args.head_dim;
  const std::int64_t blocks = QueryBlocks(args, 0).count;
  const int width = round_up(static_cast<int>(args.head_dim), 2 * kLanes);
  const std::int64_t each = Workspace::count(width, args.group);
  float* memory = scratch_.take<float>(each * threads_);
  with_type(args.q.dtype, [&]<typename T>(T) {
#pragma omp parallel for num_threads(threads_) schedule(dynamic)
    for (std::int64_t i = 0; i < sequences * kv_heads * blocks; ++i) {
      const std::int64_t kv_head = i / blocks % kv_heads, sequence = i / blocks / kv_heads;
      const int block = static_cast<int>(blocks - 1 - i % blocks);  // the longest tasks first
      forward_task<T>(args, {sequence, kv_head, block},
                      Workspace(memory + each * omp_get_thread_num(), width, args.group));
    }
  });
}

}  // namespace axonn::cpu
