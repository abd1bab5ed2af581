#pragma once

#include <cstdint>

#include "axonn/compute/tensor/tensor.h"

namespace axonn {

/// The address of the first element of a row on the view's device, without the checks of
/// View::row(): for kernels, whose launch checked the operands, and for copies.
template <typename T>
T* address(const View& view, std::int64_t row = 0) {
  return static_cast<T*>(view.data) + row * view.stride;
}

}  // namespace axonn
