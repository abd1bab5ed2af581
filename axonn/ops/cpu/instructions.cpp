#include "axonn/ops/cpu/instructions.h"

#include <algorithm>
#include <array>

#include <oneapi/dnnl/dnnl.h>

#include "axonn/base/check.h"

namespace axonn::cpu {

namespace {

constexpr std::array<std::string_view, 3> kLimits{"avx2", "avx512", "avx512-bf16"};
constexpr std::array kLimitValues{dnnl_cpu_isa_avx2, dnnl_cpu_isa_avx512_core,
                                  dnnl_cpu_isa_avx512_core_bf16};

}  // namespace

std::string library_version() {
  const dnnl_version_t* version = dnnl_version();
  return concat(version->major, '.', version->minor, '.', version->patch);
}

std::string library_instructions() {
  switch (dnnl_get_effective_cpu_isa()) {
    case dnnl_cpu_isa_sse41:
      return "SSE4.1";
    case dnnl_cpu_isa_avx:
      return "AVX";
    case dnnl_cpu_isa_avx2:
      return "AVX2";
    case dnnl_cpu_isa_avx2_vnni:
      return "AVX2 with VNNI";
    case dnnl_cpu_isa_avx512_core:
      return "AVX-512";
    case dnnl_cpu_isa_avx512_core_vnni:
      return "AVX-512 with VNNI";
    case dnnl_cpu_isa_avx512_core_bf16:
      return "AVX-512 with bf16 products";
    case dnnl_cpu_isa_avx512_core_amx:
      return "AVX-512 with AMX tiles (bf16, int8)";
    default:
      return "the compiler's instructions";
  }
}

bool library_multiplies_bf16() {
  const int isa = dnnl_get_effective_cpu_isa(), bf16 = dnnl_cpu_isa_avx512_core_bf16;
  return (isa & bf16) == bf16;  // each set of instructions contains the bits of those it extends
}

std::span<const std::string_view> instruction_limits() { return kLimits; }

void limit_library_instructions(std::string_view name) {
  const auto at = std::ranges::find(kLimits, name) - kLimits.begin();
  AXONN_CHECK(at < std::ssize(kLimits), "limit_library_instructions: '", name,
              "' is not one of avx2, avx512, avx512-bf16");
  AXONN_CHECK(dnnl_set_max_cpu_isa(kLimitValues[at]) == dnnl_success,
              "limit_library_instructions: oneDNN is in use already, so its instructions can no "
              "longer be limited");
}

}  // namespace axonn::cpu
