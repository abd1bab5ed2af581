#include "axonn/tensor/device.h"

#include "axonn/base/check.h"

namespace axonn {

std::unique_ptr<Graph> Device::capture(const std::function<void()>&) {
  fail(Where::here(), "device ", name(), " cannot capture graphs; check captures() first");
}

}  // namespace axonn
