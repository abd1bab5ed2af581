#pragma once

#include "axonn/compute/ops/backend.h"

namespace axonn::cuda {

struct Launch;

/// Attention by kernels that keep scores out of memory: AttentionWay::own.
void flash_attention(const Launch& launch, const Attention& args);
void flash_attention_backward(const Launch& launch, const AttentionBackward& args);

}  // namespace axonn::cuda
