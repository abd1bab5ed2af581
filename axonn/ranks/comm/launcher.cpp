#include "axonn/ranks/comm/launcher.h"

#include <algorithm>
#include <array>

namespace axonn {

namespace {

/// Environment variables that launchers set for each process; null: there is none.
struct LauncherVariables {
  const char* rank;
  const char* size;
  const char* size_here;  ///< processes on this machine
};

constexpr std::array kLaunchers = {
    // Open MPI
    LauncherVariables{"OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_SIZE"},
    LauncherVariables{"PMI_RANK", "PMI_SIZE", "MPI_LOCALNRANKS"},  // MPICH, Intel MPI (Hydra)
    LauncherVariables{"PMIX_RANK", nullptr, nullptr},              // launchers with PMIx
    // MVAPICH
    LauncherVariables{"MV2_COMM_WORLD_RANK", "MV2_COMM_WORLD_SIZE", "MV2_COMM_WORLD_LOCAL_SIZE"},
    LauncherVariables{"PALS_RANKID", nullptr, "PALS_LOCAL_SIZE"},  // Cray PALS
};

/// Slurm. Tasks by node: "4(x2),3" if two nodes have 4 each, and the next 3.
constexpr LauncherVariables kSlurm = {"SLURM_PROCID", "SLURM_STEP_NUM_TASKS",
                                      "SLURM_STEP_TASKS_PER_NODE"};

/// The number in the first of these variables that is set; `none` if none is.
int first_number(const std::function<const char*(const char*)>& variable,
                 const char* LauncherVariables::*which, int none) {
  for (const LauncherVariables& launcher : kLaunchers)
    if (const char* const name = launcher.*which)
      if (const char* const value = variable(name)) return std::atoi(value);
  const char* const value = variable(kSlurm.*which);
  return value ? std::atoi(value) : none;
}

}  // namespace

bool under_launcher(const std::function<const char*(const char*)>& variable) {
  if (std::ranges::any_of(kLaunchers, [&](const LauncherVariables& launcher) {
        return variable(launcher.rank) || (launcher.size && variable(launcher.size));
      }))
    return true;
  // srun sets PMI variables only with some --mpi types. A batch script or an interactive shell is
  // also a Slurm step, but with one task.
  const char* const tasks = variable(kSlurm.size);
  return variable(kSlurm.rank) && tasks && std::atoi(tasks) > 1;
}

int launched_rank(const std::function<const char*(const char*)>& variable) {
  return under_launcher(variable) ? first_number(variable, &LauncherVariables::rank, 0) : 0;
}

int launched_size(const std::function<const char*(const char*)>& variable) {
  return under_launcher(variable) ? first_number(variable, &LauncherVariables::size, 0) : 0;
}

int launched_here(const std::function<const char*(const char*)>& variable) {
  return std::max(first_number(variable, &LauncherVariables::size_here, 1), 1);
}

}  // namespace axonn
