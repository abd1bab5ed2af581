#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "axonn/io/safetensors.h"

namespace axonn {

/// Whether to_floats() and from_floats() know the type: F16, BF16 and F32.
bool is_float(StoredType type);

/// out[i] = element i of `bytes`, which are out.size() elements of `type`. Exact.
void to_floats(StoredType type, std::span<const std::byte> bytes, std::span<float> out);

/// The other way, rounded to nearest, ties to even. What F16 cannot hold becomes infinite.
void from_floats(StoredType type, std::span<const float> values, std::span<std::byte> out);

}  // namespace axonn
