#include "tests/emulated_gpu/blas.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstring>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <string_view>
#include <vector>

#include "tests/emulated_gpu/platform.h"

// cuBLASLt: products by plain loops, with the library's rules.
//
// "Documented" below is the manual (docs.nvidia.com/cuda/cublas, "Using the cuBLASLt API") or the
// comments of its header cublasLt.h, both of CUDA 13. "Measured" is what the library of CUDA 13
// answers, on a machine without a GPU: values of attributes and layouts are not checked where they
// are set, but where they are used.
//
// The variables of the environment are in README.md.

using namespace emulated_gpu;

namespace {

std::set<const void*>& living() {
  static std::set<const void*> all;
  return all;
}

std::map<int, std::int64_t> targets;  // products by the multiprocessors that they are to use

template <typename T>
cublasStatus_t create(const char* function, T** object, const T& value) {
  const Locked locked;
  if (!object) return CUBLAS_STATUS_INVALID_VALUE;
  if (injected(function)) return CUBLAS_STATUS_ALLOC_FAILED;
  *object = new T(value);
  living().insert(*object);
  return CUBLAS_STATUS_SUCCESS;
}

template <typename T>
cublasStatus_t destroy(const char* function, T* object) {
  const Locked locked;
  const bool fails = injected(function);
  if (!object) return CUBLAS_STATUS_SUCCESS;  // measured
  check_alive(function, object);
  living().erase(object);
  delete object;
  return fails ? CUBLAS_STATUS_INVALID_VALUE : CUBLAS_STATUS_SUCCESS;
}

/// Documented: invalid if the value is null or of another size than the attribute.
template <typename T>
cublasStatus_t set(T& attribute, const void* value, std::size_t bytes) {
  if (!value || bytes != sizeof attribute) return CUBLAS_STATUS_INVALID_VALUE;
  std::memcpy(&attribute, value, bytes);
  return CUBLAS_STATUS_SUCCESS;
}

/// Calls what sets one of the object's attributes.
template <typename T, typename Set>
cublasStatus_t set_attribute(const char* function, T* object, const Set& set_it) {
  const Locked locked;
  if (!object) return CUBLAS_STATUS_INVALID_VALUE;
  check_alive(function, object);
  return injected(function) ? CUBLAS_STATUS_INVALID_VALUE : set_it();
}

/// Documented: sizes are below 2³¹ and positive, and columns do not overlap.
cublasStatus_t check_layout(const Layout& x) {
  if (x.type != CUDA_R_32F && x.type != CUDA_R_16BF && x.type != CUDA_R_16F)
    return CUBLAS_STATUS_NOT_SUPPORTED;
  if (x.rows <= 0 || x.cols <= 0 || x.step < x.rows || x.count < 1)
    return CUBLAS_STATUS_INVALID_VALUE;
  return std::max(x.rows, x.cols) > INT32_MAX ? CUBLAS_STATUS_NOT_SUPPORTED : CUBLAS_STATUS_SUCCESS;
}

/// Whether the matrices of a batch are apart: one after the other, or side by side.
bool are_apart(const Layout& x) {
  const std::int64_t step = std::abs(x.batch_step);
  return x.count == 1 || step >= (x.cols - 1) * x.step + x.rows ||
         (step >= x.rows && (x.count - 1) * step + x.rows <= x.step);
}

}  // namespace

void emulated_gpu::check_alive(const char* function, const void* object) {
  if (!living().contains(object))
    violation(std::string(function) + ": a handle or descriptor that was destroyed or never was");
}

/// Documented types: f32, or bf16 or f16 with results of that type or f32, all with factors and
/// sums in f32; a bias of D's type. An auxiliary matrix of GELU has a step that is divisible by 8
/// and not less than D's rows.
cublasStatus_t emulated_gpu::check_problem(const Problem& p) {
  for (const Layout& x : {p.a, p.b, p.c, p.d})
    if (const auto status = check_layout(x); status != CUBLAS_STATUS_SUCCESS) return status;
  const Operation& o = p.operation;
  for (const auto op : {o.a, o.b})
    if (op != CUBLAS_OP_N && op != CUBLAS_OP_T) return CUBLAS_STATUS_INVALID_VALUE;
  const bool fits = (o.a == CUBLAS_OP_N ? p.a.rows : p.a.cols) == p.m() &&
                    (o.b == CUBLAS_OP_N ? p.b.rows : p.b.cols) == p.k() &&
                    (o.b == CUBLAS_OP_N ? p.b.cols : p.b.rows) == p.n() && p.c.rows == p.m() &&
                    p.c.cols == p.n();
  const bool batched_alike =
      p.a.count == p.d.count && p.b.count == p.d.count && p.c.count == p.d.count;
  if (!fits || !batched_alike || !are_apart(p.d)) return CUBLAS_STATUS_INVALID_VALUE;
  if (o.compute != CUBLAS_COMPUTE_32F || o.scale != CUDA_R_32F || p.a.type != p.b.type ||
      p.c.type != p.d.type || (p.d.type != p.a.type && p.d.type != CUDA_R_32F))
    return CUBLAS_STATUS_NOT_SUPPORTED;
  switch (o.epilogue) {
    case CUBLASLT_EPILOGUE_DEFAULT:
    case CUBLASLT_EPILOGUE_BIAS:
    case CUBLASLT_EPILOGUE_GELU:
    case CUBLASLT_EPILOGUE_GELU_BIAS:
    case CUBLASLT_EPILOGUE_GELU_AUX:
    case CUBLASLT_EPILOGUE_GELU_AUX_BIAS:
    case CUBLASLT_EPILOGUE_DGELU:
    case CUBLASLT_EPILOGUE_BGRADB:
      break;
    default:
      return CUBLAS_STATUS_NOT_SUPPORTED;
  }
  // Strides of a batch's biases and auxiliary matrices are attributes that are not emulated.
  if (p.d.count > 1 && (p.has_bias() || p.has_aux())) return CUBLAS_STATUS_NOT_SUPPORTED;
  if (p.has_bias()) {
    if (!o.bias || alignment_of(o.bias) < static_cast<std::uint64_t>(bytes_of(p.d.type)))
      return CUBLAS_STATUS_INVALID_VALUE;
    if (o.bias_type != -1 && o.bias_type != p.d.type) return CUBLAS_STATUS_NOT_SUPPORTED;
  }
  if (p.has_aux() && (!o.aux || o.aux_step % 8 != 0 || o.aux_step < p.m()))
    return CUBLAS_STATUS_INVALID_VALUE;
  return CUBLAS_STATUS_SUCCESS;
}

namespace {

/// Whether [a, a + a_bytes) and [b, b + b_bytes) have bytes in common.
bool overlap(const void* a, std::int64_t a_bytes, const void* b, std::int64_t b_bytes) {
  const auto* a_begin = static_cast<const char*>(a);
  const auto* b_begin = static_cast<const char*>(b);
  return std::less()(a_begin, b_begin + b_bytes) && std::less()(b_begin, a_begin + a_bytes);
}

/// A result in memory that is read is not documented to work. Seen only of matrices without gaps.
void check_overlap(const Product& product) {
  const auto bytes = [](const Layout& x) { return x.step * x.cols * bytes_of(x.type); };
  const auto dense = [](const Layout& x) { return x.step == x.rows && x.count == 1; };
  const auto check = [&](const void* to, std::int64_t to_bytes, const char* what) {
    const Problem& p = product.p;
    if ((dense(p.a) && overlap(to, to_bytes, product.a, bytes(p.a))) ||
        (dense(p.b) && overlap(to, to_bytes, product.b, bytes(p.b))))
      violation(std::string("cublasLtMatmul: ") + what + " overlaps A or B");
  };
  const Problem& p = product.p;
  if (dense(p.d)) check(product.d, bytes(p.d), "D");
  const auto size = static_cast<std::int64_t>(workspace_of(p, product.way));
  if (size == 0) return;
  check(product.workspace, size, "the workspace");
  if (dense(p.d) && overlap(product.workspace, size, product.d, bytes(p.d)))
    violation("cublasLtMatmul: the workspace overlaps D");
}

/// Rules of cublasLtMatmul() on addresses.
cublasStatus_t check_addresses(const Product& product, const Algorithm& algorithm,
                               std::uint64_t workspace_bytes) {
  const Problem& p = product.p;
  const std::array<const void*, 6> operands = {product.a,
                                               product.b,
                                               product.c,
                                               product.d,
                                               p.has_bias() ? p.operation.bias : nullptr,
                                               p.has_aux() ? p.operation.aux : nullptr};
  for (std::size_t i = 0; i < operands.size(); ++i)
    if (alignment_of(operands[i]) < algorithm.needs(i)) return CUBLAS_STATUS_INVALID_VALUE;
  if (product.c == product.d && p.c != p.d) return CUBLAS_STATUS_INVALID_VALUE;
  const std::uint64_t needed = workspace_of(p, product.way);
  if (needed > workspace_bytes || (needed > 0 && !product.workspace) ||
      alignment_of(product.workspace) < kVectorBytes)
    return CUBLAS_STATUS_INVALID_VALUE;
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t start(const Product& product, cudaStream_t stream) {
  const Problem& p = product.p;
  const std::string name = "cublasLtMatmul " + std::to_string(p.m()) + 'x' + std::to_string(p.n()) +
                           'x' + std::to_string(p.k());
  cudaError_t status = cudaSuccess;
  if (is_split(product.way)) {
    status = enqueue(stream, {name, [product] { product.multiply_halves(); }});
    if (status == cudaSuccess)
      status = enqueue(stream, {name + ", the second half", [product] { product.add_halves(); }});
  } else {
    status = enqueue(stream, {name, [product] { product.compute(); }});
  }
  return status == cudaSuccess ? CUBLAS_STATUS_SUCCESS : CUBLAS_STATUS_EXECUTION_FAILED;
}

}  // namespace

std::size_t cublasLtGetVersion() { return 130100; }

const char* cublasLtGetStatusString(cublasStatus_t status) {
  switch (status) {  // measured
    case CUBLAS_STATUS_SUCCESS:
      return "success";
    case CUBLAS_STATUS_NOT_INITIALIZED:
      return "the library was not initialized";
    case CUBLAS_STATUS_ALLOC_FAILED:
      return "the resource allocation failed";
    case CUBLAS_STATUS_INVALID_VALUE:
      return "an unsupported value or parameter was passed to the function";
    case CUBLAS_STATUS_EXECUTION_FAILED:
      return "the function failed to launch on the GPU";
    case CUBLAS_STATUS_NOT_SUPPORTED:
      return "the requested functionality is not supported";
  }
  return "<unknown>";
}

/// Documented: the handle belongs to the device that is current.
cublasStatus_t cublasLtCreate(cublasLtHandle_t* handle) {
  return create("cublasLtCreate", handle, cublasLtContext{current_device()});
}

cublasStatus_t cublasLtDestroy(cublasLtHandle_t handle) {
  return handle ? destroy("cublasLtDestroy", handle) : CUBLAS_STATUS_INVALID_VALUE;  // measured
}

cublasStatus_t cublasLtMatmulDescCreate(cublasLtMatmulDesc_t* operation,
                                        cublasComputeType_t compute, cudaDataType_t scale) {
  return create("cublasLtMatmulDescCreate", operation,
                Operation{.compute = compute, .scale = scale});
}

cublasStatus_t cublasLtMatmulDescDestroy(cublasLtMatmulDesc_t operation) {
  return destroy("cublasLtMatmulDescDestroy", operation);
}

cublasStatus_t cublasLtMatmulDescSetAttribute(cublasLtMatmulDesc_t operation,
                                              cublasLtMatmulDescAttributes_t what,
                                              const void* value, std::size_t bytes) {
  return set_attribute("cublasLtMatmulDescSetAttribute", operation, [&] {
    switch (what) {
      case CUBLASLT_MATMUL_DESC_TRANSA:
        return set(operation->a, value, bytes);
      case CUBLASLT_MATMUL_DESC_TRANSB:
        return set(operation->b, value, bytes);
      case CUBLASLT_MATMUL_DESC_EPILOGUE:
        return set(operation->epilogue, value, bytes);
      case CUBLASLT_MATMUL_DESC_BIAS_POINTER:
        return set(operation->bias, value, bytes);
      case CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE:
        return set(operation->bias_type, value, bytes);
      case CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER:
        return set(operation->aux, value, bytes);
      case CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD:
        return set(operation->aux_step, value, bytes);
      case CUBLASLT_MATMUL_DESC_SM_COUNT_TARGET:
        return set(operation->multiprocessors, value, bytes);
    }
    return CUBLAS_STATUS_INVALID_VALUE;
  });
}

cublasStatus_t cublasLtMatrixLayoutCreate(cublasLtMatrixLayout_t* layout, cudaDataType_t type,
                                          std::uint64_t rows, std::uint64_t cols,
                                          std::int64_t step) {
  return create("cublasLtMatrixLayoutCreate", layout,
                Layout{.type = type,
                       .rows = static_cast<std::int64_t>(rows),
                       .cols = static_cast<std::int64_t>(cols),
                       .step = step});
}

cublasStatus_t cublasLtMatrixLayoutDestroy(cublasLtMatrixLayout_t layout) {
  return destroy("cublasLtMatrixLayoutDestroy", layout);
}

cublasStatus_t cublasLtMatrixLayoutSetAttribute(cublasLtMatrixLayout_t layout,
                                                cublasLtMatrixLayoutAttribute_t what,
                                                const void* value, std::size_t bytes) {
  return set_attribute("cublasLtMatrixLayoutSetAttribute", layout, [&] {
    switch (what) {
      case CUBLASLT_MATRIX_LAYOUT_ROWS:
        return set(layout->rows, value, bytes);
      case CUBLASLT_MATRIX_LAYOUT_COLS:
        return set(layout->cols, value, bytes);
      case CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT:
        return set(layout->count, value, bytes);
      case CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET:
        return set(layout->batch_step, value, bytes);
    }
    return CUBLAS_STATUS_INVALID_VALUE;
  });
}

cublasStatus_t cublasLtMatmulPreferenceCreate(cublasLtMatmulPreference_t* preference) {
  return create("cublasLtMatmulPreferenceCreate", preference, Preference{});
}

cublasStatus_t cublasLtMatmulPreferenceDestroy(cublasLtMatmulPreference_t preference) {
  return destroy("cublasLtMatmulPreferenceDestroy", preference);
}

cublasStatus_t cublasLtMatmulPreferenceSetAttribute(cublasLtMatmulPreference_t preference,
                                                    cublasLtMatmulPreferenceAttributes_t what,
                                                    const void* value, std::size_t bytes) {
  return set_attribute("cublasLtMatmulPreferenceSetAttribute", preference, [&] {
    switch (what) {
      case CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES:
        return set(preference->workspace, value, bytes);
      case CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK:
        return set(preference->reductions, value, bytes);
      case CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES:
        return set(preference->a, value, bytes);
      case CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES:
        return set(preference->b, value, bytes);
      case CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES:
        return set(preference->c, value, bytes);
      case CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES:
        return set(preference->d, value, bytes);
    }
    return CUBLAS_STATUS_INVALID_VALUE;
  });
}

/// Documented: invalid if a pointer is null, the workspace not aligned to 16 bytes or less than
/// the algorithm needs, or the algorithm is not one for these descriptors. A null algorithm, which
/// makes the library ask its heuristic, is not emulated.
std::map<int, std::int64_t> emulated_gpu::products_by_multiprocessors() {
  const Locked locked;
  return targets;
}

cublasStatus_t cublasLtMatmul(cublasLtHandle_t handle, cublasLtMatmulDesc_t operation,
                              const void* alpha, const void* a, cublasLtMatrixLayout_t a_layout,
                              const void* b, cublasLtMatrixLayout_t b_layout, const void* beta,
                              const void* c, cublasLtMatrixLayout_t c_layout, void* d,
                              cublasLtMatrixLayout_t d_layout, const cublasLtMatmulAlgo_t* algo,
                              void* workspace, std::size_t workspace_bytes, cudaStream_t stream) {
  constexpr auto kFunction = "cublasLtMatmul";
  const Locked locked;
  if (!handle || !operation || !alpha || !a || !a_layout || !b || !b_layout || !beta || !c ||
      !c_layout || !d || !d_layout || !algo)
    return CUBLAS_STATUS_INVALID_VALUE;
  for (const void* x : {static_cast<const void*>(handle), static_cast<const void*>(operation),
                        static_cast<const void*>(a_layout), static_cast<const void*>(b_layout),
                        static_cast<const void*>(c_layout), static_cast<const void*>(d_layout)})
    check_alive(kFunction, x);
  if (injected(kFunction)) return CUBLAS_STATUS_NOT_SUPPORTED;
  const int current = current_device();
  if (handle->device != current || handle->device != device_of(stream))
    violation("cublasLtMatmul: handle of GPU " + std::to_string(handle->device) +
              ", stream of GPU " + std::to_string(device_of(stream)) + ", GPU " +
              std::to_string(current) + " is current");

  const Problem p{*operation, *a_layout, *b_layout, *c_layout, *d_layout};
  if (const auto status = check_problem(p); status != CUBLAS_STATUS_SUCCESS) return status;
  ++targets[operation->multiprocessors];
  const auto algorithm = std::bit_cast<Algorithm>(*algo);
  if (check_algorithm(p, algorithm) != CUBLAS_STATUS_SUCCESS) return CUBLAS_STATUS_INVALID_VALUE;
  if (is_set(p.has_epilogue() ? "AXONN_EMULATED_EPILOGUES" : "AXONN_EMULATED_BIAS", "refused") &&
      (p.has_epilogue() || p.has_bias()))
    return CUBLAS_STATUS_NOT_SUPPORTED;
  Product product{.p = p,
                  .way = *algorithm.way(),
                  .a = a,
                  .b = b,
                  .c = c,
                  .d = d,
                  .workspace = static_cast<float*>(workspace)};
  if (const auto status = check_addresses(product, algorithm, workspace_bytes);
      status != CUBLAS_STATUS_SUCCESS)
    return status;
  std::memcpy(&product.alpha, alpha, sizeof product.alpha);
  std::memcpy(&product.beta, beta, sizeof product.beta);
  check_overlap(product);
  return start(product, stream);
}
