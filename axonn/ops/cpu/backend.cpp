#include <omp.h>

#include "axonn/base/check.h"
#include "axonn/ops/cpu/cpu_backend.h"

namespace axonn {

namespace cpu {

CpuBackend::CpuBackend(int threads)
    : device_(make_cpu_device()), threads_(threads), products_(threads) {
  AXONN_CHECK(threads >= 1, "make_cpu_backend: ", threads, " threads, want at least 1");
  omp_set_num_threads(threads);  // of the calling thread, for whatever else it runs
}

void CpuBackend::matmul(const Matmul& args) { products_.run(args); }

}  // namespace cpu

std::unique_ptr<Backend> make_cpu_backend(int threads) {
  return std::make_unique<cpu::CpuBackend>(threads);
}

}  // namespace axonn
