#include "axonn/compute/ops/cpu/matmul/blas.h"
#include "axonn/foundation/base/check.h"

namespace axonn::cpu::blas {

std::string library() { return {}; }

void multiply(const Matmul&) { fail(Where::here(), "matmul: this build has no BLAS library"); }

}  // namespace axonn::cpu::blas
