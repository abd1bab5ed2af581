#include <sstream>

#include <cblas.h>

#include "axonn/compute/ops/cpu/matmul/blas.h"

namespace axonn::cpu::blas {

std::string library() {
  std::istringstream words(openblas_get_config());  // "OpenBLAS 0.3.21 DYNAMIC_ARCH ... Zen ..."
  std::string name, version;
  words >> name >> version;
  return name + ' ' + version + " for " + openblas_get_corename();
}

void use_one_thread() {
  [[maybe_unused]] static const bool done = (openblas_set_num_threads(1), true);
}

}  // namespace axonn::cpu::blas
