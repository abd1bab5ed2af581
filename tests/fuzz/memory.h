#pragma once

#include <cstdint>

namespace axonn::fuzz {

/// The bytes that this process has allocated and not freed since counting began; at least those of
/// operator new.
std::int64_t held_bytes();

/// The most bytes held at once since the last call.
std::int64_t most_held_bytes();

}  // namespace axonn::fuzz
