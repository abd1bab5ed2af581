#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "axonn/compute/tensor/tensor.h"

namespace axonn {

/// A copy of values in the host's memory, whose memory is kept for the next one.
class SavedValues {
 public:
  void save(std::span<const View> views);
  /// Writes the copy to the views that it was made of, or compares it with them.
  void restore(std::span<const View> views) const;
  bool are_those_of(std::span<const View> views) const;
  void clear() { bytes_.clear(); }
  bool empty() const { return bytes_.empty(); }

 private:
  std::vector<std::byte> bytes_;
};

}  // namespace axonn
