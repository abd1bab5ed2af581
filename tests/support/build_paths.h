#pragma once

#include <string>

namespace axonn::test {

/// The root of the project's sources.
std::string source_folder();

/// The root of this build: commands are in bin/, test programs in tests/.
std::string build_folder();

/// This build's `axonn`.
std::string program();

/// The command that starts MPI processes; empty if this build has no MPI.
std::string mpirun();

}  // namespace axonn::test
