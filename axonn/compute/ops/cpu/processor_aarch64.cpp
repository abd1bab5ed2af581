#include <algorithm>
#include <array>
#include <string>

#include <asm/hwcap.h>
#include <sys/auxv.h>
#include <sys/prctl.h>

#include "axonn/compute/ops/cpu/instructions.h"
#include "axonn/compute/ops/cpu/processor.h"

namespace axonn::cpu {

namespace {

bool has_neon_bf16() {
  return (::getauxval(AT_HWCAP2) & HWCAP2_BF16) && (::getauxval(AT_HWCAP) & HWCAP_ASIMDDP);
}

/// Whether SVE's registers have so many bytes, in this thread and in those that it starts.
bool has_sve(int bytes) {
  if ((::getauxval(AT_HWCAP) & HWCAP_SVE) == 0) return false;
  const int length = ::prctl(PR_SVE_GET_VL);
  return length > 0 && (length & PR_SVE_VL_LEN_MASK) == bytes;
}

bool has_sve256_bf16() { return has_sve(32) && ::getauxval(AT_HWCAP2) & HWCAP2_SVEBF16; }

// A processor has at most one of those of SVE. With registers of 128 bits NEON is as wide.
constexpr std::array kSets{InstructionSet{"neon", [] { return true; }},
                           InstructionSet{"neon-bf16", has_neon_bf16},
                           InstructionSet{"sve512", [] { return has_sve(64); }},
                           InstructionSet{"sve256-bf16", has_sve256_bf16}};

}  // namespace

std::span<const InstructionSet> processor_sets() { return kSets; }

// oneDNN for ARM is compiled for any of these processors; it makes no code for better ones in
// products, and cannot be limited.
bool library_allows(std::size_t) { return true; }

bool limit_library(std::size_t) { return true; }

std::string library_instructions() { return "NEON"; }

bool library_multiplies_bf16() { return false; }

bool multiplies_bf16() {
  const std::string_view kernels = kernel_instructions();
  const bool one_of_sets = std::ranges::count(kSets, kernels, &InstructionSet::name) > 0;
  return one_of_sets ? kernels.ends_with("bf16") : has_neon_bf16();
}

}  // namespace axonn::cpu
