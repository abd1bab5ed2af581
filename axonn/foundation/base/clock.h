#pragma once

#include <algorithm>
#include <chrono>
#include <string>

namespace axonn {

/// Seconds on a monotonic clock. Only differences are meaningful.
inline double now_seconds() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

/// Converts seconds to the type that the standard library's waits take. At most about three years,
/// so that no clock overflows.
inline std::chrono::duration<double> duration_of(double seconds) {
  return std::chrono::duration<double>(std::min(seconds, 1e8));
}

/// The time of day: "2026-11-21 18:02:11 UTC".
std::string utc_now();

}  // namespace axonn
