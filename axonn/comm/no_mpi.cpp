// Stands in for mpi.cpp where the library is built with AXONN_MPI=OFF.
#include "axonn/base/check.h"
#include "axonn/comm/mpi.h"

namespace axonn {

void run_mpi(const std::function<void(Communicator& world)>&, const MpiOptions&) {
  refuse(
      "this was started by an MPI launcher and is built without MPI: configure with -DAXONN_MPI=ON "
      "(needs an MPI: libopenmpi-dev, openmpi-bin), or start it without the launcher, with ranks "
      "as "
      "threads");
}

}  // namespace axonn
