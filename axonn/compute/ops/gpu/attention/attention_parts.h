#pragma once

#include <algorithm>
#include <cstdint>

#include "axonn/compute/ops/backend.h"
#include "axonn/compute/ops/gpu/launch_shape.h"

// Attention by products, part by part (attention.cu): which parts, and how much memory they take.

namespace axonn::cuda {

/// A part of one attention: some queries of one sequence, and the same member of every group.
struct AttentionPart {
  std::int64_t first_row, first_key;  // of the sequence, in q and in k
  std::int64_t query, rows;           // the block's first row in the sequence, and how many
  std::int64_t key, keys;             // positions that they may see
  std::int64_t head, heads;           // query heads head, head + group, ...
  std::int64_t kv_head;               // of the first query head; the next head has the next one
  std::int64_t stride;                // of a row of scores, elements
};

/// Elements of a row of scores of so many keys.
inline std::int64_t padded_keys(std::int64_t keys) { return (keys + kPack - 1) / kPack * kPack; }

/// Calls body(part) for every part of a sequence, of at most `queries` queries each.
void for_parts(const Attention& args, std::int64_t sequence, std::int64_t queries, auto body) {
  const std::int64_t T = args.positions, all = args.queries();
  for (std::int64_t member = 0; member < args.group; ++member) {
    AttentionPart part{.first_row = sequence * all, .first_key = sequence * T};
    part.head = (member - args.first_query + args.group) % args.group;
    if (part.head >= args.heads) continue;
    part.heads = tiles_of(args.heads - part.head, static_cast<int>(args.group));
    part.kv_head = (args.first_query + part.head) / args.group;
    for (part.query = 0; part.query < all; part.query += queries) {
      part.rows = std::min(queries, all - part.query);
      // Row r lies at position r or after it, and the rows after it at later positions.
      part.key = args.window > 0 ? std::max<std::int64_t>(part.query - args.window + 1, 0) : 0;
      part.keys = T - all + part.query + part.rows - part.key;
      part.stride = padded_keys(part.keys);
      body(part);
    }
  }
}

/// The sizes of the parts of one attention.
struct AttentionParts {
  std::int64_t queries = 0;  ///< the most of a part
  std::int64_t scores = 0;   ///< the most elements of a part's scores
  std::int64_t bytes = 0;    ///< of memory besides the operands: scores, copies, gradients, sums
};

/// The parts that take at most `most` bytes, if the scores of one query do.
inline AttentionParts attention_parts(const Attention& args, bool backward, std::int64_t most) {
  /// Queries of a block: enough for products that fill a GPU, and few enough that little more than
  /// the causal half of a long sequence is computed.
  constexpr std::int64_t kMostQueries = 1024;
  const bool rounds = is_half(args.q.dtype);  // P needs memory of its own
  const std::int64_t one = (bytes_of(DType::f32) + (rounds ? bytes_of(args.q.dtype) : 0)) *
                           (backward ? 2 : 1),
                     sums = backward ? 2 * args.positions * args.k.cols * bytes_of(DType::f32) : 0,
                     row = tiles_of(args.heads, static_cast<int>(args.group)) *
                           padded_keys(args.positions) * one,
                     half = std::max<std::int64_t>(tiles_of(args.positions, 2), 64),
                     fits = row > 0 ? std::max<std::int64_t>((most - sums) / row, 1) : 1;
  AttentionParts parts{.queries = std::min({half, fits, kMostQueries})};
  for_parts(args, 0, parts.queries, [&](const AttentionPart& part) {
    parts.scores = std::max(parts.scores, part.heads * part.rows * part.stride);
  });
  parts.bytes = sums + parts.scores * one;
  return parts;
}

}  // namespace axonn::cuda
