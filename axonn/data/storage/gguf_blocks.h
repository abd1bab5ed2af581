#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "axonn/compute/tensor/dtype.h"

namespace axonn {

/// A type of tensors in GGUF files: blocks of values of a row.
struct GgufBlocks {
  std::uint32_t number;   ///< the format's
  std::string_view name;  ///< as in llama.cpp: "Q4_K"
  std::int64_t values;    ///< of a block
  std::int64_t bytes;     ///< of a block
  /// Makes the values of a block.
  void (*read)(const std::byte* block, float* values);
  /// The kind whose records its blocks are; none: they are kept as values alone.
  Quantization kind = Quantization::none;
};

/// The types that are read: F32, F16, BF16, Q4_0, Q4_1, Q5_0, Q5_1, Q8_0, Q2_K to Q6_K, IQ4_NL,
/// IQ4_XS and MXFP4. Values have the bits of those of the package gguf. Source: ggml-org/ggml,
/// src/ggml-common.h and ggml-quants.c.
std::span<const GgufBlocks> gguf_block_types();
/// The type of this number; null if it is not read.
const GgufBlocks* find_gguf_blocks(std::uint32_t number);
/// The names of all types, for messages.
std::string gguf_block_names();

}  // namespace axonn
