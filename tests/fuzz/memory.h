#pragma once

#include <cstdint>

namespace axonn::fuzz {

/// Bytes that were allocated since counting began, by operator new at least, less those that were
/// given back, in this process.
std::int64_t held_bytes();

/// The most that were held at once since the last call.
std::int64_t most_held_bytes();

}  // namespace axonn::fuzz
