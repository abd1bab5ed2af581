#include "tests/support/build_paths.h"

namespace axonn::test {

std::string source_folder() { return AXONN_SOURCE_FOLDER; }
std::string build_folder() { return AXONN_BUILD_FOLDER; }
std::string program() { return build_folder() + "/bin/axonn"; }
std::string mpirun() { return AXONN_MPIRUN; }

}  // namespace axonn::test
