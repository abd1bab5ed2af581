#pragma once

#include <map>
#include <string>
#include <string_view>
#include <vector>

namespace axonn::testing_support {

/// A file of the project.
struct SourceFile {
  std::string path;  ///< "axonn/base/check.h"
  std::vector<std::string> lines;

  bool ends_with(std::string_view ending) const { return path.ends_with(ending); }
  bool is_cpp() const {
    return ends_with(".h") || ends_with(".cpp") || ends_with(".cu") || ends_with(".cuh");
  }
  /// "base" of "axonn/base/check.h"; "" outside axonn/.
  std::string folder() const;
};

SourceFile source_file(std::string path, std::string_view text);

/// Every source of the project: C++, CMake, shell, configurations, documents. Sorted.
std::vector<SourceFile> source_tree();

/// The file at this path of the project. Errors: Error if it cannot be read.
SourceFile read_source(const std::string& path);

/// What a line includes: "axonn/base/check.h" in quotes, <vector> with its brackets; "" if nothing.
std::string included_by(const std::string& line);

/// The file's text without preprocessor lines, and with blanks for comments and for what stands in
/// quotes, so that the lines stay where they are.
std::string bare_code(const SourceFile& file);

}  // namespace axonn::testing_support
