#pragma once

#include <atomic>

namespace axonn {

/// While an object exists, SIGTERM, SIGINT, SIGUSR1 and SIGHUP (the terminal was closed) set a flag
/// instead of ending the process, so that training can save a checkpoint and end. A second SIGINT
/// ends the process at once. SIGHUP stays ignored where it is (nohup). At most one object may exist
/// at a time.
class StopSignals {
 public:
  StopSignals();
  ~StopSignals();
  StopSignals(const StopSignals&) = delete;
  StopSignals& operator=(const StopSignals&) = delete;

  const std::atomic<bool>& received() const;
};

}  // namespace axonn
