#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "axonn/run/train/training.h"

namespace axonn::testing_support {

/// Bytes of a rank that belong to a parameter.
struct Place {
  std::byte* begin = nullptr;
  std::int64_t bytes = 0;
  std::string name;  ///< as the message says it
  bool is_float = true;
  bool frozen = false;
};

/// All that a rank holds of the optimizer's state, and with `copies` of the compute copies.
std::vector<Place> state_places(Training& training, bool copies);

}  // namespace axonn::testing_support
