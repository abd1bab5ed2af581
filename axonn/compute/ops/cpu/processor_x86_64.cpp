#include <array>
#include <string>

#include <sys/syscall.h>
#include <unistd.h>

#include "axonn/compute/ops/cpu/instructions.h"
#include "axonn/compute/ops/cpu/matmul/onednn.h"
#include "axonn/compute/ops/cpu/processor.h"

namespace axonn::cpu {

namespace {

// What x86-64-v3 and v4 add, as far as compilers use it; processors with AVX2 have the rest.
bool has_avx2() {
  return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("bmi") &&
         __builtin_cpu_supports("bmi2") && __builtin_cpu_supports("fma");
}

bool has_avx512() {
  return has_avx2() && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
         __builtin_cpu_supports("avx512cd") && __builtin_cpu_supports("avx512dq") &&
         __builtin_cpu_supports("avx512vl");
}

bool has_avx512_bf16() {
  return has_avx512() && __builtin_cpu_supports("avx512bf16") &&
         __builtin_cpu_supports("avx512vnni");
}

/// Whether the processor has AMX, and Linux, which must be asked by each process, allows its use.
bool has_amx() {
  constexpr long kRequestPermission = 0x1023, kTiles = 18;  // of asm/prctl.h
  static const bool has = has_avx512_bf16() && __builtin_cpu_supports("amx-tile") &&
                          __builtin_cpu_supports("amx-bf16") &&
                          __builtin_cpu_supports("amx-int8") &&
                          ::syscall(SYS_arch_prctl, kRequestPermission, kTiles) == 0;
  return has;
}

constexpr std::array kSets{InstructionSet{"plain", [] { return true; }},
                           InstructionSet{"avx2", has_avx2}, InstructionSet{"avx512", has_avx512},
                           InstructionSet{"avx512-bf16", has_avx512_bf16},
                           InstructionSet{"amx", has_amx}};

/// oneDNN's names of the sets. Each contains the bits of those that it extends.
constexpr std::array kSetsOfLibrary{dnnl_cpu_isa_sse41, dnnl_cpu_isa_avx2, dnnl_cpu_isa_avx512_core,
                                    dnnl_cpu_isa_avx512_core_bf16, dnnl_cpu_isa_avx512_core_amx};

/// Whether oneDNN may use these instructions.
bool library_has(dnnl_cpu_isa_t isa) { return (dnnl_get_effective_cpu_isa() & isa) == isa; }

}  // namespace

std::span<const InstructionSet> processor_sets() { return kSets; }

bool library_allows(std::size_t set) { return set == 0 || library_has(kSetsOfLibrary[set]); }

bool limit_library(std::size_t set) {
  return dnnl_set_max_cpu_isa(kSetsOfLibrary[set]) == dnnl_success;
}

std::string library_instructions() { return onednn::name_of(dnnl::get_effective_cpu_isa()); }

bool library_multiplies_bf16() { return library_has(dnnl_cpu_isa_avx512_core_bf16); }

bool multiplies_bf16() { return library_multiplies_bf16(); }

}  // namespace axonn::cpu
