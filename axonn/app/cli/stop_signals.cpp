#include "axonn/app/cli/stop_signals.h"

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

}  // namespace

const std::atomic<bool>& catch_stop_signals() {
  for (const int signal : {SIGTERM, SIGINT, SIGUSR1, SIGHUP})
    if (std::signal(signal, request_stop) == SIG_IGN && signal == SIGHUP)
      std::signal(SIGHUP, SIG_IGN);  // nohup
  return stop_requested;
}

}  // namespace axonn
