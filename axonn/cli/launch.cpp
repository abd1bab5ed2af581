#include "axonn/cli/launch.h"

#include "axonn/base/check.h"
#include "axonn/comm/mpi.h"
#include "axonn/comm/threads.h"

namespace axonn {

bool launches_mpi(const Config& config) {
  switch (config.parallelism.transport) {
    case TransportKind::mpi:
      return true;
    case TransportKind::threads:
      return false;
    case TransportKind::automatic:
      return under_launcher();
  }
  return false;
}

void launch(const Config& config, const std::function<void(Communicator& world)>& body) {
  const double timeout = config.parallelism.timeout_seconds;
  if (launches_mpi(config))
    run_mpi(body, {.timeout_seconds = timeout, .report = {}});
  else
    run_ranks(config.parallelism.grid().ranks(), body, {.timeout_seconds = timeout});
}

}  // namespace axonn
