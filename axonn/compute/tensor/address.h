#pragma once

#include <cstddef>
#include <cstdint>

#include "axonn/compute/tensor/tensor.h"

namespace axonn {

/// The address of the first element of a row on the view's device, without the checks of
/// View::row(): for kernels, whose launch checked the operands, and for copies.
template <typename T>
T* address(const View& view, std::int64_t row = 0) {
  return static_cast<T*>(view.data) + row * view.stride;
}

/// Calls f(address, bytes) for each run of bytes of a view in the host's memory.
template <typename F>
void for_runs(const View& view, const F& f) {
  if (!view.data || view.count() == 0) return;
  const std::int64_t size = bytes_of(view.dtype);
  if (view.contiguous()) return f(address<std::byte>(view), view.count() * size);
  for (std::int64_t r = 0; r < view.rows; ++r)
    f(static_cast<std::byte*>(view.data) + r * view.stride * size, view.cols * size);
}

}  // namespace axonn
