#include "axonn/comm/launcher.h"

#include <algorithm>
#include <array>

namespace axonn {

bool under_launcher(const std::function<const char*(const char*)>& variable) {
  // In order: Open MPI; MPICH and Intel MPI (Hydra); launchers with PMIx; MVAPICH; Cray PALS.
  constexpr std::array kVariables = {"OMPI_COMM_WORLD_SIZE", "PMI_SIZE",   "PMI_RANK", "PMIX_RANK",
                                     "MV2_COMM_WORLD_SIZE",  "PALS_RANKID"};
  if (std::ranges::any_of(kVariables, [&](const char* name) { return variable(name); }))
    return true;
  // srun sets PMI variables only with some --mpi types. A batch script or an interactive shell is
  // also a Slurm step, but with one task.
  const char* const tasks = variable("SLURM_STEP_NUM_TASKS");
  return variable("SLURM_PROCID") && tasks && std::atoi(tasks) > 1;
}

int launched_here(const std::function<const char*(const char*)>& variable) {
  // Open MPI; Hydra; MVAPICH; Cray PALS; Slurm, as "4(x2),3": on two nodes 4 each, then 3.
  constexpr std::array kVariables = {"OMPI_COMM_WORLD_LOCAL_SIZE", "MPI_LOCALNRANKS",
                                     "MV2_COMM_WORLD_LOCAL_SIZE", "PALS_LOCAL_SIZE",
                                     "SLURM_STEP_TASKS_PER_NODE"};
  for (const char* name : kVariables)
    if (const char* const count = variable(name)) return std::max(std::atoi(count), 1);
  return 1;
}

}  // namespace axonn
