#pragma once

#include "axonn/ops/backend.h"
#include "axonn/tensor/cuda/api.cuh"

namespace axonn::cuda {

/// Whether the flash-attention kernels, which keep scores out of memory, support these operands:
/// bf16, heads of width 64 or 128, rows that begin at multiples of 16 bytes.
bool flash_fits(const Attention& args);
bool flash_fits(const AttentionBackward& args);

void flash_attention(cudaStream_t stream, const Attention& args);
/// delta: workspace for (B·T, h) floats.
void flash_attention_backward(cudaStream_t stream, const AttentionBackward& args, float* delta);

}  // namespace axonn::cuda
