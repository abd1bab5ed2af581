#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "axonn/storage/safetensors/safetensors.h"

namespace axonn {

/// Whether to_floats() and from_floats() support the type: F16, BF16 and F32.
bool is_float(StoredType type);

/// Converts the elements in `bytes`, out.size() of them, from `type` to float. Exact.
void to_floats(StoredType type, std::span<const std::byte> bytes, std::span<float> out);

/// Converts floats to `type`, rounding to nearest even. Values beyond F16's range become infinite.
void from_floats(StoredType type, std::span<const float> values, std::span<std::byte> out);

}  // namespace axonn
