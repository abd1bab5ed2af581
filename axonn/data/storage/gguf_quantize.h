#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace axonn {

/// Makes the blocks of a type of GGUF from the values of whole blocks. Of Q4_0, Q4_1, Q5_0, Q5_1,
/// Q8_0 and MXFP4 they have the bytes that the package gguf writes; Q3_K to Q6_K search for
/// the scales with the least squared error. Null if blocks of this number are not written. Throws
/// UsageError for a value that is not finite or that no factor in f16 holds. Sources:
/// ggml-org/ggml, src/ggml-quants.c; gguf-py, gguf/quants.py.
using QuantizeGguf = void (*)(std::span<const float> values, std::span<std::byte> blocks);
QuantizeGguf find_gguf_quantizer(std::uint32_t number);

}  // namespace axonn
