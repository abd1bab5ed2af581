#include "axonn/compute/ops/cpu/cpu_backend.h"

#include <variant>

#include <omp.h>

#include "axonn/compute/ops/cpu/integers.h"
#include "axonn/compute/ops/cpu/kernel_sets.h"
#include "axonn/foundation/base/check.h"
#include "axonn/foundation/base/host.h"

namespace axonn::cpu {

CpuBackend::CpuBackend(int threads)
    : device_(make_cpu_device()), arena_(*device_), threads_(threads), products_(threads) {
  omp_set_num_threads(threads);  // for the other parallel regions of the calling thread
}

void CpuBackend::run(const RowwiseOperation& operation) {
  std::visit(
      [&](const auto& args) {
        args.run(Launch{threads_, scratch_}, {args.kName});
      },
      operation);
}

bool CpuBackend::set_batch_invariant(bool value) {
  batch_invariant_ = value;
  products_.set_order(value ? SumOrder::invariant : SumOrder::fastest);
  return true;
}

bool CpuBackend::set_integer_products(bool value) {
  if (!kHasIntegers) return false;
  products_.set_integers(value);
  return true;
}

std::string CpuBackend::matmul_device() const {
  return concat(processor_name(), ", ", threads_, threads_ == 1 ? " thread, " : " threads, ",
                Products::library());
}

}  // namespace axonn::cpu

axonn::Backend* AXONN_CPU_BACKEND(int threads) { return new axonn::cpu::CpuBackend(threads); }
