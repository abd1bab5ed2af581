#include "axonn/foundation/base/json_extent.h"

#include <algorithm>

namespace axonn {

JsonExtent json_extent(std::string_view text) {
  JsonExtent extent{.values = 1};
  int depth = 0;
  for (std::size_t i = 0; i < text.size(); ++i) {
    switch (text[i]) {
      case '"':
        while (++i < text.size() && text[i] != '"') i += text[i] == '\\';
        break;
      case '[':
      case '{':
        extent.depth = std::max(extent.depth, ++depth);
        ++extent.values;
        break;
      case ']':
      case '}':
        depth = std::max(0, depth - 1);
        break;
      case ',':
        ++extent.values;
        break;
      default:
        break;
    }
  }
  return extent;
}

}  // namespace axonn
