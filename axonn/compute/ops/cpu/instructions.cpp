#include "axonn/compute/ops/cpu/instructions.h"

#include <algorithm>
#include <array>
#include <iterator>
#include <memory>

#include "axonn/compute/ops/backend.h"
#include "axonn/compute/ops/cpu/kernel_sets.h"
#include "axonn/compute/ops/cpu/matmul/onednn.h"
#include "axonn/foundation/base/check.h"

namespace axonn {

namespace cpu {

namespace {

constexpr std::array<std::string_view, 4> kSets{"plain", "avx2", "avx512", "avx512-bf16"};
/// oneDNN's names of the sets.
constexpr std::array kSetsOfLibrary{dnnl_cpu_isa_sse41, dnnl_cpu_isa_avx2, dnnl_cpu_isa_avx512_core,
                                    dnnl_cpu_isa_avx512_core_bf16};

/// Whether oneDNN may use these instructions. Its sets contain the bits of those that they extend.
bool library_has(dnnl_cpu_isa_t isa) { return (dnnl_get_effective_cpu_isa() & isa) == isa; }

/// Whether kernels for this set run here and are within the limit.
bool is_usable(std::string_view name) {
  const auto set = std::ranges::find(kSets, name) - kSets.begin();
  if (set == 0 || set == std::ssize(kSets)) return true;  // of any processor, or of this one
  return processor_has(name) && library_has(kSetsOfLibrary[set]);
}

const KernelSet& kernels() {
  static const KernelSet& chosen =
      *std::ranges::find_if(kKernelSets.rbegin(), kKernelSets.rend(), is_usable, &KernelSet::name);
  return chosen;
}

}  // namespace

std::span<const std::string_view> instruction_sets() { return kSets; }

std::string_view processor_instructions() {
  return *std::ranges::find_if(kSets.rbegin(), kSets.rend(), processor_has);
}

std::vector<std::string_view> kernel_sets() {
  std::vector<std::string_view> names;
  std::ranges::transform(kKernelSets, std::back_inserter(names), &KernelSet::name);
  return names;
}

std::string_view kernel_instructions() { return kernels().name; }

std::string library_version() {
  const dnnl_version_t* version = dnnl_version();
  return concat(version->major, '.', version->minor, '.', version->patch);
}

std::string library_instructions() { return onednn::name_of(dnnl::get_effective_cpu_isa()); }

bool library_multiplies_bf16() { return library_has(dnnl_cpu_isa_avx512_core_bf16); }

std::string instructions_in_use() {
  return concat("kernels ", kernel_instructions(), ", products ", library_instructions());
}

void limit_instructions(std::string_view name) {
  const auto at = std::ranges::find(kSets, name) - kSets.begin();
  AXONN_CHECK(at < std::ssize(kSets), "limit_instructions: '", name,
              "' is not one of plain, avx2, avx512, avx512-bf16");
  AXONN_CHECK(dnnl_set_max_cpu_isa(kSetsOfLibrary[at]) == dnnl_success,
              "limit_instructions: oneDNN is in use already, so its instructions can no longer be "
              "limited");
}

}  // namespace cpu

std::unique_ptr<Backend> make_cpu_backend(int threads) {
  AXONN_CHECK(threads >= 1, "make_cpu_backend: ", threads, " threads, want at least 1");
  return std::unique_ptr<Backend>(cpu::kernels().make_backend(threads));
}

}  // namespace axonn
