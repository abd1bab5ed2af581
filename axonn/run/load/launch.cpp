#include "axonn/run/load/launch.h"

#include <cstdlib>
#include <iostream>

#include "axonn/compute/tensor/gpu/gpu_platform.h"
#include "axonn/foundation/base/check.h"
#include "axonn/ranks/comm/collective_cost.h"
#include "axonn/ranks/comm/launcher.h"
#include "axonn/ranks/comm/mpi/mpi.h"
#include "axonn/ranks/comm/threads/threads.h"

namespace axonn {

bool launches_mpi(const ParallelismConfig& parallelism) {
  const TransportKind transport = parallelism.transport;
  return transport == TransportKind::mpi ||
         (transport != TransportKind::threads && under_launcher());
}

bool speaks_for_all() { return launched_rank() == 0; }

void end_launched(const std::exception_ptr& error) {
  if (!under_launcher()) return;
  try {
    run_mpi([&](Communicator&) { std::rethrow_exception(error); });
  } catch (const UsageError&) {  // built without MPI: each process prints its own error
  }
}

namespace {

/// Throws UsageError if MPI has fewer ranks than the launcher has started processes: each would do
/// the whole work, and all would write to the same folder.
void refuse_lone_processes(const Communicator& world) {
  const int started = launched_size();
  if (world.size() >= started) return;
  const bool one = world.size() == 1;
  refuse(
      "the launcher has started ", started, " processes, but MPI (", mpi_version(), ") has ",
      world.size(), one ? " rank" : " ranks", ": it does not find the other processes, so each ",
      "would work alone; start them with srun --mpi=pmix (srun --mpi=list shows what Slurm has) ",
      "or with mpirun, of the MPI that this program was built with");
}

}  // namespace

CollectivePolicy policy_of(const ParallelismConfig& config) {
  CollectivePolicy policy{.checksums = config.verify_messages,
                          .gpu_blocks = static_cast<int>(config.collective_blocks),
                          .spares = config.spare_multiprocessors};
  // Nobody has reckoned how many blocks RCCL needs.
  if (policy.gpu_blocks < 0 && gpu_platform() && gpu_platform()->collectives != "NCCL")
    policy.gpu_blocks = 0;
  if (config.collectives == CollectivesKind::flat) policy.method = CollectiveMethod::flat;
  if (config.collectives == CollectivesKind::two_level) policy.method = CollectiveMethod::two_level;
  return policy;
}

void launch(const ParallelismConfig& parallelism,
            const std::function<void(Communicator& world)>& body) {
  if (parallelism.automatic())
    refuse("[parallelism] grid = \"auto\" works only with axonn train; set a grid, such as the ",
           "first of axonn plan");
  AXONN_CHECK(parallelism.named_grid.empty(), "launch: parallelism.grid is still \"",
              parallelism.named_grid, "\"; pass prepared(config)");
  AXONN_CHECK(body, "launch: there is no function to run");
  const double timeout = parallelism.timeout_seconds;
  const auto with_policy = [&](Communicator& world) {
    world.set_policy(policy_of(parallelism));
    body(world);
  };
  const auto together = [&](Communicator& world) {
    refuse_lone_processes(world);
    with_policy(world);
  };
  if (launches_mpi(parallelism))
    run_mpi(together, {.timeout_seconds = timeout, .report = {}});
  else
    run_ranks(parallelism.grid().ranks(), with_policy,
              {.timeout_seconds = timeout, .on_hang = [](const std::string& reason) {
                 // Ends the process, since a thread that hangs cannot be ended alone.
                 std::cerr << "error: " << reason << std::endl;
                 std::_Exit(EXIT_FAILURE);
               }});
}

}  // namespace axonn
