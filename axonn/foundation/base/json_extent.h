#pragma once

#include <cstdint>
#include <string_view>

namespace axonn {

/// How much there is in a JSON text.
struct JsonExtent {
  int depth = 0;            ///< of the brackets; 1: no list or object is in another one
  std::int64_t values = 0;  ///< elements of lists and members of objects, or one more of each
};

/// Counts brackets and commas outside of strings, without parsing: in no memory, and before a
/// parser takes memory for each value or code calls itself for each bracket. Of a text that is not
/// JSON, it counts at least all that precedes the fault.
JsonExtent json_extent(std::string_view text);

}  // namespace axonn
