#pragma once

#include <vector>

#include "axonn/ranks/parallel/context.h"

namespace axonn {

/// The elements of a contiguous tensor of type T, in host memory. Waits for the device.
template <typename T>
std::vector<T> values_in_host(const Context& ctx, const Tensor& tensor) {
  std::vector<T> values(tensor.count());
  if (!values.empty()) ctx.device().copy_to_host(values.data(), tensor.view().data, tensor.bytes());
  return values;
}

}  // namespace axonn
