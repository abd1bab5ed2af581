// Processors that are neither x86-64 nor 64-bit ARM: the portable kernels, as the compiler makes
// them by default.

#include <array>
#include <string>

#include "axonn/compute/ops/cpu/instructions.h"
#include "axonn/compute/ops/cpu/processor.h"

namespace axonn::cpu {

namespace {

constexpr std::array kSets{InstructionSet{"plain", [] { return true; }}};

}  // namespace

std::span<const InstructionSet> processor_sets() { return kSets; }

bool library_allows(std::size_t) { return true; }

bool limit_library(std::size_t) { return true; }

std::string library_instructions() { return "the compiler's default"; }

bool library_multiplies_bf16() { return false; }

bool multiplies_bf16() { return false; }

}  // namespace axonn::cpu
