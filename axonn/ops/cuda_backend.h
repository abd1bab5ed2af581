#pragma once

#include <memory>
#include <string>

#include "axonn/ops/backend.h"

namespace axonn {

/// cuBLASLt or hipBLASLt for products, this project's kernels for the rest, on the card of that
/// index in cuda_status().cards. Used, and destroyed, by the thread that makes it. Ranks may share
/// a card.
///
/// Errors: UsageError where there is no such card, this build has no kernels for it, or none for
/// cards.
std::unique_ptr<Backend> make_cuda_backend(int card);

/// "cuBLASLt 13.0.2", or "" in a build without cards.
std::string cuda_product_library();

}  // namespace axonn
