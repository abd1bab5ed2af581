#pragma once

#include <cstdint>
#include <vector>

#include "axonn/network/nn/embedding.h"

namespace axonn::testing_support {

/// Positions and document starts of sequences with two documents each. The second document of
/// sequence s begins at position 97 s % positions.
struct PackedRows {
  std::vector<std::int32_t> positions, starts;

  PackedRows(std::int64_t first_sequence, const Rows& rows) {
    for (std::int64_t s = first_sequence; s < first_sequence + rows.sequences; ++s)
      for (std::int64_t t = 0; t < rows.positions; ++t) {
        const std::int64_t second = s * 97 % rows.positions, start = t < second ? 0 : second;
        starts.push_back(static_cast<std::int32_t>(start));
        positions.push_back(static_cast<std::int32_t>(t - start));
      }
  }
  RowPositions row_positions() const { return {.positions = positions, .starts = starts}; }
};

}  // namespace axonn::testing_support
