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

}  // namespace axonn
