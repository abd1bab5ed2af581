#include "axonn/ops/cuda/attention/cudnn_attention.h"

#include <map>
#include <optional>
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

/// The layout of a run's workspace in one piece of memory: delta, d_q_sum, cuDNN's own workspace.
struct Room {
  static constexpr std::int64_t kAlignment = 256;  // bytes, as cudaMalloc's
  std::int64_t d_q_sum = 0, workspace = 0, bytes = 0;

  Room(const AttentionGraphShape& piece, std::int64_t workspace_bytes) {
    const std::int64_t rows = piece.sequences * piece.heads * piece.positions;
    const auto after = [](std::int64_t begin, std::int64_t floats) {
      const std::int64_t end = begin + floats * static_cast<std::int64_t>(sizeof(float));
      return (end + kAlignment - 1) / kAlignment * kAlignment;
    };
    d_q_sum = after(0, piece.backward ? rows : 0);
    workspace = after(d_q_sum, piece.backward && !piece.ordered ? rows * piece.head_dim : 0);
    bytes = workspace + workspace_bytes;
  }
};

}  // namespace

struct CudnnAttention::State {
  State(Device& on, Scratch& memory, const CudaOptions& how)
      : device(on), scratch(memory), options(how) {}
  ~State() {
    if (handle) cudnnDestroy(handle);
  }

  struct Built {
    AttentionGraph graph = {};
    std::optional<CudnnPlan> plan = {};
  };

  void open();
  const Built& built(const AttentionGraphShape& piece);
  bool run(const std::optional<AttentionGraphShape>& shape, const AttentionBackward& args);
  bool leave(const std::string& what, const std::string& why);

  Device& device;
  Scratch& scratch;
  CudaOptions options;
  cudnnHandle_t handle = nullptr;
  std::string trouble;  // why there is no handle
  std::map<AttentionGraphShape, Built> plans;
  std::map<std::string, std::string> left;  // what was left to other kernels, and why
  std::vector<std::string> remarks;
};

/// Errors go to `trouble`: other kernels then compute attention.
void CudnnAttention::State::open() {
  if (options.attention == CudaAttention::own) return;
  if (cudnnGetVersion() < kOldest) {
    trouble = concat("cuDNN is ", version_text(), ", older than 9.10");
  } else if (const cudnnStatus_t status = cudnnCreate(&handle); status != CUDNN_STATUS_SUCCESS) {
    handle = nullptr;
    trouble = cudnnGetErrorString(status);
  } else {
    check(cudnnSetStream(handle, handle_of(device.compute())));
  }
  if (!trouble.empty()) leave("attention", trouble);
}

/// Adds a remark, once, that `what` is left to other kernels. Throws if options demand cuDNN.
bool CudnnAttention::State::leave(const std::string& what, const std::string& why) {
  if (options.attention == CudaAttention::cudnn)
    refuse("attention: cuDNN does not compute ", what, ": ", why);
  if (left.emplace(what, why).second)
    remarks.push_back(
        concat("cuDNN does not compute ", what, " (", why, "): axonn's own kernels do"));
  return false;
}

const CudnnAttention::State::Built& CudnnAttention::State::built(const AttentionGraphShape& piece) {
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
    made.plan = CudnnPlan::build(made.graph, {.handle = handle}, options.deterministic, &why);
  } catch (const Error& error) {
    why = error.what();
  }
  if (!made.plan) leave(to_string(piece), why);
  return plans.emplace(piece, std::move(made)).first->second;
}

bool CudnnAttention::State::run(const std::optional<AttentionGraphShape>& shape,
                                const AttentionBackward& args) {
  const Attention& a = args.forward;
  if (!handle || a.q.count() == 0) return false;
  if (!shape || shape->head_dim > kWidestHead) {
    const bool odd = a.q.dtype == DType::bf16 || options.attention == CudaAttention::cudnn;
    return odd && leave(concat(a.heads, " heads of ", a.head_dim, " in ", name_of(a.q.dtype)),
                        concat("it needs bf16, heads of width up to ", kWidestHead,
                               ", whole groups, and rows and heads aligned to 16 bytes"));
  }
  const AttentionGraphShape piece = shape->ordered ? graph_piece(*shape, kPieceBytes) : *shape;
  const Built& made = built(piece);
  if (!made.plan) return false;
  const Room room(piece, made.plan->workspace_bytes());
  char* memory = scratch.take<char>(room.bytes);
  const GraphRoom rooms{reinterpret_cast<float*>(memory),
                        reinterpret_cast<float*>(memory + room.d_q_sum)};
  for (std::int64_t s = 0; s < shape->sequences; s += piece.sequences)
    for (std::int64_t k = 0; k < shape->kv_heads; k += piece.kv_heads)
      made.plan->run(handle, graph_memory(made.graph, args, rooms, {s, k}),
                     memory + room.workspace);
  return true;
}

CudnnAttention::CudnnAttention(Device& device, Scratch& scratch, const CudaOptions& options)
    : state_(std::make_unique<State>(device, scratch, options)) {
  state_->open();
}
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
