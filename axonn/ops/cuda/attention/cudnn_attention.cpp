#include "axonn/ops/cuda/attention/cudnn_attention.h"

#include <map>
#include <optional>
#include <set>
#include <utility>

#include <cudnn.h>

#include "axonn/ops/cuda/attention/attention_graph.h"
#include "axonn/ops/cuda/attention/cudnn_plan.cuh"
#include "axonn/tensor/cuda/runtime.cuh"

namespace axonn::cuda {

namespace {

/// Older versions of cuDNN need other numbers for hidden scores, and sums that the caller clears.
constexpr std::size_t kOldest = 91000;

/// The widest head that cuDNN's guide lists for both passes on every GPU; some wider ones work.
constexpr std::int64_t kWidestHead = 128;

std::string version_text() {
  const std::size_t version = cudnnGetVersion();  // 91900
  return concat(version / 10000, '.', version / 100 % 100, '.', version % 100);
}

std::string to_string(const AttentionGraphShape& s) {
  return concat(s.sequences, " x ", s.positions, ", ", s.heads, " heads over ", s.kv_heads, " of ",
                s.head_dim, s.window > 0 ? concat(", window ", s.window) : std::string(),
                s.documents ? ", documents" : "", s.backward ? ", gradients" : "");
}

}  // namespace

struct CudnnAttention::State {
  /// Errors go to remarks: other kernels then compute attention.
  State(Device& device, Scratch& memory, const CudaOptions& how) : scratch(memory), options(how) {
    if (options.attention == CudaAttention::own) return;
    if (cudnnGetVersion() < kOldest) {
      leave("attention", concat("cuDNN is ", version_text(), ", older than 9.10"));
      return;
    }
    cudnnHandle_t made = nullptr;
    if (const cudnnStatus_t status = cudnnCreate(&made); status != CUDNN_STATUS_SUCCESS) {
      leave("attention", cudnnGetErrorString(status));
      return;
    }
    handle.reset(made);
    check(cudnnSetStream(made, handle_of(device.compute())));
  }

  struct Destroy {
    void operator()(cudnnHandle_t handle) const { cudnnDestroy(handle); }
  };

  struct Built {
    AttentionGraph graph = {};
    std::optional<CudnnPlan> plan = {};
  };

  /// Adds a remark, once, that `what` is left to other kernels. Throws if options demand cuDNN.
  bool leave(const std::string& what, const std::string& why) {
    if (options.attention == CudaAttention::cudnn)
      refuse("attention: cuDNN does not compute ", what, ": ", why);
    if (left.insert(what).second)
      remarks.push_back(
          concat("cuDNN does not compute ", what, " (", why, "): axonn's own kernels do"));
    return false;
  }

  const Built& built(const AttentionGraphShape& piece) {
    const auto known = plans.find(piece);
    if (known != plans.end()) return known->second;
    Built made;
    if (std::ssize(plans) >= kMostShapes) {
      leave(concat("more than ", kMostShapes, " shapes"), "each takes half a second to build");
      return plans.emplace(piece, std::move(made)).first->second;
    }
    made.graph = attention_graph(piece);
    std::string why;
    // If some version of cuDNN rejects the graph as malformed, it just does not compute it.
    try {
      made.plan =
          CudnnPlan::build(made.graph, {.handle = handle.get()}, options.deterministic, &why);
    } catch (const Error& error) {
      why = error.what();
    }
    if (!made.plan) leave(to_string(piece), why);
    return plans.emplace(piece, std::move(made)).first->second;
  }

  bool run(const std::optional<AttentionGraphShape>& shape, const AttentionBackward& args) {
    const Attention& a = args.forward;
    if (!handle || a.q.count() == 0) return false;
    if (a.query_blocks.data)
      return leave("attention of a part of each sequence's positions",
                   "its graphs have a query at every position");
    if (!shape || shape->head_dim > kWidestHead) {
      const bool odd = a.q.dtype == DType::bf16 || options.attention == CudaAttention::cudnn;
      return odd && leave(concat(a.heads, " heads of ", a.head_dim, " in ", name_of(a.q.dtype)),
                          concat("it needs bf16, heads of width up to ", kWidestHead,
                                 ", whole groups, and rows and heads aligned to 16 bytes"));
    }
    const AttentionGraphShape piece =
        shape->ordered ? graph_piece(*shape, options.score_bytes) : *shape;
    const Built& made = built(piece);
    if (!made.plan) return false;
    // One piece of memory: delta, d_q_sum, cuDNN's own workspace.
    const auto padded = [](std::int64_t floats) {
      constexpr std::int64_t kAlignment = 256 / sizeof(float);  // 256 bytes, as cudaMalloc's
      return (floats + kAlignment - 1) / kAlignment * kAlignment;
    };
    const std::int64_t rows = piece.sequences * piece.heads * piece.positions,
                       deltas = piece.backward ? padded(rows) : 0,
                       sums = piece.backward && !piece.ordered ? padded(rows * piece.head_dim) : 0;
    const std::int64_t bytes = (deltas + sums) * bytes_of(DType::f32);
    auto* delta =
        reinterpret_cast<float*>(scratch.take<char>(bytes + made.plan->workspace_bytes()));
    for (std::int64_t s = 0; s < shape->sequences; s += piece.sequences)
      for (std::int64_t k = 0; k < shape->kv_heads; k += piece.kv_heads)
        made.plan->run(handle.get(),
                       graph_memory(made.graph, args, {delta, delta + deltas}, {s, k}),
                       delta + deltas + sums);
    return true;
  }

  Scratch& scratch;
  CudaOptions options;
  std::unique_ptr<cudnnContext, Destroy> handle;  // empty: other kernels compute attention
  std::map<AttentionGraphShape, Built> plans;
  std::set<std::string> left;  // what was left to other kernels
  std::vector<std::string> remarks;
};

CudnnAttention::CudnnAttention(Device& device, Scratch& scratch, const CudaOptions& options)
    : state_(std::make_unique<State>(device, scratch, options)) {}
CudnnAttention::~CudnnAttention() = default;

bool CudnnAttention::run(const Attention& args) {
  return state_->run(graph_shape_of(args), {.forward = args});
}
bool CudnnAttention::run(const AttentionBackward& args) {
  return state_->run(graph_shape_of(args, state_->options.deterministic), args);
}

std::vector<std::string> CudnnAttention::take_remarks() {
  return std::exchange(state_->remarks, {});
}

std::string CudnnAttention::library() { return concat("cuDNN ", version_text()); }

}  // namespace axonn::cuda
