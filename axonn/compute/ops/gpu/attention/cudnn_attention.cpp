#include "axonn/compute/ops/gpu/attention/cudnn_attention.h"

#include <algorithm>
#include <map>
#include <optional>
#include <span>
#include <utility>

#include <cudnn.h>

#include "axonn/compute/ops/gpu/attention/attention_graph.h"
#include "axonn/compute/ops/gpu/attention/cudnn_plan.cuh"
#include "axonn/compute/tensor/gpu/runtime.cuh"
#include "axonn/compute/tensor/scratch.h"
#include "axonn/foundation/base/log.h"

namespace axonn::cuda {

struct CudnnAttention::State {
  explicit State(Backend& on) : backend(on) {}

  struct Destroy {
    void operator()(cudnnHandle_t handle) const { cudnnDestroy(handle); }
  };

  struct Built {
    AttentionGraph graph = {};
    std::optional<CudnnPlan> plan = {};
    std::string why_not = {};
  };

  cudaStream_t stream() const { return handle_of(backend.device().compute()); }

  /// Makes cuDNN's handle when it is first needed. Returns why not.
  std::string start() {
    if (handle) return {};
    cudnnHandle_t made = nullptr;
    if (const cudnnStatus_t status = cudnnCreate(&made); status != CUDNN_STATUS_SUCCESS)
      return cudnnGetErrorString(status);
    handle.reset(made);
    check(cudnnSetStream(made, stream()));
    return {};
  }

  Built build(const AttentionGraphShape& piece, PlanKind kind) const {
    if (std::ssize(plans) >= kMostShapes)
      return {.why_not = concat("there are more than ", kMostShapes,
                                " shapes, each of which takes half a second to build")};
    Built made{.graph = attention_graph(piece)};
    // If some version of cuDNN rejects the graph as malformed, it just does not compute it.
    try {
      made.plan = CudnnPlan::build(made.graph, {.handle = handle.get()}, kind, &made.why_not);
    } catch (const Error& error) {
      made.why_not = error.what();
    }
    return made;
  }

  const Built& built(const AttentionGraphShape& piece, PlanKind kind) {
    const std::pair key(piece, kind);
    const auto known = plans.find(key);
    if (known != plans.end()) return known->second;
    return plans.emplace(key, build(piece, kind)).first->second;
  }

  /// Memory of a run of the piece, with the workspace that its plan needs.
  static std::int64_t bytes_for(const AttentionGraphShape& piece, const Built& made) {
    const GraphBytes bytes = graph_bytes(piece);
    return bytes.total() + std::max<std::int64_t>(made.plan->workspace_bytes() - bytes.library, 0);
  }

  void clear(const View& view) const {
    const auto size = static_cast<std::size_t>(bytes_of(view.dtype));
    check("cudaMemset2DAsync",
          cudaMemset2DAsync(view.data, static_cast<std::size_t>(view.stride) * size, 0,
                            static_cast<std::size_t>(view.cols) * size,
                            static_cast<std::size_t>(view.rows), stream()));
  }

  /// to += the part at `offset` of the gradients of keys or values, which a graph has written
  /// apart.
  void add(const View& to, void* part, const AttentionGraphShape& piece, const GraphOffset& offset,
           std::int64_t positions) const {
    const std::int64_t width = piece.kv_heads * piece.head_dim;
    for (std::int64_t s = 0; s < piece.sequences; ++s) {
      const View sum = to.row_range((offset.sequence + s) * positions, piece.keys())
                           .col_range(offset.kv_head * piece.head_dim, width);
      const View all{part, DType::bf16, piece.sequences * piece.keys(), width, width};
      backend.run(ops::Add{sum, sum, all.row_range(s * piece.keys(), piece.keys())});
    }
  }

  /// Runs the graph of a piece at one offset, and adds to these gradients of keys and values, of
  /// which the offset's part begins at `to`.
  void run(const AttentionBackward& args, const AttentionGraphShape& piece, const Built& made,
           const GraphOffset& offset, void* memory, const View& d_k, const View& d_v,
           const GraphOffset& to) const {
    const GraphRoom room = graph_room(piece, memory);
    made.plan->run(handle.get(), graph_memory(made.graph, args, room, offset), room.library);
    if (!room.d_k) return;
    add(d_k, room.d_k, piece, to, args.forward.positions);
    add(d_v, room.d_v, piece, to, args.forward.positions);
  }

  /// Computes one run of queries, whose first is row `query` of each sequence.
  void run_everywhere(const AttentionBackward& args, const AttentionGraphShape& piece,
                      const Built& made, std::int64_t query, void* memory) const {
    const Attention& a = args.forward;
    for (std::int64_t s = 0; s < a.sequences(); s += piece.sequences)
      for (std::int64_t k = 0; k < a.k.cols / a.head_dim; k += piece.kv_heads) {
        const GraphOffset offset{s, k, query};
        run(args, piece, made, offset, memory, args.d_k, args.d_v, offset);
      }
  }

  /// Computes all runs of queries of one key-value head after another, with sums of its gradients.
  void run_by_heads(const AttentionBackward& args, std::span<const AttentionGraphShape> pieces,
                    PlanKind kind, void* memory) {
    const Attention& a = args.forward;
    const std::int64_t bytes = key_sum_bytes(args) / 2, width = a.head_dim;
    auto* const first = static_cast<char*>(memory);
    const auto sums = [&](char* at) {
      return View{at, DType::f32, a.positions, width, width, args.d_k.memory};
    };
    const View d_k = sums(first), d_v = sums(first + bytes);
    for (std::int64_t s = 0; s < a.sequences(); ++s)
      for (std::int64_t k = 0; k < a.k.cols / width; ++k) {
        for (const View& sum : {d_k, d_v}) clear(sum);
        std::int64_t query = 0;
        for (const AttentionGraphShape& piece : pieces) {
          run(args, piece, built(piece, kind), {s, k, query}, first + 2 * bytes, d_k, d_v, {});
          query += piece.queries;
        }
        const auto of_head = [&](const View& all) {
          return all.row_range(s * a.positions, a.positions).col_range(k * width, width);
        };
        backend.run(ops::Cast{of_head(args.d_k), d_k});
        backend.run(ops::Cast{of_head(args.d_v), d_v});
      }
  }

  Backend& backend;
  std::unique_ptr<cudnnContext, Destroy> handle;
  std::map<std::pair<AttentionGraphShape, PlanKind>, Built> plans;
};

CudnnAttention::CudnnAttention(Backend& backend) : state_(std::make_unique<State>(backend)) {}
CudnnAttention::~CudnnAttention() = default;

std::string CudnnAttention::run(const AttentionBackward& args, const AttentionOffer& offer,
                                std::int64_t most) {
  if (std::string trouble = state_->start(); !trouble.empty()) return trouble;
  const AttentionGraphShape& first = offer.pieces.front();
  const PlanKind kind = offer.way == AttentionWay::cudnn_ordered ? PlanKind::ordered
                        : first.backward && !first.ordered       ? PlanKind::any
                                                                 : PlanKind::fixed;
  // Runs of queries of a call that has no sums for them.
  const std::int64_t sums = first.adds_keys ? key_sum_bytes(args) : 0;
  std::int64_t bytes = offer.bytes;
  for (const AttentionGraphShape& piece : offer.pieces) {
    const auto& made = state_->built(piece, kind);
    if (!made.plan) return made.why_not;
    bytes = std::max(bytes, sums + State::bytes_for(piece, made));
  }
  if (bytes > most) return concat("it needs ", format_bytes(bytes), " of memory");
  Scratch scratch(state_->backend.arena());
  void* const memory = scratch.take<char>(bytes);
  if (sums > 0) {
    state_->run_by_heads(args, offer.pieces, kind, memory);
    return {};
  }
  if (first.adds_keys)
    for (const View& gradient : {args.d_k, args.d_v}) state_->clear(gradient);
  std::int64_t query = 0;
  for (const AttentionGraphShape& piece : offer.pieces) {
    state_->run_everywhere(args, piece, state_->built(piece, kind), query, memory);
    query += piece.queries;
  }
  return {};
}

int CudnnAttention::version() { return static_cast<int>(cudnnGetVersion()); }

std::string CudnnAttention::library() {
  const int version = CudnnAttention::version();  // 91900
  return concat("cuDNN ", version / 10000, '.', version / 100 % 100, '.', version % 100);
}

}  // namespace axonn::cuda
