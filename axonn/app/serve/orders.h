#pragma once

#include <string>

#include "axonn/app/serve/engine.h"

namespace axonn {

/// The orders of a pass as bytes, for the other ranks: CBOR, which also holds stop strings that are
/// not UTF-8. Streams of text stay on rank 0.
std::string packed(const RequestQueue::Orders& orders);
/// The orders that packed() made these bytes of.
RequestQueue::Orders unpacked(const std::string& bytes);

}  // namespace axonn
