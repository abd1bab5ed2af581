#pragma once

#include <cstddef>
#include <span>
#include <string_view>

// What differs between architectures: each has one source, processor_x86_64.cpp,
// processor_aarch64.cpp or processor_other.cpp, which implements these functions and, of
// instructions.h, those that tell what oneDNN uses. The build compiles one of them.

namespace axonn::cpu {

/// A set of instructions for which a build may have kernels.
struct InstructionSet {
  std::string_view name;
  /// Whether the processor has them and the operating system allows their use.
  bool (*is_present)();
};

/// The sets of this architecture, the best last. Every processor has the first.
std::span<const InstructionSet> processor_sets();

/// Whether oneDNN's own limit on instructions allows those of set number `set`.
bool library_allows(std::size_t set);

/// Makes oneDNN use no instructions beyond those of set number `set`, if it can be told so. Returns
/// false if it is too late.
bool limit_library(std::size_t set);

}  // namespace axonn::cpu
