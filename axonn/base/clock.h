#pragma once

#include <chrono>

namespace axonn {

/// Seconds on a monotonic clock. Only differences are meaningful.
inline double now_seconds() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

/// Converts seconds to the type that the standard library's waits take.
inline std::chrono::duration<double> duration_of(double seconds) {
  return std::chrono::duration<double>(seconds);
}

}  // namespace axonn
