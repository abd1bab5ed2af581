#pragma once

#include <cstdlib>
#include <functional>

namespace axonn {

/// Whether an MPI launcher (mpirun, mpiexec, srun with several tasks) started this process. A shell
/// inside a Slurm allocation does not count. `variable` returns an environment variable, or null;
/// tests replace it.
bool under_launcher(const std::function<const char*(const char* name)>& variable = std::getenv);

/// The rank of this process in its launcher's job; 0 if the launcher does not say or there is none.
int launched_rank(const std::function<const char*(const char* name)>& variable = std::getenv);

/// How many processes the launcher has started in its job; 0 if it does not say or there is none.
/// An MPI that does not understand the launcher has fewer ranks: each process is then alone.
int launched_size(const std::function<const char*(const char* name)>& variable = std::getenv);

/// How many processes of its job a launcher has started on this machine; 1 if it does not say.
int launched_here(const std::function<const char*(const char* name)>& variable = std::getenv);

}  // namespace axonn
