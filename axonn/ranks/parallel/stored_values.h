#pragma once

#include <vector>

#include "axonn/ranks/parallel/context.h"

namespace axonn {

/// The elements of a contiguous tensor as it stores them, of type T, in host memory. Waits for the
/// device.
template <typename T>
std::vector<T> stored_values(const Context& ctx, const Tensor& tensor) {
  std::vector<T> values(tensor.count());
  if (!values.empty()) ctx.device().copy_to_host(values.data(), tensor.view().data, tensor.bytes());
  return values;
}

}  // namespace axonn
