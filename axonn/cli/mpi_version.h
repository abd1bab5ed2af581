#pragma once

#include <string>

namespace axonn {

/// The MPI library of this build in one line, or why there is none. Starts nothing.
std::string mpi_version();

}  // namespace axonn
