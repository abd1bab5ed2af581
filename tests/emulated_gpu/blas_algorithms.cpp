#include <algorithm>
#include <bit>
#include <cstring>
#include <vector>

#include "tests/emulated_gpu/blas.h"
#include "tests/emulated_gpu/platform.h"

// The algorithms of the emulated cuBLASLt, and their configuration.
//
// Algorithm 1 needs vectors; its splits of K in two, whose sums are added in f32 or in D's type,
// are other configurations of it. Where sums in D's type are allowed they are preferred. Algorithm
// 7 computes any operands. Other numbers, and other tiles, are those of another GPU, which
// AXONN_EMULATED_ALGORITHMS="of another GPU" emulates.

namespace emulated_gpu {

namespace {

constexpr std::uint32_t kVectors = 1, kElements = 7;

std::uint32_t tile() { return is_set("AXONN_EMULATED_ALGORITHMS", "of another GPU") ? 21 : 20; }

std::array<std::uint32_t, 9> configuration_of(Way way) {
  std::array<std::uint32_t, 9> all{};
  all[CUBLASLT_ALGO_CONFIG_ID] = way == Way::elements ? kElements : kVectors;
  all[CUBLASLT_ALGO_CONFIG_TILE_ID] = tile();
  all[CUBLASLT_ALGO_CONFIG_SPLITK_NUM] = is_split(way) ? 2 : 1;
  all[CUBLASLT_ALGO_CONFIG_REDUCTION_SCHEME] =
      way == Way::split         ? CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE
      : way == Way::rough_split ? CUBLASLT_REDUCTION_SCHEME_OUTPUT_TYPE
                                : CUBLASLT_REDUCTION_SCHEME_NONE;
  all[CUBLASLT_ALGO_CONFIG_STAGES_ID] = way == Way::elements ? 0 : 15;
  all[CUBLASLT_ALGO_CONFIG_CLUSTER_SHAPE_ID] = way == Way::elements ? 0 : 3;
  return all;
}

/// Of all but the pointers.
std::uint64_t hash_of(const Problem& p) {
  const Operation& o = p.operation;
  std::uint64_t sum = 0;
  const auto add = [&](std::int64_t value) {
    sum = (sum ^ static_cast<std::uint64_t>(value)) * 0x100000001b3 + 1;
  };
  for (const std::int64_t value :
       {std::int64_t{o.a}, std::int64_t{o.b}, std::int64_t{o.epilogue}, std::int64_t{o.bias_type},
        o.aux_step, std::int64_t{o.multiprocessors}})
    add(value);
  for (const Layout& layout : {p.a, p.b, p.c, p.d})
    for (const std::int64_t value : {std::int64_t{layout.type}, layout.rows, layout.cols,
                                     layout.step, std::int64_t{layout.count}, layout.batch_step})
      add(value);
  return sum;
}

/// Whether every row and every matrix of a batch begins at a vector if the first one does.
bool has_vectors(const Layout& x) {
  return x.step * bytes_of(x.type) % kVectorBytes == 0 &&
         (x.count == 1 || x.batch_step * bytes_of(x.type) % kVectorBytes == 0);
}

/// Whether the way computes the product if its operands are aligned.
bool suits(const Problem& p, Way way) {
  if (way == Way::elements) return true;
  if (is_split(way) && (p.d.count != 1 || p.k() < 2)) return false;
  return has_vectors(p.a) && has_vectors(p.b) && has_vectors(p.c) && has_vectors(p.d);
}

/// The algorithms for operands of the alignments that are told, the fastest first.
std::vector<Algorithm> algorithms_for(const Problem& p, const Preference& preference) {
  const Operation& o = p.operation;
  const std::array<std::uint64_t, 6> told = {preference.a,
                                             preference.b,
                                             preference.c,
                                             preference.d,
                                             p.has_bias() ? alignment_of(o.bias) : kMostAlignment,
                                             p.has_aux() ? alignment_of(o.aux) : kMostAlignment};
  Algorithm one{.problem = hash_of(p)};
  for (std::size_t i = 0; i < told.size(); ++i)
    one.aligned[i] = static_cast<std::uint16_t>(std::min(told[i], kMostAlignment));
  const std::array types = {p.a.type, p.b.type, p.c.type, p.d.type};
  for (std::size_t i = 0; i < types.size(); ++i)
    if (one.aligned[i] < bytes_of(types[i])) return {};
  if (p.has_aux() && told[5] < kVectorBytes) return {};
  const bool aligned =
      std::ranges::all_of(told, [](std::uint64_t bytes) { return bytes >= kVectorBytes; });
  std::vector<Algorithm> found;
  const bool rough = preference.reductions & CUBLASLT_REDUCTION_SCHEME_OUTPUT_TYPE;
  for (const Way way : {Way::vectors, rough ? Way::rough_split : Way::split, Way::elements}) {
    if (!suits(p, way) || workspace_of(p, way) > preference.workspace) continue;
    if (way != Way::elements && !aligned) continue;
    found.emplace_back(one).configuration = configuration_of(way);
  }
  if (found.size() == 3 && p.k() >= p.m()) std::swap(found[0], found[1]);
  return found;
}

bool are_alive(const char* function, std::initializer_list<const void*> objects) {
  if (std::ranges::find(objects, nullptr) != objects.end()) return false;
  for (const void* object : objects) check_alive(function, object);
  return true;
}

}  // namespace

std::optional<Way> Algorithm::way() const {
  for (const Way way : {Way::vectors, Way::split, Way::rough_split, Way::elements})
    if (configuration == configuration_of(way)) return way;
  return {};
}

std::uint64_t Algorithm::needs(std::size_t operand) const {
  const std::uint64_t vectors = way() == Way::elements ? 1 : kVectorBytes;
  return std::max<std::uint64_t>(aligned[operand], vectors);
}

std::uint64_t workspace_of(const Problem& p, Way way) {
  return is_split(way) ? static_cast<std::uint64_t>(2 * p.m() * p.n()) * sizeof(float) : 0;
}

cublasStatus_t check_algorithm(const Problem& p, const Algorithm& algorithm) {
  const auto way = algorithm.way();
  if (!way || !suits(p, *way)) return CUBLAS_STATUS_NOT_SUPPORTED;
  const bool for_this = algorithm.problem == 0 || algorithm.problem == hash_of(p);
  return for_this || is_set("AXONN_EMULATED_ALGORITHMS", "for any size")
             ? CUBLAS_STATUS_SUCCESS
             : CUBLAS_STATUS_INVALID_VALUE;
}

}  // namespace emulated_gpu

using namespace emulated_gpu;

cublasStatus_t cublasLtMatmulAlgoGetHeuristic(cublasLtHandle_t handle,
                                              cublasLtMatmulDesc_t operation,
                                              cublasLtMatrixLayout_t a, cublasLtMatrixLayout_t b,
                                              cublasLtMatrixLayout_t c, cublasLtMatrixLayout_t d,
                                              cublasLtMatmulPreference_t preference, int most,
                                              cublasLtMatmulHeuristicResult_t* found, int* count) {
  constexpr auto kFunction = "cublasLtMatmulAlgoGetHeuristic";
  const Locked locked;
  if (!are_alive(kFunction, {handle, operation, a, b, c, d, preference}) || most <= 0 || !found ||
      !count)
    return CUBLAS_STATUS_INVALID_VALUE;
  *count = 0;
  if (injected(kFunction)) return CUBLAS_STATUS_NOT_SUPPORTED;
  const Problem p{*operation, *a, *b, *c, *d};
  if (const auto status = check_problem(p); status != CUBLAS_STATUS_SUCCESS) return status;
  if (is_set(p.has_epilogue() ? "AXONN_EMULATED_EPILOGUES" : "AXONN_EMULATED_BIAS", "unknown") &&
      (p.has_epilogue() || p.has_bias()))
    return CUBLAS_STATUS_NOT_SUPPORTED;
  for (const Algorithm& algorithm : algorithms_for(p, *preference)) {
    if (*count == most) break;
    found[(*count)++] = {.algo = std::bit_cast<cublasLtMatmulAlgo_t>(algorithm),
                         .workspaceSize = workspace_of(p, *algorithm.way()),
                         .state = CUBLAS_STATUS_SUCCESS,
                         .wavesCount = 1,
                         .reserved = {}};
  }
  return *count > 0 ? CUBLAS_STATUS_SUCCESS : CUBLAS_STATUS_NOT_SUPPORTED;
}

/// Documented: invalid for a number out of range, not supported if the types do not fit.
cublasStatus_t cublasLtMatmulAlgoInit(cublasLtHandle_t handle, cublasComputeType_t, cudaDataType_t,
                                      cudaDataType_t a, cudaDataType_t b, cudaDataType_t c,
                                      cudaDataType_t d, int id, cublasLtMatmulAlgo_t* algo) {
  constexpr auto kFunction = "cublasLtMatmulAlgoInit";
  const Locked locked;
  if (!are_alive(kFunction, {handle}) || !algo || id < 0) return CUBLAS_STATUS_INVALID_VALUE;
  if (injected(kFunction) || a != b || c != d) return CUBLAS_STATUS_NOT_SUPPORTED;
  Algorithm algorithm;
  algorithm.configuration[CUBLASLT_ALGO_CONFIG_ID] = static_cast<std::uint32_t>(id);
  algorithm.configuration[CUBLASLT_ALGO_CONFIG_SPLITK_NUM] = 1;
  *algo = std::bit_cast<cublasLtMatmulAlgo_t>(algorithm);
  return CUBLAS_STATUS_SUCCESS;
}

/// Documented: alignments are not checked.
cublasStatus_t cublasLtMatmulAlgoCheck(cublasLtHandle_t handle, cublasLtMatmulDesc_t operation,
                                       cublasLtMatrixLayout_t a, cublasLtMatrixLayout_t b,
                                       cublasLtMatrixLayout_t c, cublasLtMatrixLayout_t d,
                                       const cublasLtMatmulAlgo_t* algo,
                                       cublasLtMatmulHeuristicResult_t* result) {
  constexpr auto kFunction = "cublasLtMatmulAlgoCheck";
  const Locked locked;
  if (!are_alive(kFunction, {handle, operation, a, b, c, d}) || !algo || !result)
    return CUBLAS_STATUS_INVALID_VALUE;
  if (injected(kFunction)) return CUBLAS_STATUS_NOT_SUPPORTED;
  const Problem p{*operation, *a, *b, *c, *d};
  if (const auto status = check_problem(p); status != CUBLAS_STATUS_SUCCESS) return status;
  const auto algorithm = std::bit_cast<Algorithm>(*algo);
  if (const auto status = check_algorithm(p, algorithm); status != CUBLAS_STATUS_SUCCESS)
    return status;
  result->workspaceSize = workspace_of(p, *algorithm.way());
  return CUBLAS_STATUS_SUCCESS;
}

namespace {

/// Documented: 16 bits for the inner shape and the cluster, else 32.
std::size_t bytes_of(cublasLtMatmulAlgoConfigAttributes_t what) {
  return what >= CUBLASLT_ALGO_CONFIG_INNER_SHAPE_ID ? 2 : 4;
}

}  // namespace

/// Documented: the number of the algorithm is for reading only.
cublasStatus_t cublasLtMatmulAlgoConfigSetAttribute(cublasLtMatmulAlgo_t* algo,
                                                    cublasLtMatmulAlgoConfigAttributes_t what,
                                                    const void* value, std::size_t bytes) {
  const Locked locked;
  if (!algo || !value || bytes != bytes_of(what) || what == CUBLASLT_ALGO_CONFIG_ID)
    return CUBLAS_STATUS_INVALID_VALUE;
  if (injected("cublasLtMatmulAlgoConfigSetAttribute")) return CUBLAS_STATUS_INVALID_VALUE;
  auto algorithm = std::bit_cast<Algorithm>(*algo);
  std::memcpy(&algorithm.configuration[what], value, bytes);
  *algo = std::bit_cast<cublasLtMatmulAlgo_t>(algorithm);
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulAlgoConfigGetAttribute(const cublasLtMatmulAlgo_t* algo,
                                                    cublasLtMatmulAlgoConfigAttributes_t what,
                                                    void* value, std::size_t bytes,
                                                    std::size_t* written) {
  const Locked locked;
  if (!algo || !value || bytes != bytes_of(what)) return CUBLAS_STATUS_INVALID_VALUE;
  if (injected("cublasLtMatmulAlgoConfigGetAttribute")) return CUBLAS_STATUS_INVALID_VALUE;
  std::memcpy(value, &std::bit_cast<Algorithm>(*algo).configuration[what], bytes);
  if (written) *written = bytes;
  return CUBLAS_STATUS_SUCCESS;
}
