#include "axonn/ops/gpu/matmul/products.h"

#include <algorithm>
#include <array>
#include <compare>
#include <map>
#include <set>
#include <type_traits>
#include <utility>

#include "axonn/ops/backend.h"
#include "axonn/ops/gpu/matmul/blas.cuh"
#include "axonn/ops/operand_checks.h"
#include "axonn/tensor/gpu/runtime.cuh"
#include "axonn/tensor/scratch.h"

namespace axonn::cuda {

namespace {

void check(const char* function, cublasStatus_t status, Where where = Where::here()) {
  if (status != CUBLAS_STATUS_SUCCESS)
    fail(where, function_name(*gpu_platform(), function), ": ", cublasLtGetStatusString(status));
}

/// Whether cuBLASLt does not have what was asked for.
bool is_refusal(cublasStatus_t status) {
  return status == CUBLAS_STATUS_NOT_SUPPORTED || status == CUBLAS_STATUS_INVALID_VALUE;
}

/// Destroys one of cuBLASLt's handles.
template <typename Handle, cublasStatus_t (*destroy)(Handle)>
struct Destroy {
  void operator()(Handle handle) const { destroy(handle); }
};
template <typename Handle, cublasStatus_t (*destroy)(Handle)>
using Owned = std::unique_ptr<std::remove_pointer_t<Handle>, Destroy<Handle, destroy>>;

using Library = Owned<cublasLtHandle_t, cublasLtDestroy>;
using Operation = Owned<cublasLtMatmulDesc_t, cublasLtMatmulDescDestroy>;
using Layout = Owned<cublasLtMatrixLayout_t, cublasLtMatrixLayoutDestroy>;
using Preference = Owned<cublasLtMatmulPreference_t, cublasLtMatmulPreferenceDestroy>;

cudaDataType_t type_of(DType dtype) { return dtype == DType::bf16 ? CUDA_R_16BF : CUDA_R_32F; }

/// What the heuristic knows of an operand.
struct Side {
  std::int64_t stride = 0, step = 0;
  std::uint32_t alignment = 256;  // bytes, of its first row
  auto operator<=>(const Side&) const = default;
};

struct Key {
  MatmulShape shape;
  std::int64_t count = 1;
  Side out, a, b;
  Side beside = {};  // the auxiliary matrix of the epilogue
  auto operator<=>(const Key&) const = default;
};

Key key_of(const BatchedMatmul& args) {
  const auto side = [](const View& view, std::int64_t step) {
    return view.data ? Side{view.stride, step, alignment_of(view.data)} : Side{};
  };
  const Matmul& one = args.one;
  return {shape_of(one),
          args.count,
          side(one.out, args.out_step),
          side(one.a, args.a_step),
          side(one.b, args.b_step),
          side(auxiliary_of(one), 0)};
}

/// cuBLASLt's layout of a row-major matrix of `rows` rows and `cols` columns: its transpose.
Layout layout_of(DType type, std::int64_t rows, std::int64_t cols, const Side& side,
                 std::int64_t count) {
  cublasLtMatrixLayout_t layout = nullptr;
  const std::int64_t stride = std::max(side.stride, cols);  // that of a single row may be anything
  check("cublasLtMatrixLayoutCreate",
        cublasLtMatrixLayoutCreate(&layout, type_of(type), static_cast<std::uint64_t>(cols),
                                   static_cast<std::uint64_t>(rows), stride));
  Layout owned(layout);
  const auto batch = static_cast<std::int32_t>(count);
  check("cublasLtMatrixLayoutSetAttribute",
        cublasLtMatrixLayoutSetAttribute(layout, CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT, &batch,
                                         sizeof batch));
  check("cublasLtMatrixLayoutSetAttribute",
        cublasLtMatrixLayoutSetAttribute(layout, CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET,
                                         &side.step, sizeof side.step));
  return owned;
}

/// cuBLASLt's layouts of a product's matrices, with the names of Matmul.
struct Layouts {
  Layout a, b, out;
};

Layouts layouts_of(const Key& key) {
  const MatmulShape& s = key.shape;
  const auto oriented = [&](DType type, bool transposed, std::pair<std::int64_t, std::int64_t> size,
                            const Side& side) {
    return transposed ? layout_of(type, size.second, size.first, side, key.count)
                      : layout_of(type, size.first, size.second, side, key.count);
  };
  return {.a = oriented(s.type, s.a_transposed, {s.M, s.K}, key.a),
          .b = oriented(s.type, s.b_transposed, {s.K, s.N}, key.b),
          .out = oriented(s.out_type, false, {s.M, s.N}, key.out)};
}

/// The product with its rows, M, or K if a is transposed, rounded up to a multiple of kRows.
Key with_rounded_rows(Key key) {
  constexpr std::int64_t kRows = 64;  // asks for about as many algorithms as there are tile heights
  std::int64_t& rows = key.shape.a_transposed ? key.shape.K : key.shape.M;
  rows = (rows + kRows - 1) / kRows * kRows;
  return key;
}

/// Whether Backend::matmul() computes it in parts if it is not fused.
bool has_epilogue(const MatmulShape& shape) {
  return shape.gelu || shape.gelu_derivative || shape.bias_gradient;
}

/// Whether the result can be had without what cuBLASLt may refuse.
bool may_be_left(const MatmulShape& shape) { return shape.bias || has_epilogue(shape); }

cublasLtEpilogue_t epilogue_of(const MatmulShape& shape) {
  if (shape.gelu && shape.gelu_input)
    return shape.bias ? CUBLASLT_EPILOGUE_GELU_AUX_BIAS : CUBLASLT_EPILOGUE_GELU_AUX;
  if (shape.gelu) return shape.bias ? CUBLASLT_EPILOGUE_GELU_BIAS : CUBLASLT_EPILOGUE_GELU;
  if (shape.gelu_derivative) return CUBLASLT_EPILOGUE_DGELU;
  // Our a is cuBLASLt's B, and the gradient is the sum over B's columns.
  if (shape.bias_gradient) return CUBLASLT_EPILOGUE_BGRADB;
  return shape.bias ? CUBLASLT_EPILOGUE_BIAS : CUBLASLT_EPILOGUE_DEFAULT;
}

Operation operation_of(const Key& key) {
  const MatmulShape& shape = key.shape;
  cublasLtMatmulDesc_t operation = nullptr;
  check("cublasLtMatmulDescCreate",
        cublasLtMatmulDescCreate(&operation, CUBLAS_COMPUTE_32F, CUDA_R_32F));
  Operation owned(operation);
  const auto set = [&](cublasLtMatmulDescAttributes_t what, const auto& value) {
    check("cublasLtMatmulDescSetAttribute",
          cublasLtMatmulDescSetAttribute(operation, what, &value, sizeof value));
  };
  // outᵀ = op(b)ᵀ · op(a)ᵀ, and cuBLASLt sees every matrix transposed already.
  set(CUBLASLT_MATMUL_DESC_TRANSA, shape.b_transposed ? CUBLAS_OP_T : CUBLAS_OP_N);
  set(CUBLASLT_MATMUL_DESC_TRANSB, shape.a_transposed ? CUBLAS_OP_T : CUBLAS_OP_N);
  set(CUBLASLT_MATMUL_DESC_EPILOGUE, epilogue_of(shape));
  // The heuristic needs an address for its alignment; each product sets the real one.
  const auto some_address = [](std::uint32_t alignment) {
    return reinterpret_cast<const void*>(std::uintptr_t{alignment});
  };
  if (shape.bias || shape.bias_gradient) {
    set(CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE, type_of(shape.out_type));
    set(CUBLASLT_MATMUL_DESC_BIAS_POINTER, some_address(kEpilogueVector));
  }
  if (shape.gelu_input || shape.gelu_derivative) {
    set(CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD, std::max(key.beside.stride, shape.N));
    set(CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER, some_address(key.beside.alignment));
  }
  return owned;
}

constexpr int kMostWays = 8;  // also the number of kInParts
constexpr std::string_view kWay = "heuristic ";
constexpr std::string_view kInParts = "in parts";  // the product, then its epilogue

/// A stream on which products run one after another, with memory of its own: products of other
/// lanes run at the same time.
struct Lane {
  /// memory: kLaneBytes
  Lane(Stream& on, char* memory) : stream(on), workspace(memory), sums(memory + kWorkspaceBytes) {}

  Stream& stream;
  char* workspace;
  void* sums;  // cuBLASLt's bias gradient, before it is added to ours
};

}  // namespace

struct Products::State {
  explicit State(Arena& memory) : arena(memory) {
    cublasLtHandle_t handle = nullptr;
    check("cublasLtCreate", cublasLtCreate(&handle));
    library.reset(handle);
  }

  struct Plan {
    Operation operation;
    Layouts layouts;
    std::vector<cublasLtMatmulHeuristicResult_t> ways;  // empty only if may_be_left()
    bool refused = false;  // the heuristic has algorithms, but a product was refused
  };

  Plan make(const Key& key) const {
    Plan plan{.operation = operation_of(key), .layouts = layouts_of(key), .ways = {}};
    ask(key, plan);
    return plan;
  }

  /// Asks cuBLASLt's heuristic for algorithms.
  void ask(const Key& key, Plan& plan) const {
    cublasLtMatmulPreference_t handle = nullptr;
    check("cublasLtMatmulPreferenceCreate", cublasLtMatmulPreferenceCreate(&handle));
    const Preference preference(handle);
    const auto prefer = [&](cublasLtMatmulPreferenceAttributes_t what, const auto& value) {
      check("cublasLtMatmulPreferenceSetAttribute",
            cublasLtMatmulPreferenceSetAttribute(handle, what, &value, sizeof value));
    };
    prefer(CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, static_cast<std::uint64_t>(kWorkspaceBytes));
    prefer(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, key.b.alignment);
    prefer(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, key.a.alignment);
    prefer(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, key.out.alignment);
    prefer(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, key.out.alignment);
    std::array<cublasLtMatmulHeuristicResult_t, kMostWays> found{};
    int count = 0;
    const cublasStatus_t status = cublasLtMatmulAlgoGetHeuristic(
        library.get(), plan.operation.get(), plan.layouts.b.get(), plan.layouts.a.get(),
        plan.layouts.out.get(), plan.layouts.out.get(), handle, kMostWays, found.data(), &count);
    const bool optional = may_be_left(key.shape);
    if (optional && is_refusal(status)) return;
    check("cublasLtMatmulAlgoGetHeuristic", status);
    for (int i = 0; i < count; ++i)
      if (found[i].state == CUBLAS_STATUS_SUCCESS) plan.ways.push_back(found[i]);
    AXONN_CHECK(optional || !plan.ways.empty(), "matmul: ", kBlasName, " has no algorithm for ",
                to_string(key.shape));
  }

  Plan& plan_of(const Key& key) {
    const auto known = plans.find(key);
    if (known != plans.end()) return known->second;
    if (plans.size() >= kMostPlans) plans.clear();
    return plans.emplace(key, make(key)).first->second;
  }

  /// The product of this shape with dense operands, and without the bias if that is added after it.
  Key dense(const MatmulShape& shape) {
    Key key{.shape = shape};
    key.out.stride = shape.N;
    key.a.stride = shape.a_transposed ? shape.M : shape.K;
    key.b.stride = shape.b_transposed ? shape.K : shape.N;
    key.beside.stride = (shape.N + 7) / 8 * 8;
    if (shape.bias && shape.out_type != shape.type) key.shape.bias = false;
    if (key.shape.bias && !has_epilogue(shape) && !has(key)) key.shape.bias = false;
    return key;
  }

  /// Whether cuBLASLt computes the product with all that may be left out.
  bool has(const Key& key) {
    const Plan& plan = plan_of(key);
    return !plan.ways.empty() && !plan.refused;
  }

  /// Enqueues the product with these layouts and one of the plan's algorithms.
  cublasStatus_t enqueue(const Lane& lane, const BatchedMatmul& args, const Plan& plan,
                         const Layouts& layouts) {
    const Matmul& one = args.one;
    const auto point = [&](cublasLtMatmulDescAttributes_t what, const void* to) {
      if (to)
        check("cublasLtMatmulDescSetAttribute",
              cublasLtMatmulDescSetAttribute(plan.operation.get(), what, &to, sizeof to));
    };
    point(CUBLASLT_MATMUL_DESC_BIAS_POINTER,
          one.bias.data ? one.bias.data : one.bias_gradient.data);
    point(CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER, auxiliary_of(one).data);
    const auto way = chosen.find(shape_of(one));
    const bool usual = way == chosen.end() || args.count != 1 || args.rows_vary;
    const std::size_t wanted = usual ? 0 : way->second;
    const auto& algorithm = plan.ways[std::min(wanted, plan.ways.size() - 1)].algo;
    const float beta = one.accumulate ? 1 : 0;
    return cublasLtMatmul(library.get(), plan.operation.get(), &args.scale, one.b.data,
                          layouts.b.get(), one.a.data, layouts.a.get(), &beta, one.out.data,
                          layouts.out.get(), one.out.data, layouts.out.get(), &algorithm,
                          lane.workspace, kWorkspaceBytes, handle_of(lane.stream));
  }

  /// Enqueues the product with the algorithm of its rounded rows. Returns false if there is none,
  /// or if cuBLASLt refuses it for these rows; later products do not depend on that.
  bool run_as_rounded(const Lane& lane, const BatchedMatmul& args, const Key& key) {
    if (!kAlgorithmsSuitOtherRows) return false;
    const Plan& plan = plan_of(with_rounded_rows(key));
    if (plan.ways.empty()) return false;
    const cublasStatus_t status = enqueue(lane, args, plan, layouts_of(key));
    if (is_refusal(status)) return false;
    check("cublasLtMatmul", status);
    return true;
  }

  /// Returns false if cuBLASLt refuses the product because of its epilogue or bias.
  bool run(const Lane& lane, const BatchedMatmul& args) {
    const Matmul& one = args.one;
    const Key key = key_of(args);
    if (args.rows_vary && run_as_rounded(lane, args, key)) return true;
    Plan& plan = plan_of(key);
    if (plan.ways.empty() || plan.refused) return false;
    const cublasStatus_t status = enqueue(lane, args, plan, plan.layouts);
    if (may_be_left(key.shape) && is_refusal(status)) {
      plan.refused = true;
      const std::string product = to_string(key.shape);
      if (left.insert(product).second)
        remarks.push_back(concat(kBlasName, " refuses ", product, " (",
                                 cublasLtGetStatusString(status),
                                 "): it is computed without its epilogue, which follows"));
      return false;
    }
    AXONN_CHECK(status == CUBLAS_STATUS_SUCCESS,
                "matmul: ", function_name(*gpu_platform(), "cublasLtMatmul"), " refused ",
                to_string(key.shape), ", rows of out, a and b ", one.out.stride, ", ", one.a.stride,
                " and ", one.b.stride, " elements apart: ", cublasLtGetStatusString(status));
    return true;
  }

  /// See Products::run.
  bool run(const Lane& lane, const Matmul& args, bool rows_vary) {
    check_matmul(args);
    if (args.out.count() == 0) return true;
    const View bias = args.bias;
    BatchedMatmul product{.one = args, .rows_vary = rows_vary};
    if (bias.data && !fuses_bias(args)) product.one.bias = {};
    const View& to_sums = args.bias_gradient;
    if (to_sums.data) product.one.bias_gradient.data = lane.sums;  // which it overwrites
    if (args.a.count() > 0) {
      if (!run(lane, product)) {
        if (has_epilogue(shape_of(product.one))) return false;
        product.one.bias = {};  // cuBLASLt refuses it; it is added below
        run(lane, product);
      }
    } else {  // K = 0: sums are zero
      product.one.bias = {};
      const auto size = static_cast<std::size_t>(bytes_of(args.out.dtype));
      if (!args.accumulate)
        check("cudaMemset2DAsync",
              cudaMemset2DAsync(args.out.data, args.out.stride * size, 0, args.out.cols * size,
                                static_cast<std::size_t>(args.out.rows), handle_of(lane.stream)));
    }
    if (bias.data && !product.one.bias.data) add_bias(lane.stream, args.out, bias);
    if (to_sums.data) add_bias(lane.stream, to_sums, product.one.bias_gradient);
    return true;
  }

  Stream& compute() { return arena.device().compute(); }

  /// Lanes for so many products, the first on the compute stream. The others follow the work that
  /// is on the compute stream now.
  std::vector<Lane> make_lanes(std::size_t products, Scratch& scratch) {
    const auto wanted = static_cast<std::size_t>(lanes_for(products));
    while (beside.size() + 1 < wanted)
      beside.push_back(arena.device().make_stream(StreamPriority::normal));
    char* const memory = scratch.take<char>(lanes_for(products) * kLaneBytes);
    std::vector<Lane> lanes;
    lanes.emplace_back(compute(), memory);
    if (wanted == 1) return lanes;
    const auto before = compute().record();
    for (std::size_t i = 1; i < wanted; ++i) {
      beside[i - 1]->wait(*before);
      lanes.emplace_back(*beside[i - 1], memory + static_cast<std::int64_t>(i) * kLaneBytes);
    }
    return lanes;
  }

  /// Far more than a model has; a limit where the rows of experts need plans of their own.
  static constexpr std::size_t kMostPlans = 4096;

  Arena& arena;
  std::vector<std::unique_ptr<Stream>> beside;  // those of all lanes but the first
  Library library;
  std::map<Key, Plan> plans;
  std::map<MatmulShape, int> chosen;
  std::set<std::string> left;  // products of the remarks that were made
  std::vector<std::string> remarks;
};

Products::Products(Arena& arena) : state_(std::make_unique<State>(arena)) {}
Products::~Products() = default;

bool Products::run(const Matmul& args) {
  Scratch scratch(state_->arena);
  return state_->run(Lane(state_->compute(), scratch.take<char>(kLaneBytes)), args, false);
}

void Products::run(std::span<const Matmul> all) {
  Scratch scratch(state_->arena);
  const std::vector<Lane> lanes = state_->make_lanes(all.size(), scratch);
  for (std::size_t i = 0; i < all.size(); ++i) {
    const bool done = state_->run(lanes[i % lanes.size()], all[i], true);
    AXONN_CHECK(done, "matmuls: a product has an epilogue");
  }
  for (std::size_t i = 1; i < lanes.size(); ++i) state_->compute().wait(*lanes[i].stream.record());
}

bool Products::fuses(const Matmul& args) {
  if (!may_fuse(args)) return false;
  const auto way = state_->chosen.find(shape_of(args));
  if (way != state_->chosen.end() && way->second == kMostWays) return false;
  return state_->has(key_of({.one = args}));
}

void Products::run(const BatchedMatmul& args) {
  if (args.count == 0 || args.one.out.count() == 0) return;
  Scratch scratch(state_->arena);
  state_->run(Lane(state_->compute(), scratch.take<char>(kLaneBytes)), args);
}

std::vector<std::string> Products::take_remarks() { return std::exchange(state_->remarks, {}); }

std::string Products::library() { return concat(kBlasName, ' ', blas_version()); }

std::vector<std::string> Products::ways(const MatmulShape& shape) const {
  if (shape.M == 0 || shape.N == 0 || shape.K == 0) return {concat(kWay, 1)};
  std::vector<std::string> names;
  for (std::size_t i = 1; i <= state_->plan_of(state_->dense(shape)).ways.size(); ++i)
    names.push_back(concat(kWay, i));
  if (has_epilogue(shape)) names.emplace_back(kInParts);
  return names;
}

bool Products::set_way(const MatmulShape& shape, std::string_view way) {
  const std::vector<std::string> known = ways(shape);
  const auto at = std::ranges::find(known, way);
  if (at == known.end()) return false;
  state_->chosen[state_->dense(shape).shape] =
      way == kInParts ? kMostWays : static_cast<int>(at - known.begin());
  return true;
}

}  // namespace axonn::cuda
