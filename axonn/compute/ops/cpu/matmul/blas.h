#pragma once

#include <string>

#include "axonn/compute/ops/backend.h"

// Products by a BLAS library, on one thread each. cblas.cpp implements these functions with
// openblas.cpp or other_blas.cpp, or no_blas.cpp in a build without such a library.

namespace axonn::cpu::blas {

/// "OpenBLAS 0.3.21 for Zen": the library, its version and the processor whose kernels it uses; of
/// another one its file's name. Empty if the build has none.
std::string library();

/// Makes the library use one thread in the whole process.
void use_one_thread();

/// Computes an f32 product on the calling thread; its bits depend on the operands and on the
/// processor alone. The first call makes the library use one thread in the whole process.
void multiply(const Matmul& product);

}  // namespace axonn::cpu::blas
