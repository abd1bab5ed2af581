#pragma once

#include "axonn/ops/backend.h"

namespace axonn::cuda {

struct Launch;

/// Whether the flash-attention kernels, which keep scores out of memory, support these operands:
/// bf16, heads of width 64 or 128, rows that begin at multiples of 16 bytes.
bool flash_fits(const Attention& args);
bool flash_fits(const AttentionBackward& args);

void flash_attention(const Launch& launch, const Attention& args);
void flash_attention_backward(const Launch& launch, const AttentionBackward& args);

}  // namespace axonn::cuda
