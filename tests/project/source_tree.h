#pragma once

#include <map>
#include <string>
#include <string_view>
#include <vector>

namespace axonn::testing_support {

/// A source file of the project.
struct SourceFile {
  std::string path;  ///< "axonn/ranks/comm/mpi/mpi.h"
  std::vector<std::string> lines;

  bool ends_with(std::string_view ending) const { return path.ends_with(ending); }
  bool is_cpp() const {
    return ends_with(".h") || ends_with(".cpp") || ends_with(".cu") || ends_with(".cuh");
  }
  std::string floor() const;  ///< "ranks" of "axonn/ranks/comm/mpi/mpi.h"; "" outside of floors
  std::string room() const;   ///< "comm" of it; "" outside of rooms
};

SourceFile source_file(std::string path, std::string_view text);

/// All source files of the project, sorted: C++, CUDA, CMake, shell scripts and configurations.
std::vector<SourceFile> source_tree();

/// Reads the file at this path of the project. Throws Error if it cannot be read.
SourceFile read_source(const std::string& path);

/// The header that a line includes: axonn/foundation/base/check.h without quotes, <vector> with its
/// brackets; "" if the line has no #include.
std::string included_by(const std::string& line);

/// The file's text with preprocessor lines emptied, and comments and literals replaced by spaces.
/// Line numbers stay the same.
std::string bare_code(const SourceFile& file);

}  // namespace axonn::testing_support
