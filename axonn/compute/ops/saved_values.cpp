#include "axonn/compute/ops/saved_values.h"

#include <cstring>

#include "axonn/compute/tensor/address.h"

namespace axonn {

void SavedValues::save(std::span<const View> views) {
  bytes_.clear();
  for (const View& view : views)
    for_runs(view, [&](const std::byte* data, std::int64_t bytes) {
      bytes_.insert(bytes_.end(), data, data + bytes);
    });
}

void SavedValues::restore(std::span<const View> views) const {
  const std::byte* at = bytes_.data();
  for (const View& view : views)
    for_runs(view, [&](std::byte* data, std::int64_t bytes) {
      std::memcpy(data, at, bytes);
      at += bytes;
    });
}

bool SavedValues::are_those_of(std::span<const View> views) const {
  const std::byte* at = bytes_.data();
  bool equal = true;
  for (const View& view : views)
    for_runs(view, [&](const std::byte* data, std::int64_t bytes) {
      equal = equal && std::memcmp(data, at, bytes) == 0;
      at += bytes;
    });
  return equal;
}

}  // namespace axonn
