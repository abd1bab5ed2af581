#include "axonn/compute/ops/cpu/matmul/blas.h"

// Another library than OpenBLAS, which CMake was told (AXONN_BLAS_LIBRARY).

namespace axonn::cpu::blas {

std::string library() { return AXONN_BLAS_NAME; }

void use_one_thread() {}  // the library computes on the calling thread

}  // namespace axonn::cpu::blas
