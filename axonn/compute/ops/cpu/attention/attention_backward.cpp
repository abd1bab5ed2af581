#include <utility>

#include <omp.h>

#include "axonn/compute/ops/cpu/attention/attention_blocks.h"
#include "axonn/compute/ops/cpu/cpu_backend.h"
#include "axonn/compute/ops/cpu/launch.h"
#include "axonn/compute/ops/operand_checks.h"
#include "axonn/compute/ops/rowwise/heads.h"
#include "axonn/compute/ops/rowwise/math.h"
#include "axonn/compute/tensor/address.h"

// From p = exp(scale · q · kᵀ - stats) and delta = sum over D of d_out · out, block by block:
//
//   ds = scale · p · (d_out · vᵀ - delta)
//   d_v += pᵀ · d_out     d_q += ds · k     d_k += dsᵀ · q
//
// d_q is a sum over blocks of keys in their order; d_k and d_v are sums over the heads of the group
// and, within a head, over blocks of queries in their order. This order is the same whether one
// task computes a whole key-value head (5 products per block) or several tasks share it: some
// compute d_k and d_v of a block of keys, others d_q of a block of queries (7 products per block).
// Source: Dao, "FlashAttention-2", 2023.

namespace axonn::cpu {

namespace {

/// Most bytes of f32 sums of d_q for a task that computes a whole key-value head: about the size of
/// the L2 cache, or the sums would go to memory and back for every block of keys.
constexpr std::int64_t kGatherBytes = 2 << 20;

/// One thread's memory for a task.
struct Workspace {
  float *q, *d_out, *k, *kt, *vt, *d_k, *d_v;  // (kBlock, width) each
  float *q_down, *d_out_down, *k_down;         // the same
  float *p, *ds, *p_down, *ds_down, *ds_row;   // (kBlock, kBlock)
  float* d_q;                                  // (query blocks gathered · kBlock, width)

  static std::int64_t count(int width, std::int64_t gathered) {
    return kBlock * (10 * width + 5 * kBlock + gathered * width);
  }

  Workspace(float* memory, int width) {
    const auto take = [&](std::int64_t count) { return std::exchange(memory, memory + count); };
    for (float** block : {&q, &d_out, &k, &kt, &vt, &d_k, &d_v, &q_down, &d_out_down, &k_down})
      *block = take(kBlock * width);
    for (float** block : {&p, &ds, &p_down, &ds_down, &ds_row}) *block = take(kBlock * kBlock);
    d_q = memory;
  }
};

/// The gradients of one key-value head of one sequence.
template <typename T>
class HeadBackward {
 public:
  HeadBackward(const AttentionBackward& args, const Matrix<const float>& delta,
               std::int64_t sequence, std::int64_t kv_head, const Workspace& work)
      : args_(args),
        forward_(args.forward),
        delta_(delta),
        work_(work),
        heads_(heads_of(args.forward, kv_head)),
        queries_(args.forward, sequence),
        first_key_row_(sequence * args.forward.positions),
        kv_column_(kv_head * args.forward.head_dim),
        blocks_(static_cast<int>((args.forward.positions + kBlock - 1) / kBlock)),
        back_(blocks_back(args.forward)),
        D_(static_cast<int>(args.forward.head_dim)),
        width_(round_up(D_, 2 * kLanes)) {}

  /// All gradients.
  void all() {
    const int query_blocks = queries_.count,
              head_blocks = static_cast<int>(heads_.end - heads_.begin) * query_blocks;
    std::fill_n(work_.d_q, std::int64_t{head_blocks} * kBlock * width_, 0.0f);
    for (int j = 0; j < blocks_; ++j)
      keys(j, [&](int g, int i) {
        add_query_gradient(i, j, work_.d_q + std::int64_t{g * query_blocks + i} * kBlock * width_);
      });
    for (int h = 0; h < head_blocks; ++h)
      unpack<T>(args_.d_q, query_block(h / query_blocks, h % query_blocks),
                work_.d_q + std::int64_t{h} * kBlock * width_, width_);
  }

  /// d_k and d_v of key block j. Calls with_scores(head of the group, block of queries) while p
  /// and ds are those of the two blocks.
  void keys(int j, auto with_scores) {
    load_keys(j);
    std::fill_n(work_.d_k, kBlock * width_, 0.0f);
    std::fill_n(work_.d_v, kBlock * width_, 0.0f);
    const int first = queries_.from(j), end = queries_.from(j + back_ + 1);
    for (int g = 0; g < heads_.end - heads_.begin; ++g)
      for (int i = first; i < end; ++i) {
        if (first_keys(i).first_block() > j) continue;
        scores(g, i, j);
        add_key_gradients(i, j);
        with_scores(g, i);
      }
    with_type(args_.d_k.dtype, [&]<typename Gradient>(Gradient) {
      unpack<Gradient>(args_.d_k, key_block(j), work_.d_k, width_);
      unpack<Gradient>(args_.d_v, key_block(j), work_.d_v, width_);
    });
  }

  /// d_q of query block i of every head of the group.
  void queries(int i) {
    const int group = static_cast<int>(heads_.end - heads_.begin), block = queries_.index(i);
    std::fill_n(work_.d_q, group * kBlock * width_, 0.0f);
    for (int j = std::max(first_keys(i).first_block(), block - back_); j <= block; ++j) {
      load_keys(j);
      for (int g = 0; g < group; ++g) {
        scores(g, i, j);
        add_query_gradient(i, j, work_.d_q + g * kBlock * width_);
      }
    }
    for (int g = 0; g < group; ++g)
      unpack<T>(args_.d_q, query_block(g, i), work_.d_q + g * kBlock * width_, width_);
  }

 private:
  int keys_of(int j) const {
    return static_cast<int>(
        std::min<std::int64_t>(kBlock, forward_.positions - std::int64_t{j} * kBlock));
  }
  bool diagonal(int i, int j) const { return queries_.index(i) == j; }
  Block query_block(int g, int i) const {
    return {queries_.first_row + std::int64_t{i} * kBlock, (heads_.begin + g) * D_,
            queries_.rows_of(i), D_};
  }
  FirstKeys first_keys(int i) const { return {forward_, query_block(0, i)}; }
  Block key_block(int j) const {
    return {first_key_row_ + std::int64_t{j} * kBlock, kv_column_, keys_of(j), D_};
  }

  void load_keys(int j) {
    Ops::pack(work_.k, width_, forward_.v, key_block(j));
    transpose(work_.vt, work_.k, width_ / Ops::kPack, words(D_));
    Ops::pack(work_.k, width_, forward_.k, key_block(j));
    transpose(work_.kt, work_.k, width_ / Ops::kPack, words(D_));
    keys_ = Ops::down(work_.k_down, work_.k, width_);
  }

  /// Computes q, d_out, p and ds of query block i of head g and the loaded keys.
  void scores(int g, int i, int j) {
    const Block block = query_block(g, i);
    const bool diagonal = this->diagonal(i, j);
    const int row_words = width_ / Ops::kPack;
    Ops::pack(work_.q, width_, forward_.q, block);
    Ops::pack(work_.d_out, width_, args_.d_out, block);
    for_strips(diagonal, block.rows, [&](int row, int count) {
      const int seen = diagonal ? row + kLanes : kBlock;
      const Extents size{count, seen, words(D_)};
      block_product<Product>(work_.p + row * kBlock, kBlock,
                             {work_.q + row * row_words, row_words, 1}, work_.kt, kBlock, size,
                             false);
      block_product<Product>(work_.ds + row * kBlock, kBlock,
                             {work_.d_out + row * row_words, row_words, 1}, work_.vt, kBlock, size,
                             false);
      for (int r = row; r < row + count; ++r) score_gradients(r, g, i, j, seen);
    });
  }

  /// The number of keys at the start of block j that row r of query block i does not see.
  std::int64_t hidden_keys(int r, int i, int j) const {
    std::int64_t first = 0;
    if (forward_.starts.data)
      first = address<const std::int32_t>(forward_.starts)[query_block(0, i).row + r];
    if (forward_.window > 0)
      first = std::max<std::int64_t>(first, queries_.index(i) * kBlock + r + 1 - forward_.window);
    return first - std::int64_t{j} * kBlock;
  }

  /// Computes row r of p and ds, the first `seen` keys, from its scores and d_out · vᵀ.
  void score_gradients(int r, int g, int i, int j, int seen) {
    const Team team;
    const std::int64_t row = query_block(g, i).row + r, head = heads_.begin + g;
    const float scale = forward_.scale, lse = address<float>(forward_.stats, row)[head],
                delta = delta_.row(row)[head];
    float *p = work_.p + r * kBlock, *ds = work_.ds + r * kBlock;
    alignas(64) float capped[kBlock];
    if (forward_.cap > 0) {
      ScoreFactors{scale, forward_.cap}.apply(p, seen);
      std::copy_n(p, seen, capped);
    }
    const float factor = forward_.cap > 0 ? 1 : scale;
    if (diagonal(i, j))
      team.map_indexed(
          p, seen,
          [=, row = static_cast<float>(r)](auto key, auto s) {
            return select_less(row, key, 0.0f, rowwise::exponential(s * factor - lse));
          },
          p);
    else
      team.map(
          p, kBlock, [=](auto s) { return rowwise::exponential(s * factor - lse); }, p);
    std::fill_n(p, std::clamp<std::int64_t>(hidden_keys(r, i, j), 0, seen), 0.0f);
    team.map(
        ds, seen, [=](auto x, auto y) { return scale * y * (x - delta); }, ds, p);
    if (forward_.cap > 0) team.map(ds, seen, rowwise::CappedGradient{forward_.cap}, ds, capped);
  }

  void add_key_gradients(int i, int j) {
    const float *q = Ops::down(work_.q_down, work_.q, width_),
                *d_out = Ops::down(work_.d_out_down, work_.d_out, width_),
                *p = Ops::down_of(work_.p_down, work_.p, queries_.rows_of(i)),
                *ds = Ops::down_of(work_.ds_down, work_.ds, queries_.rows_of(i));
    const bool diagonal = this->diagonal(i, j);
    for_strips(diagonal, keys_of(j), [&](int key, int count) {
      const int first = diagonal ? key : 0;  // the first query that sees a key of the strip
      const Extents size{count, width_, words(queries_.rows_of(i) - first)};
      const int above = first / Ops::kPack, corner = above * kBlock + key;
      block_product<Product>(work_.d_v + key * width_, width_, {p + corner, 1, kBlock},
                             d_out + above * width_, width_, size, true);
      block_product<Product>(work_.d_k + key * width_, width_, {ds + corner, 1, kBlock},
                             q + above * width_, width_, size, true);
    });
  }

  void add_query_gradient(int i, int j, float* d_q) {
    constexpr int kRow = kBlock / Ops::kPack;
    const int rows = queries_.rows_of(i);
    const float* ds = Ops::across_of(work_.ds_row, work_.ds, rows, keys_of(j));
    const bool diagonal = this->diagonal(i, j);
    for_strips(diagonal, rows, [&](int row, int count) {
      const int seen = diagonal ? row + count : keys_of(j);
      block_product<Product>(d_q + row * width_, width_, {ds + row * kRow, kRow, 1}, keys_, width_,
                             {count, width_, words(seen)}, true);
    });
  }

  using Ops = Operands<T>;
  using Product = typename Ops::Product;

  typename Ops::Instructions instructions_;

  static int words(int elements) { return (elements + Ops::kPack - 1) / Ops::kPack; }

  const AttentionBackward& args_;
  const Attention& forward_;
  Matrix<const float> delta_;  // (B·Tq, h)
  Workspace work_;
  HeadRange heads_;
  QueryBlocks queries_;
  std::int64_t first_key_row_, kv_column_;
  int blocks_, back_, D_, width_;
  const float* keys_ = nullptr;  // k of the loaded block, down
};

}  // namespace

void CpuBackend::attention_backward(const AttentionBackward& args) {
  const Attention& forward = args.forward;
  check_attention_backward(args);
  if (args.d_k.count() == 0) return;
  const std::int64_t kv_heads = forward.k.cols / forward.head_dim,
                     pairs = forward.sequences() * kv_heads;
  const std::int64_t key_blocks = (forward.positions + kBlock - 1) / kBlock,
                     query_blocks = QueryBlocks(forward, 0).count;
  const int width = round_up(static_cast<int>(forward.head_dim), 2 * kLanes);
  const std::int64_t gathered = forward.group * query_blocks * kBlock * width * std::int64_t{4};
  const bool whole = gathered <= kGatherBytes && pairs >= 2 * threads_;
  const std::int64_t each = Workspace::count(width, forward.group * (whole ? query_blocks : 1));
  const std::int64_t rows = forward.q.rows, deltas = rows * forward.heads;
  float* memory = scratch_.take<float>(each * threads_ + deltas);
  const Matrix<float> delta{memory + each * threads_, forward.heads};
  const std::int64_t shares = whole ? 1 : key_blocks + query_blocks;
  with_type(forward.q.dtype, [&]<typename T>(T) {
    Launch{threads_, scratch_}.heads(
        {rows, forward.heads, forward.head_dim},
        rowwise::HeadDots<T>{delta, args.d_out, forward.out, static_cast<int>(forward.head_dim)});
#pragma omp parallel for num_threads(threads_) schedule(dynamic)
    for (std::int64_t i = 0; i < pairs * shares; ++i) {
      const Workspace work(memory + each * omp_get_thread_num(), width);
      const std::int64_t pair = i / shares, share = i % shares;
      HeadBackward<T> head(args, {delta.data, delta.stride}, pair / kv_heads, pair % kv_heads,
                           work);
      if (whole)
        head.all();
      else if (share >= 2 * query_blocks)  // more keys than queries
        head.keys(static_cast<int>(share - query_blocks), [](auto...) {});
      else if (share % 2 == 0)
        head.keys(static_cast<int>(share / 2), [](auto...) {});
      else
        head.queries(static_cast<int>(share / 2));
    }
  });
}

}  // namespace axonn::cpu
