#include "axonn/cli/mpi_version.h"

namespace axonn {

std::string mpi_version() { return "none (built with -DAXONN_MPI=OFF)"; }

}  // namespace axonn
