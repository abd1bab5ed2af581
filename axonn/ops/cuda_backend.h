#pragma once

#include <memory>
#include <string>

#include "axonn/ops/backend.h"
#include "axonn/ops/cuda_options.h"

namespace axonn {

/// cuBLASLt or hipBLASLt for products, cuDNN for attention where there is one, this project's
/// kernels for the rest, on the card of that index in cuda_status().cards. Used, and destroyed, by
/// the thread that makes it. Ranks may share a card.
///
/// Errors: UsageError where there is no such card, this build has no kernels for it, or none for
/// cards; or cuDNN is asked for and missing.
std::unique_ptr<Backend> make_cuda_backend(int card, const CudaOptions& options = {});

/// "cuBLASLt 13.0.2", or "" in a build without cards.
std::string cuda_product_library();

/// "cuDNN 9.19.0", or "" in a build without it.
std::string cuda_attention_library();

}  // namespace axonn
