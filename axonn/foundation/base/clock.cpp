#include "axonn/foundation/base/clock.h"

#include <fmt/chrono.h>

namespace axonn {

std::string utc_now() {
  const auto now = std::chrono::system_clock::now();
  return fmt::format("{:%F %T} UTC", fmt::gmtime(std::chrono::system_clock::to_time_t(now)));
}

}  // namespace axonn
