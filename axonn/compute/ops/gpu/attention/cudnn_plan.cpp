#include "axonn/compute/ops/gpu/attention/cudnn_plan.cuh"

#include <algorithm>
#include <array>
#include <initializer_list>
#include <iterator>
#include <string_view>
#include <utility>

namespace axonn::cuda {

namespace {

/// cuDNN's message about its last failure: only the first reason of a chain of them.
std::string last_words() {
  std::array<char, 1024> text{};
  cudnnGetLastErrorString(text.data(), text.size());
  const std::string_view all = text.data(), reason = "Reason: ";
  const std::size_t begin = all.find(reason);
  if (begin == std::string_view::npos) return std::string(all.substr(0, all.find('\n')));
  const std::string_view rest = all.substr(begin + reason.size());
  return std::string(rest.substr(0, rest.find('\n')));
}

/// By GraphType.
constexpr std::array kTypes{CUDNN_DATA_FLOAT, CUDNN_DATA_BFLOAT16, CUDNN_DATA_INT32,
                            CUDNN_DATA_BOOLEAN};

/// cuDNN's id of the graph's tensor i.
std::int64_t id_of(std::size_t i) { return static_cast<std::int64_t>(i) + 1; }

bool is_number(GraphRole role) { return role == GraphRole::value || role == GraphRole::scale; }

CudnnDescriptor descriptor_of(const GraphTensor& tensor, std::int64_t id) {
  // In bytes. Kernels load rows of q and the like in vectors. They load single elements of stats
  // and starts, whose rows begin anywhere in a piece of heads or with an odd length.
  const bool single = tensor.role == GraphRole::stats || tensor.role == GraphRole::starts;
  const std::int64_t alignment = single ? 4 : 16;
  CudnnDescriptor made(CUDNN_BACKEND_TENSOR_DESCRIPTOR);
  made.set(CUDNN_ATTR_TENSOR_DATA_TYPE, CUDNN_TYPE_DATA_TYPE,
           kTypes.at(static_cast<std::size_t>(tensor.type)));
  made.set(CUDNN_ATTR_TENSOR_DIMENSIONS, CUDNN_TYPE_INT64,
           std::span<const std::int64_t>(tensor.dims));
  made.set(CUDNN_ATTR_TENSOR_STRIDES, CUDNN_TYPE_INT64,
           std::span<const std::int64_t>(tensor.strides));
  made.set(CUDNN_ATTR_TENSOR_UNIQUE_ID, id);
  made.set(CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT, alignment);
  made.set(CUDNN_ATTR_TENSOR_IS_VIRTUAL, CUDNN_TYPE_BOOLEAN, tensor.role == GraphRole::inside);
  made.set(CUDNN_ATTR_TENSOR_IS_BY_VALUE, CUDNN_TYPE_BOOLEAN, is_number(tensor.role));
  made.finalize();
  return made;
}

cudnnPointwiseMode_t mode_of(GraphOp op) {
  constexpr std::pair<GraphOp, cudnnPointwiseMode_t> kModes[] = {
      {GraphOp::multiply, CUDNN_POINTWISE_MUL},    {GraphOp::add, CUDNN_POINTWISE_ADD},
      {GraphOp::subtract, CUDNN_POINTWISE_SUB},    {GraphOp::divide, CUDNN_POINTWISE_DIV},
      {GraphOp::exponential, CUDNN_POINTWISE_EXP}, {GraphOp::logarithm, CUDNN_POINTWISE_LOG},
      {GraphOp::index, CUDNN_POINTWISE_GEN_INDEX}, {GraphOp::at_least, CUDNN_POINTWISE_CMP_GE},
      {GraphOp::greater, CUDNN_POINTWISE_CMP_GT},  {GraphOp::select, CUDNN_POINTWISE_BINARY_SELECT},
      {GraphOp::copy, CUDNN_POINTWISE_IDENTITY}};
  return std::ranges::find(kModes, op, &std::pair<GraphOp, cudnnPointwiseMode_t>::first)->second;
}

/// Lowers a graph: each node to a cuDNN operation and, for most, a descriptor of its details.
struct Lowering {
  const AttentionGraph& graph;
  std::vector<CudnnDescriptor> tensors = {}, details = {}, operations = {};

  using Operands = std::initializer_list<std::pair<cudnnBackendAttributeName_t, int>>;

  explicit Lowering(const AttentionGraph& of) : graph(of) {
    for (std::size_t i = 0; i < graph.tensors.size(); ++i)
      tensors.push_back(descriptor_of(graph.tensors[i], id_of(i)));
    for (const GraphNode& node : graph.nodes) {
      if (node.op == GraphOp::product)
        product(node);
      else if (node.op == GraphOp::largest || node.op == GraphOp::sum)
        reduction(node);
      else if (node.op == GraphOp::transpose)
        finish(CudnnDescriptor(CUDNN_BACKEND_OPERATION_RESHAPE_DESCRIPTOR),
               {{CUDNN_ATTR_OPERATION_RESHAPE_XDESC, node.a},
                {CUDNN_ATTR_OPERATION_RESHAPE_YDESC, node.out}});
      else
        pointwise(node);
    }
  }

  /// Adds an operation, which has these tensors; -1: none.
  void finish(CudnnDescriptor operation, Operands operands) {
    for (const auto& [name, at] : operands)
      if (at >= 0) operation.set(name, tensors[static_cast<std::size_t>(at)]);
    operation.finalize();
    operations.push_back(std::move(operation));
  }

  /// The same for an operation whose attribute `name` is the descriptor `how`.
  void finish(cudnnBackendDescriptorType_t type, Operands operands,
              cudnnBackendAttributeName_t name, CudnnDescriptor how) {
    how.finalize();
    CudnnDescriptor operation(type);
    operation.set(name, how);
    details.push_back(std::move(how));
    finish(std::move(operation), operands);
  }

  void product(const GraphNode& node) {
    CudnnDescriptor how(CUDNN_BACKEND_MATMUL_DESCRIPTOR);
    how.set(CUDNN_ATTR_MATMUL_COMP_TYPE, CUDNN_TYPE_DATA_TYPE, CUDNN_DATA_FLOAT);
    finish(CUDNN_BACKEND_OPERATION_MATMUL_DESCRIPTOR,
           {{CUDNN_ATTR_OPERATION_MATMUL_ADESC, node.a},
            {CUDNN_ATTR_OPERATION_MATMUL_BDESC, node.b},
            {CUDNN_ATTR_OPERATION_MATMUL_CDESC, node.out}},
           CUDNN_ATTR_OPERATION_MATMUL_DESC, std::move(how));
  }

  void reduction(const GraphNode& node) {
    CudnnDescriptor how(CUDNN_BACKEND_REDUCTION_DESCRIPTOR);
    how.set(CUDNN_ATTR_REDUCTION_COMP_TYPE, CUDNN_TYPE_DATA_TYPE, CUDNN_DATA_FLOAT);
    how.set(CUDNN_ATTR_REDUCTION_OPERATOR, CUDNN_TYPE_REDUCTION_OPERATOR_TYPE,
            node.op == GraphOp::largest ? CUDNN_REDUCE_TENSOR_MAX : CUDNN_REDUCE_TENSOR_ADD);
    finish(CUDNN_BACKEND_OPERATION_REDUCTION_DESCRIPTOR,
           {{CUDNN_ATTR_OPERATION_REDUCTION_XDESC, node.a},
            {CUDNN_ATTR_OPERATION_REDUCTION_YDESC, node.out}},
           CUDNN_ATTR_OPERATION_REDUCTION_DESC, std::move(how));
  }

  bool integers(const GraphNode& node) const {
    return node.b >= 0 && graph.tensors[static_cast<std::size_t>(node.out)].type == GraphType::i32;
  }

  void pointwise(const GraphNode& node) {
    const bool compares = node.op == GraphOp::at_least || node.op == GraphOp::greater;
    CudnnDescriptor how(CUDNN_BACKEND_POINTWISE_DESCRIPTOR);
    how.set(CUDNN_ATTR_POINTWISE_MODE, CUDNN_TYPE_POINTWISE_MODE, mode_of(node.op));
    how.set(CUDNN_ATTR_POINTWISE_MATH_PREC, CUDNN_TYPE_DATA_TYPE,
            compares         ? CUDNN_DATA_BOOLEAN
            : integers(node) ? CUDNN_DATA_INT32
                             : CUDNN_DATA_FLOAT);
    if (node.axis >= 0) how.set(CUDNN_ATTR_POINTWISE_AXIS, std::int64_t{node.axis});
    finish(CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR,
           {{CUDNN_ATTR_OPERATION_POINTWISE_XDESC, node.a},
            {CUDNN_ATTR_OPERATION_POINTWISE_BDESC, node.b},
            {CUDNN_ATTR_OPERATION_POINTWISE_TDESC, node.where},
            {CUDNN_ATTR_OPERATION_POINTWISE_YDESC, node.out}},
           CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR, std::move(how));
  }
};

CudnnDescriptor graph_of(const std::vector<CudnnDescriptor>& operations, cudnnHandle_t handle) {
  std::vector<cudnnBackendDescriptor_t> handles;
  handles.reserve(operations.size());
  for (const CudnnDescriptor& operation : operations) handles.push_back(operation.handle());
  CudnnDescriptor made(CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR);
  made.set(CUDNN_ATTR_OPERATIONGRAPH_OPS, CUDNN_TYPE_BACKEND_DESCRIPTOR,
           std::span<const cudnnBackendDescriptor_t>(handles));
  if (handle) made.set(CUDNN_ATTR_OPERATIONGRAPH_HANDLE, CUDNN_TYPE_HANDLE, handle);
  made.finalize();
  return made;
}

/// The descriptors that are an attribute of another one.
std::vector<CudnnDescriptor> parts_of(const CudnnDescriptor& whole,
                                      cudnnBackendAttributeName_t name,
                                      cudnnBackendDescriptorType_t type) {
  std::int64_t count = 0;
  check(cudnnBackendGetAttribute(whole.handle(), name, CUDNN_TYPE_BACKEND_DESCRIPTOR, 0, &count,
                                 nullptr));
  std::vector<CudnnDescriptor> found;
  std::vector<cudnnBackendDescriptor_t> handles;
  for (std::int64_t i = 0; i < count; ++i) handles.push_back(found.emplace_back(type).handle());
  check(cudnnBackendGetAttribute(whole.handle(), name, CUDNN_TYPE_BACKEND_DESCRIPTOR, count, &count,
                                 handles.data()));
  while (std::ssize(found) > count) found.pop_back();
  return found;
}

/// The engine configurations in the order of the heuristic, its best first.
std::vector<CudnnDescriptor> configurations(const CudnnDescriptor& graph,
                                            const CudnnTarget& target) {
  CudnnDescriptor heuristic(CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR);
  heuristic.set(CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH, graph);
  heuristic.set(CUDNN_ATTR_ENGINEHEUR_MODE, CUDNN_TYPE_HEUR_MODE, CUDNN_HEUR_MODE_A);
  if (target.properties) heuristic.set(CUDNN_ATTR_ENGINEHEUR_DEVICEPROP, *target.properties);
  if (heuristic.try_finalize() != CUDNN_STATUS_SUCCESS) return {};
  return parts_of(heuristic, CUDNN_ATTR_ENGINEHEUR_RESULTS, CUDNN_BACKEND_ENGINECFG_DESCRIPTOR);
}

/// The engine of a configuration.
CudnnDescriptor engine_of(const CudnnDescriptor& configuration) {
  CudnnDescriptor engine(CUDNN_BACKEND_ENGINE_DESCRIPTOR);
  cudnnBackendDescriptor_t handle = engine.handle();
  std::int64_t count = 0;
  check(cudnnBackendGetAttribute(configuration.handle(), CUDNN_ATTR_ENGINECFG_ENGINE,
                                 CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &count, &handle));
  return engine;
}

bool is_deterministic(const CudnnDescriptor& engine) {
  std::array<cudnnBackendNumericalNote_t, CUDNN_NUMERICAL_NOTE_TYPE_COUNT> notes{};
  std::int64_t count = 0;
  check(cudnnBackendGetAttribute(engine.handle(), CUDNN_ATTR_ENGINE_NUMERICAL_NOTE,
                                 CUDNN_TYPE_NUMERICAL_NOTE, std::ssize(notes), &count,
                                 notes.data()));
  const auto end = notes.begin() + count;
  return std::find(notes.begin(), end, CUDNN_NUMERICAL_NOTE_NONDETERMINISTIC) == end;
}

std::int64_t number_of(const CudnnDescriptor& from, cudnnBackendAttributeName_t name,
                       cudnnBackendAttributeType_t type = CUDNN_TYPE_INT64) {
  std::int64_t number = 0, count = 0;
  check(cudnnBackendGetAttribute(from.handle(), name, type, 1, &count, &number));
  return number;
}

/// The configuration with its engine's sums of gradients of queries in a fixed order: cuDNN 9.25
/// has that as four stages of its engine for Hopper (NVIDIA/cudnn-frontend, pull request 398). Not
/// finalized. The choices must outlive it.
CudnnDescriptor with_ordered_sums(const CudnnDescriptor& engine, const CudnnDescriptor& usual,
                                  std::vector<CudnnDescriptor>& choices) {
  constexpr std::int64_t kOrdered = 4;
  choices =
      parts_of(usual, CUDNN_ATTR_ENGINECFG_KNOB_CHOICES, CUDNN_BACKEND_KNOB_CHOICE_DESCRIPTOR);
  std::erase_if(choices, [](const CudnnDescriptor& choice) {
    return number_of(choice, CUDNN_ATTR_KNOB_CHOICE_KNOB_TYPE, CUDNN_TYPE_KNOB_TYPE) ==
           CUDNN_KNOB_TYPE_STAGES;
  });
  CudnnDescriptor& stages = choices.emplace_back(CUDNN_BACKEND_KNOB_CHOICE_DESCRIPTOR);
  stages.set(CUDNN_ATTR_KNOB_CHOICE_KNOB_TYPE, CUDNN_TYPE_KNOB_TYPE, CUDNN_KNOB_TYPE_STAGES);
  stages.set(CUDNN_ATTR_KNOB_CHOICE_KNOB_VALUE, kOrdered);
  stages.finalize();
  std::vector<cudnnBackendDescriptor_t> handles;
  for (const CudnnDescriptor& choice : choices) handles.push_back(choice.handle());
  CudnnDescriptor configuration(CUDNN_BACKEND_ENGINECFG_DESCRIPTOR);
  configuration.set(CUDNN_ATTR_ENGINECFG_ENGINE, engine);
  configuration.set(CUDNN_ATTR_ENGINECFG_KNOB_CHOICES, CUDNN_TYPE_BACKEND_DESCRIPTOR,
                    std::span<const cudnnBackendDescriptor_t>(handles));
  return configuration;
}

}  // namespace

void check(cudnnStatus_t status, Where where) {
  if (status != CUDNN_STATUS_SUCCESS)
    fail(where, "cuDNN: ", cudnnGetErrorString(status), ": ", last_words());
}

CudnnDescriptor::CudnnDescriptor(cudnnBackendDescriptorType_t type) {
  check(cudnnBackendCreateDescriptor(type, &handle_));
}

CudnnDescriptor::~CudnnDescriptor() {
  if (handle_) cudnnBackendDestroyDescriptor(handle_);
}

CudnnDescriptor cudnn_gpu(const std::string& json) {
  CudnnDescriptor gpu(CUDNN_BACKEND_DEVICEPROP_DESCRIPTOR);
  gpu.set(CUDNN_ATTR_DEVICEPROP_JSON_REPRESENTATION, CUDNN_TYPE_CHAR, std::span<const char>(json));
  gpu.finalize();
  return gpu;
}

std::optional<CudnnPlan> CudnnPlan::build(const AttentionGraph& graph, const CudnnTarget& target,
                                          PlanKind kind, std::string* why) {
  Lowering lowering(graph);
  CudnnPlan plan;
  CudnnDescriptor whole = graph_of(lowering.operations, target.handle);
  std::vector<CudnnDescriptor> found = configurations(whole, target);
  *why = found.empty() ? concat("no engine takes the graph: ", last_words()) : std::string();
  std::vector<CudnnDescriptor> choices;
  for (CudnnDescriptor& configuration : found) {
    const CudnnDescriptor engine = engine_of(configuration);
    const std::int64_t number = number_of(engine, CUDNN_ATTR_ENGINE_GLOBAL_INDEX);
    if (kind != PlanKind::any && !is_deterministic(engine)) {
      *why = concat("engine ", number, " is not deterministic");
      continue;
    }
    if (kind == PlanKind::ordered) {
      CudnnDescriptor ordered = with_ordered_sums(engine, configuration, choices);
      if (ordered.try_finalize() != CUDNN_STATUS_SUCCESS) {
        *why = concat("engine ", number, " has no ordered sums: ", last_words());
        continue;
      }
      configuration = std::move(ordered);
    }
    CudnnDescriptor made(CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR);
    made.set(CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG, configuration);
    if (target.handle) made.set(CUDNN_ATTR_EXECUTION_PLAN_HANDLE, CUDNN_TYPE_HANDLE, target.handle);
    if (target.properties) made.set(CUDNN_ATTR_EXECUTION_PLAN_DEVICEPROP, *target.properties);
    if (made.try_finalize() != CUDNN_STATUS_SUCCESS) {
      *why = concat("engine ", number, ": ", last_words());
      continue;
    }
    plan.workspace_bytes_ = number_of(made, CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE);
    for (auto* parts : {&lowering.tensors, &lowering.details, &lowering.operations, &choices})
      std::ranges::move(*parts, std::back_inserter(plan.parts_));
    plan.parts_.push_back(std::move(whole));
    plan.parts_.push_back(std::move(configuration));
    plan.parts_.push_back(std::move(made));
    return plan;
  }
  return std::nullopt;
}

void CudnnPlan::run(cudnnHandle_t handle, std::span<void* const> memory, void* workspace) const {
  std::vector<std::int64_t> ids;
  std::vector<void*> pointers;
  for (std::size_t i = 0; i < memory.size(); ++i) {
    if (!memory[i]) continue;
    ids.push_back(id_of(i));
    pointers.push_back(memory[i]);
  }
  CudnnDescriptor pack(CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR);
  pack.set(CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS, CUDNN_TYPE_INT64,
           std::span<const std::int64_t>(ids));
  pack.set(CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS, CUDNN_TYPE_VOID_PTR,
           std::span<void* const>(pointers));
  pack.set(CUDNN_ATTR_VARIANT_PACK_WORKSPACE, CUDNN_TYPE_VOID_PTR, workspace);
  pack.finalize();
  check(cudnnBackendExecute(handle, parts_.back().handle(), pack.handle()));
}

}  // namespace axonn::cuda
