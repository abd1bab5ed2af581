#include "axonn/cli/mpi_version.h"

#include <mpi.h>

namespace axonn {

std::string mpi_version() {
  char text[MPI_MAX_LIBRARY_VERSION_STRING];
  int length = 0;
  if (MPI_Get_library_version(text, &length) != MPI_SUCCESS) return "unknown";
  const std::string all(text, static_cast<std::size_t>(length));
  return all.substr(0, all.find_first_of(",\n"));  // the rest comes from the packager
}

}  // namespace axonn
