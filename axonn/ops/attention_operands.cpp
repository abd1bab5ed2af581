// Which operands of Attention a graph can compute, and where they lie in memory.
#include <algorithm>

#include "axonn/ops/attention_graph.h"

namespace axonn {

namespace {

constexpr std::int64_t kAlignment = 16;  // bytes

bool takes(const View& view) {
  return view.dtype == DType::bf16 && view.stride * bytes_of(view.dtype) % kAlignment == 0 &&
         reinterpret_cast<std::uintptr_t>(view.data) % kAlignment == 0;
}

/// Whether query head j uses key-value head j / (h / k), as graphs have it.
bool whole_groups(const Attention& args, std::int64_t kv_heads) {
  if (kv_heads == 1) return args.first_query + args.heads <= args.group;
  return args.first_query == 0 && args.heads == kv_heads * args.group;
}

/// The largest divisor of `count` that is at most `most`, at least 1.
std::int64_t largest_divisor(std::int64_t count, std::int64_t most) {
  std::int64_t divisor = std::clamp<std::int64_t>(most, 1, count);
  while (count % divisor != 0) --divisor;
  return divisor;
}

/// The part of the operands at `place`.
struct Part {
  const AttentionBackward& args;
  const GraphRoom& room;
  const GraphPlace& place;

  std::int64_t row() const { return place.sequence * args.forward.positions; }
  void* at(const View& view, std::int64_t col) const {
    return static_cast<char*>(view.data) + (row() * view.stride + col) * bytes_of(view.dtype);
  }
  void* keys(const View& view) const { return at(view, place.kv_head * args.forward.head_dim); }
  std::int64_t head() const {
    const Attention& a = args.forward;
    return place.kv_head * (a.heads * a.head_dim / a.k.cols);
  }
  void* queries(const View& view) const { return at(view, head() * args.forward.head_dim); }

  void* memory_of(const GraphTensor& tensor) const {
    const Attention& a = args.forward;
    switch (tensor.role) {
      case GraphRole::inside:
        return nullptr;
      case GraphRole::value:
        return const_cast<float*>(&tensor.number);
      case GraphRole::scale:
        return const_cast<float*>(&a.scale);
      case GraphRole::q:
        return queries(a.q);
      case GraphRole::k:
        return keys(a.k);
      case GraphRole::v:
        return keys(a.v);
      case GraphRole::out:
        return queries(a.out);
      case GraphRole::stats:
        return at(a.stats, head());
      case GraphRole::starts:
        return a.starts.as<std::int32_t>() + row();
      case GraphRole::d_out:
        return queries(args.d_out);
      case GraphRole::d_q:
        return queries(args.d_q);
      case GraphRole::d_k:
        return keys(args.d_k);
      case GraphRole::d_v:
        return keys(args.d_v);
      case GraphRole::delta:
        return room.delta;
      case GraphRole::d_q_sum:
        return room.d_q_sum;
    }
    return nullptr;
  }
};

}  // namespace

std::optional<AttentionGraphShape> graph_shape_of(const Attention& args) {
  if (args.q.count() == 0 || args.k.count() == 0 || args.heads == 0) return std::nullopt;
  const std::int64_t kv_heads = args.k.cols / args.head_dim;
  const bool fits = takes(args.q) && takes(args.k) && takes(args.v) && takes(args.out) &&
                    args.head_dim * bytes_of(DType::bf16) % kAlignment == 0 &&
                    args.k.cols == kv_heads * args.head_dim && args.v.cols == args.k.cols &&
                    whole_groups(args, kv_heads);
  if (!fits) return std::nullopt;
  return AttentionGraphShape{
      .sequences = args.q.rows / args.positions,
      .positions = args.positions,
      .heads = args.heads,
      .kv_heads = kv_heads,
      .head_dim = args.head_dim,
      .window = args.window < args.positions ? args.window : 0,
      .documents = args.starts.data != nullptr,
      .q_stride = args.q.stride,
      .k_stride = args.k.stride,
      .v_stride = args.v.stride,
      .out_stride = args.out.stride,
      .stats_stride = args.stats.stride,
  };
}

std::optional<AttentionGraphShape> graph_shape_of(const AttentionBackward& args, bool ordered) {
  std::optional<AttentionGraphShape> shape = graph_shape_of(args.forward);
  if (!shape || !takes(args.d_out) || !takes(args.d_q) || !takes(args.d_k) || !takes(args.d_v))
    return std::nullopt;
  shape->backward = true;
  shape->ordered = ordered;
  shape->d_out_stride = args.d_out.stride;
  shape->d_q_stride = args.d_q.stride;
  shape->d_k_stride = args.d_k.stride;
  shape->d_v_stride = args.d_v.stride;
  return shape;
}

AttentionGraphShape graph_piece(const AttentionGraphShape& shape, std::int64_t bytes) {
  const std::int64_t group = shape.heads / shape.kv_heads,
                     of_kv_head = group * shape.positions * shape.positions * bytes_of(DType::bf16),
                     of_sequence = shape.kv_heads * of_kv_head;
  AttentionGraphShape piece = shape;
  piece.sequences = largest_divisor(shape.sequences, bytes / of_sequence);
  if (of_sequence > bytes) piece.kv_heads = largest_divisor(shape.kv_heads, bytes / of_kv_head);
  piece.heads = piece.kv_heads * group;
  return piece;
}

std::vector<void*> graph_memory(const AttentionGraph& graph, const AttentionBackward& args,
                                const GraphRoom& room, const GraphPlace& place) {
  const Part part{args, room, place};
  std::vector<void*> memory;
  for (const GraphTensor& tensor : graph.tensors) memory.push_back(part.memory_of(tensor));
  return memory;
}

}  // namespace axonn
