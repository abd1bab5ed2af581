#pragma once

#include "axonn/nn/embedding.h"
#include "axonn/parallel/context.h"
#include "axonn/train/config.h"

namespace axonn {

/// A micro-batch of config's size with arbitrary tokens, spread over its vocab.
Tokens any_tokens(const Context& ctx, const Config& config);

}  // namespace axonn
