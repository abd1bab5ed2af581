#pragma once

#include <atomic>

namespace axonn {

/// While it lives, SIGTERM, SIGINT and SIGUSR1 raise a flag instead of ending the process, so that
/// training can save and end. A second SIGINT ends it at once. One at a time.
class StopSignals {
 public:
  StopSignals();
  ~StopSignals();
  StopSignals(const StopSignals&) = delete;
  StopSignals& operator=(const StopSignals&) = delete;

  const std::atomic<bool>& received() const;
};

}  // namespace axonn
