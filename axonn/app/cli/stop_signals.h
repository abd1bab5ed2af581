#pragma once

#include <atomic>

namespace axonn {

/// From now to the end of the process, SIGTERM, SIGINT, SIGUSR1 and SIGHUP (the terminal was
/// closed) set the flag that is returned instead of ending the process, so that training can save a
/// checkpoint and end, and a signal that comes after the last step does not turn success into
/// failure. A second SIGINT ends the process. SIGHUP stays ignored where it is (nohup).
const std::atomic<bool>& catch_stop_signals();

}  // namespace axonn
