#include "axonn/compute/ops/gpu/matmul/blas_plans.h"

#include <algorithm>
#include <array>
#include <compare>
#include <map>
#include <set>
#include <type_traits>
#include <utility>

#include "axonn/compute/ops/gpu/matmul/blas.cuh"
#include "axonn/compute/tensor/gpu/runtime.cuh"

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
using Algorithm = cublasLtMatmulAlgo_t;

cudaDataType_t type_of(DType dtype) {
  if (dtype == DType::f16) return CUDA_R_16F;
  return dtype == DType::bf16 ? CUDA_R_16BF : CUDA_R_32F;
}

/// What the heuristic knows of an operand.
struct Side {
  std::int64_t stride = 0, step = 0;
  std::uint32_t alignment = kVectorBytes;  // of its first row
  auto operator<=>(const Side&) const = default;
};

struct Key {
  MatmulShape shape;
  std::int64_t count = 1;
  Side out, a, b;
  Side beside = {};  // the auxiliary matrix of the epilogue
  int multiprocessors = 0;
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
          side(auxiliary_of(one), 0),
          kMultiprocessorTarget ? args.multiprocessors : 0};
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

/// Makes the layouts those of the product; ones that exist have its types and strides.
void set_layouts(Layouts& layouts, const Key& key) {
  const auto set = [&](Layout& layout, DType type, std::int64_t rows, std::int64_t cols,
                       const Side& side) {
    if (!layout) layout = layout_of(type, rows, cols, side, key.count);
    for (const auto& [what, count] : {std::pair{CUBLASLT_MATRIX_LAYOUT_ROWS, cols},
                                      std::pair{CUBLASLT_MATRIX_LAYOUT_COLS, rows}})
      check("cublasLtMatrixLayoutSetAttribute",
            cublasLtMatrixLayoutSetAttribute(layout.get(), what, &count, sizeof count));
  };
  const MatmulShape& s = key.shape;
  set(layouts.a, s.type, s.a_transposed ? s.K : s.M, s.a_transposed ? s.M : s.K, key.a);
  set(layouts.b, s.type, s.b_transposed ? s.N : s.K, s.b_transposed ? s.K : s.N, key.b);
  set(layouts.out, s.out_type, s.M, s.N, key.out);
}

/// The product with its rows, M, or K if a is transposed, rounded up to a multiple of kRows.
Key with_rounded_rows(Key key) {
  constexpr std::int64_t kRows = 64;  // asks for about as many algorithms as there are tile heights
  std::int64_t& rows = key.shape.a_transposed ? key.shape.K : key.shape.M;
  rows = (rows + kRows - 1) / kRows * kRows;
  return key;
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
  if (key.multiprocessors > 0) set(*kMultiprocessorTarget, std::int32_t{key.multiprocessors});
  // The heuristic needs an address for its alignment; each product sets the real one.
  const auto some_address = [](std::uint32_t alignment) {
    return reinterpret_cast<const void*>(std::uintptr_t{alignment});
  };
  if (shape.bias || shape.bias_gradient) {
    set(CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE, type_of(shape.out_type));
    set(CUBLASLT_MATMUL_DESC_BIAS_POINTER, some_address(kVectorBytes));
  }
  if (shape.gelu_input || shape.gelu_derivative) {
    set(CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD, std::max(key.beside.stride, shape.N));
    set(CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER, some_address(key.beside.alignment));
  }
  return owned;
}

constexpr int kMostFound = 8;
constexpr std::string_view kDefault = "default";
constexpr std::string_view kInParts = "in parts";  // the product, then its epilogue

/// An algorithm that set_way() chose.
struct Way {
  std::string name;
  Algorithm algorithm;  // the default's if the product cannot be computed in this way
};

/// How products of one Key are computed.
struct Plan {
  Operation operation;
  Layouts layouts = {};
  Layouts varying = {};  // of the latest product whose rows were rounded to these
  std::vector<Algorithm> found =
      {};                      // by the heuristic, the default first; empty only if may_be_left()
  std::vector<Way> ways = {};  // those that were wanted so far
  bool refused = false;        // the heuristic has algorithms, but a product was refused
};

}  // namespace

struct BlasPlans::State {
  State() {
    cublasLtHandle_t handle = nullptr;
    check("cublasLtCreate", cublasLtCreate(&handle));
    library.reset(handle);
  }

  BlasProblem problem_of(const Key& key, const Plan& plan, const Layouts& layouts) const {
    return {.library = library.get(),
            .operation = plan.operation.get(),
            .a = layouts.b.get(),
            .b = layouts.a.get(),
            .out = layouts.out.get(),
            .type = type_of(key.shape.type),
            .out_type = type_of(key.shape.out_type),
            .beta = key.shape.accumulate ? 1.0f : 0.0f};
  }

  /// Asks cuBLASLt's heuristic for algorithms.
  std::vector<Algorithm> ask(const Key& key, const Plan& plan) const {
    cublasLtMatmulPreference_t handle = nullptr;
    check("cublasLtMatmulPreferenceCreate", cublasLtMatmulPreferenceCreate(&handle));
    const Preference preference(handle);
    const auto prefer = [&](cublasLtMatmulPreferenceAttributes_t what, const auto& value) {
      check("cublasLtMatmulPreferenceSetAttribute",
            cublasLtMatmulPreferenceSetAttribute(handle, what, &value, sizeof value));
    };
    prefer(CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, static_cast<std::uint64_t>(kWorkspaceBytes));
    // Sums over parts of K are added in f32, not in out's type, as some algorithms do otherwise.
    prefer(CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK,
           static_cast<std::uint32_t>(CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE));
    prefer(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, key.b.alignment);
    prefer(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, key.a.alignment);
    prefer(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, key.out.alignment);
    prefer(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, key.out.alignment);
    const BlasProblem problem = problem_of(key, plan, plan.layouts);
    std::array<cublasLtMatmulHeuristicResult_t, kMostFound> results{};
    int count = 0;
    const cublasStatus_t status = cublasLtMatmulAlgoGetHeuristic(
        problem.library, problem.operation, problem.a, problem.b, problem.out, problem.out, handle,
        kMostFound, results.data(), &count);
    const bool optional = may_be_left(key.shape);
    if (optional && is_refusal(status)) return {};
    check("cublasLtMatmulAlgoGetHeuristic", status);
    std::vector<Algorithm> found;
    for (int i = 0; i < count; ++i)
      if (results[i].state == CUBLAS_STATUS_SUCCESS) found.push_back(results[i].algo);
    AXONN_CHECK(optional || !found.empty(), "matmul: ", kBlasName, " has no algorithm for ",
                to_string(key.shape));
    return found;
  }

  Plan& plan_of(const Key& key) {
    const auto known = plans.find(key);
    if (known != plans.end()) return known->second;
    if (plans.size() >= kMostPlans) plans.clear();
    Plan plan{.operation = operation_of(key)};
    set_layouts(plan.layouts, key);
    plan.found = ask(key, plan);
    return plans.emplace(key, std::move(plan)).first->second;
  }

  /// Whether cuBLASLt computes the product with all that may be left out, as far as is known.
  bool has(const Key& key) {
    const Plan& plan = plan_of(key);
    return !plan.found.empty() && !plan.refused;
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

  /// The algorithm of this name, if it computes the product.
  std::optional<Algorithm> algorithm_for(const Key& key, const Plan& plan,
                                         std::string_view name) const {
    const BlasProblem problem = problem_of(key, plan, plan.layouts);
    auto algorithm = algorithm_of(problem, name);
    if (algorithm && !computes(problem, *algorithm, kWorkspaceBytes)) algorithm.reset();
    return algorithm;
  }

  void remark(std::string text) {
    if (remarked.insert(text).second) remarks.push_back(std::move(text));
  }

  /// Computes products of this plan in the default way in place of `way`, from now on.
  void give_up(const Key& key, const Plan& plan, Way& way) {
    way.algorithm = plan.found.front();
    remark(concat(kBlasName, " does not compute ", to_string(key.shape), " as '", way.name,
                  "': it is computed in the default way; axonn tune chooses again"));
  }

  /// The way that set_way() has chosen for the product; null: the default.
  Way* way_of(const Key& key, Plan& plan) {
    const auto wanted = chosen.find(key.shape);
    if (wanted == chosen.end() || key.count != 1) return nullptr;
    const auto known = std::ranges::find(plan.ways, wanted->second, &Way::name);
    if (known != plan.ways.end()) return &*known;
    Way& way = plan.ways.emplace_back(Way{wanted->second, plan.found.front()});
    if (const auto algorithm = algorithm_for(key, plan, way.name))
      way.algorithm = *algorithm;
    else
      give_up(key, plan, way);
    return &way;
  }

  /// Enqueues the products with these layouts and this algorithm.
  cublasStatus_t multiply(const Lane& lane, const BatchedMatmul& args, const BlasProblem& problem,
                          const Algorithm& algorithm) const {
    const Matmul& one = args.one;
    const auto point = [&](cublasLtMatmulDescAttributes_t what, const void* to) {
      if (to)
        check("cublasLtMatmulDescSetAttribute",
              cublasLtMatmulDescSetAttribute(problem.operation, what, &to, sizeof to));
    };
    point(CUBLASLT_MATMUL_DESC_BIAS_POINTER,
          one.bias.data ? one.bias.data : one.bias_gradient.data);
    point(CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER, auxiliary_of(one).data);
    return cublasLtMatmul(problem.library, problem.operation, &args.scale, one.b.data, problem.a,
                          one.a.data, problem.b, &problem.beta, one.out.data, problem.out,
                          one.out.data, problem.out, &algorithm, lane.workspace, kWorkspaceBytes,
                          handle_of(lane.stream));
  }

  /// Enqueues the product with the algorithm of its rounded rows. Returns false if there is none,
  /// or if it does not compute these rows; later products do not depend on that.
  bool enqueue_as_rounded(const Lane& lane, const BatchedMatmul& args, const Key& key) {
    Plan& plan = plan_of(with_rounded_rows(key));
    if (plan.found.empty()) return false;
    set_layouts(plan.varying, key);
    const BlasProblem problem = problem_of(key, plan, plan.varying);
    Algorithm algorithm = plan.found.front();
    if (!computes(problem, algorithm, kWorkspaceBytes)) return false;
    const cublasStatus_t status = multiply(lane, args, problem, algorithm);
    if (is_refusal(status)) return false;
    check("cublasLtMatmul", status);
    return true;
  }

  bool enqueue(const Lane& lane, const BatchedMatmul& args) {
    const Key key = key_of(args);
    if (args.rows_vary && enqueue_as_rounded(lane, args, key)) return true;
    Plan& plan = plan_of(key);
    if (plan.found.empty() || plan.refused) return false;
    const BlasProblem problem = problem_of(key, plan, plan.layouts);
    Way* const way = args.rows_vary ? nullptr : way_of(key, plan);
    cublasStatus_t status =
        multiply(lane, args, problem, way ? way->algorithm : plan.found.front());
    if (way && is_refusal(status)) {
      give_up(key, plan, *way);
      status = multiply(lane, args, problem, way->algorithm);
    }
    if (may_be_left(key.shape) && is_refusal(status)) {
      plan.refused = true;
      remark(concat(kBlasName, " refuses ", to_string(key.shape), " (",
                    cublasLtGetStatusString(status),
                    "): it is computed without its epilogue, which follows"));
      return false;
    }
    const Matmul& one = args.one;
    AXONN_CHECK(status == CUBLAS_STATUS_SUCCESS,
                "matmul: ", function_name(*gpu_platform(), "cublasLtMatmul"), " refused ",
                to_string(key.shape), ", rows of out, a and b ", one.out.stride, ", ", one.a.stride,
                " and ", one.b.stride, " elements apart: ", cublasLtGetStatusString(status));
    return true;
  }

  /// Far more than a model has; a limit where the rows of experts need plans of their own.
  static constexpr std::size_t kMostPlans = 4096;

  Library library;
  std::map<Key, Plan> plans;
  std::map<MatmulShape, std::string> chosen;  // by set_way(), but for the default
  std::set<std::string> remarked;
  std::vector<std::string> remarks;
};

BlasPlans::BlasPlans() : state_(std::make_unique<State>()) {}
BlasPlans::~BlasPlans() = default;

bool BlasPlans::enqueue(const Lane& lane, const BatchedMatmul& args) {
  return state_->enqueue(lane, args);
}

bool BlasPlans::fuses(const Matmul& args) {
  if (!may_fuse(args)) return false;
  const auto way = state_->chosen.find(shape_of(args));
  if (way != state_->chosen.end() && way->second == kInParts) return false;
  return state_->has(key_of({.one = args}));
}

std::vector<std::string> BlasPlans::ways(const MatmulShape& shape) const {
  if (shape.flops() == 0) return {std::string(kDefault)};
  const Key key = state_->dense(shape);
  const Plan& plan = state_->plan_of(key);
  std::vector<std::string> names;
  for (const Algorithm& algorithm : plan.found) {
    std::string name = names.empty() ? std::string(kDefault) : algorithm_name(algorithm);
    const bool is_new =
        name != algorithm_name(plan.found.front()) && std::ranges::find(names, name) == names.end();
    if (names.empty() || (is_new && state_->algorithm_for(key, plan, name)))
      names.push_back(std::move(name));
  }
  if (has_epilogue(shape)) names.emplace_back(kInParts);
  return names;
}

bool BlasPlans::set_way(const MatmulShape& shape, std::string_view way) {
  if (shape.flops() == 0) return way == kDefault;
  const Key key = state_->dense(shape);
  const Plan& plan = state_->plan_of(key);
  const bool exists = way == kDefault   ? !plan.found.empty()
                      : way == kInParts ? has_epilogue(shape)
                                        : state_->algorithm_for(key, plan, way).has_value();
  if (!exists) return false;
  if (way == kDefault)
    state_->chosen.erase(key.shape);
  else
    state_->chosen[key.shape] = way;
  return true;
}

std::vector<std::string> BlasPlans::take_remarks() { return std::exchange(state_->remarks, {}); }

std::string BlasPlans::library() { return concat(kBlasName, ' ', blas_version()); }

}  // namespace axonn::cuda
