#pragma once

#include <memory>

#include "axonn/compute/ops/backend.h"

namespace axonn {

/// A backend on GPU 0 whose operations are complete when they return, for operands of
/// operand_memory.h. test_backend() is the one without cuDNN.
std::unique_ptr<Backend> test_cuda_backend(const CudaOptions& options);

}  // namespace axonn
