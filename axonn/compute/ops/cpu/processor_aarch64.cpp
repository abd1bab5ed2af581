#include <array>
#include <string>

#include <asm/hwcap.h>
#include <sys/auxv.h>

#include "axonn/compute/ops/cpu/instructions.h"
#include "axonn/compute/ops/cpu/processor.h"

namespace axonn::cpu {

namespace {

bool has_neon_bf16() { return ::getauxval(AT_HWCAP2) & HWCAP2_BF16; }

constexpr std::array kSets{InstructionSet{"neon", [] { return true; }},
                           InstructionSet{"neon-bf16", has_neon_bf16}};

}  // namespace

std::span<const InstructionSet> processor_sets() { return kSets; }

// oneDNN for ARM is compiled for any of these processors; it makes no code for better ones in
// products, and cannot be limited.
bool library_allows(std::size_t) { return true; }

bool limit_library(std::size_t) { return true; }

std::string library_instructions() { return "NEON"; }

bool library_multiplies_bf16() { return false; }

bool multiplies_bf16() { return kernel_instructions() != kSets[0].name && has_neon_bf16(); }

}  // namespace axonn::cpu
