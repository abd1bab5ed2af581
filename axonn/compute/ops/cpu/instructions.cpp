#include "axonn/compute/ops/cpu/instructions.h"

#include <algorithm>
#include <cstddef>
#include <iterator>
#include <memory>

#include "axonn/compute/ops/backend.h"
#include "axonn/compute/ops/cpu/kernel_sets.h"
#include "axonn/compute/ops/cpu/matmul/onednn.h"
#include "axonn/compute/ops/cpu/processor.h"
#include "axonn/foundation/base/check.h"

namespace axonn {

namespace cpu {

namespace {

/// The place of a set among those of this architecture; their number if it is another name.
std::size_t place_of(std::string_view name) {
  const auto sets = processor_sets();
  return std::ranges::find(sets, name, &InstructionSet::name) - sets.begin();
}

/// What this process has decided on: written by limit_instructions() and kernels().
struct Decision {
  std::size_t most = std::size_t(-1);  ///< place of the largest set that is allowed
  bool made = false;
};
Decision& decision() {
  static Decision decision;
  return decision;
}

/// Whether kernels for this set run here and are within the limits.
bool is_usable(std::string_view name) {
  const std::size_t set = place_of(name);
  if (set == 0 || set == processor_sets().size()) return true;  // of any processor, or of this one
  return set <= decision().most && processor_sets()[set].is_present() && library_allows(set);
}

const KernelSet& kernels() {
  static const KernelSet& chosen = []() -> const KernelSet& {
    decision().made = true;
    return *std::ranges::find_if(kKernelSets.rbegin(), kKernelSets.rend(), is_usable,
                                 &KernelSet::name);
  }();
  return chosen;
}

}  // namespace

std::vector<std::string_view> instruction_sets() {
  std::vector<std::string_view> names;
  std::ranges::transform(processor_sets(), std::back_inserter(names), &InstructionSet::name);
  return names;
}

std::string_view processor_instructions() {
  const auto sets = processor_sets();
  return std::ranges::find_if(sets.rbegin(), sets.rend(),
                              [](const InstructionSet& set) { return set.is_present(); })
      ->name;
}

std::vector<std::string_view> kernel_sets() {
  std::vector<std::string_view> names;
  std::ranges::transform(kKernelSets, std::back_inserter(names), &KernelSet::name);
  return names;
}

std::string_view kernel_instructions() { return kernels().name; }

bool uses_amx() {
  static const bool multiplies = kernels().has_amx && is_usable("amx");
  return multiplies;
}

std::string library_version() {
  const dnnl_version_t* version = dnnl_version();
  return concat(version->major, '.', version->minor, '.', version->patch);
}

std::string instructions_in_use() {
  return concat("kernels ", kernel_instructions(), uses_amx() ? " with AMX" : "", ", products ",
                library_instructions());
}

void limit_instructions(std::string_view name) {
  const std::size_t set = place_of(name);
  std::string names;
  for (const std::string_view known : instruction_sets())
    names += concat(names.empty() ? "" : ", ", known);
  AXONN_CHECK(set < processor_sets().size(), "limit_instructions: '", name, "' is not one of ",
              names);
  AXONN_CHECK(!decision().made && limit_library(set),
              "limit_instructions: kernels or oneDNN are in use already, so instructions can no "
              "longer be limited");
  decision().most = set;
}

}  // namespace cpu

std::unique_ptr<Backend> make_cpu_backend(int threads) {
  AXONN_CHECK(threads >= 1, "make_cpu_backend: ", threads, " threads, want at least 1");
  return std::unique_ptr<Backend>(cpu::kernels().make_backend(threads));
}

}  // namespace axonn
