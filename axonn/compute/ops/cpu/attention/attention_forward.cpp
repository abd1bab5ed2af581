#include <cmath>

#include <omp.h>

#include "axonn/compute/ops/cpu/attention/attention_blocks.h"
#include "axonn/compute/ops/cpu/attention/running_softmax.h"
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

template <typename T>
void forward_task(const Attention& args, Task task, const SoftmaxWorkspace<kBlock>& work) {
  using Ops = Operands<T>;
  const typename Ops::Instructions instructions;
  const int D = static_cast<int>(args.head_dim), width = round_up(D, 2 * kLanes);
  const int words = (D + Ops::kPack - 1) / Ops::kPack, row_words = width / Ops::kPack;
  const QueryBlocks queries(args, task.sequence);
  const int rows = queries.rows_of(task.query_block), own_block = queries.index(task.query_block),
            first_query = own_block * kBlock;
  const std::int64_t first_row = queries.first_row + std::int64_t{task.query_block} * kBlock,
                     first_key_row = task.sequence * args.positions;
  const HeadRange heads = heads_of(args, task.kv_head);
  const int group = static_cast<int>(heads.end - heads.begin), head_size = kBlock * width;

  for (int g = 0; g < group; ++g) {
    Ops::pack(work.k, width, args.q, {first_row, (heads.begin + g) * D, rows, D});
    transpose(work.qt + g * head_size, work.k, row_words, words);
  }
  work.begin(width, group);

  const FirstKeys first(args, {first_row, 0, rows, D});
  const int first_block = std::max(first.first_block(), own_block - blocks_back(args));
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
      scores<typename Ops::Product, kBlock>(work.s, k, work.qt + g * head_size,
                                            {args.scale, args.cap}, {keys, kBlock, words},
                                            diagonal);
      if (args.window > 0) hide_beyond(work.s, keys, first_query - first_key, args.window);
      if (first.most > first_key) hide_before(work.s, keys, first_key, first, rows);
      softmax_block<kBlock>(work.s, work.m + g * kBlock, work.l + g * kBlock, work.rescale, keys,
                            diagonal);
      add_values<Ops, kBlock>(work.o + g * head_size, Ops::down_of(work.p_down, work.s, keys), v,
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
  const std::int64_t each = SoftmaxWorkspace<kBlock>::count(width, args.group);
  float* memory = scratch_.take<float>(each * threads_);
  with_type(args.q.dtype, [&]<typename T>(T) {
#pragma omp parallel for num_threads(threads_) schedule(dynamic)
    for (std::int64_t i = 0; i < sequences * kv_heads * blocks; ++i) {
      const std::int64_t kv_head = i / blocks % kv_heads, sequence = i / blocks / kv_heads;
      const int block = static_cast<int>(blocks - 1 - i % blocks);  // the longest tasks first
      forward_task<T>(args, {sequence, kv_head, block},
                      {memory + each * omp_get_thread_num(), width, args.group});
    }
  });
}

}  // namespace axonn::cpu
