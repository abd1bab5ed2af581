// Stands for mpi.cpp in a build without MPI.
#include "axonn/foundation/base/check.h"
#include "axonn/ranks/comm/mpi/mpi.h"

namespace axonn {

void run_mpi(const std::function<void(Communicator& world)>&, const MpiOptions&) {
  refuse(
      "an MPI launcher started this program, but it is built without MPI: configure with "
      "-DAXONN_MPI=ON (needs an MPI: libopenmpi-dev, openmpi-bin), or start it without the "
      "launcher, with ranks as threads");
}

std::string mpi_version() { return "none: ranks are threads of one process, on one machine"; }

}  // namespace axonn
