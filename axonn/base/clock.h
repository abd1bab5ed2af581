#pragma once

#include <chrono>

namespace axonn {

/// Seconds of a clock that only goes forward; differences alone mean something.
inline double now_seconds() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

}  // namespace axonn
