#include "axonn/cli/stop_signals.h"

#include <csignal>

namespace axonn {

namespace {

// A signal handler takes no state as an argument, so this flag is global.
std::atomic<bool> stop_requested = false;
static_assert(std::atomic<bool>::is_always_lock_free, "a handler may only touch lock-free atomics");

void request_stop(int signal) {
  if (stop_requested.exchange(true) && signal == SIGINT) {
    std::signal(SIGINT, SIG_DFL);  // the second SIGINT ends the process at once
    std::raise(SIGINT);
  }
}

constexpr int kSignals[] = {SIGTERM, SIGINT, SIGUSR1, SIGHUP};

}  // namespace

StopSignals::StopSignals() {
  stop_requested = false;
  for (int signal : kSignals)
    if (std::signal(signal, request_stop) == SIG_IGN && signal == SIGHUP)
      std::signal(SIGHUP, SIG_IGN);  // nohup
}

StopSignals::~StopSignals() {
  for (int signal : kSignals)
    if (std::signal(signal, SIG_DFL) == SIG_IGN) std::signal(signal, SIG_IGN);
}

const std::atomic<bool>& StopSignals::received() const { return stop_requested; }

}  // namespace axonn
