#pragma once

#include <chrono>

namespace axonn {

/// Seconds of a clock that only goes forward; differences alone mean something.
inline double now_seconds() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

/// So many seconds, for the standard library's waits.
inline std::chrono::duration<double> duration_of(double seconds) {
  return std::chrono::duration<double>(seconds);
}

}  // namespace axonn
