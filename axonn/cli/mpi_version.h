#pragma once

#include <string>

namespace axonn {

/// The MPI library of this build in one line, or why there is none. Does not start MPI.
std::string mpi_version();

}  // namespace axonn
