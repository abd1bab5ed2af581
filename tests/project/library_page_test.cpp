// The code in docs/library.md is that of the examples, which are built against the installed
// library.
#include <set>

#include <gtest/gtest.h>

#include "tests/project/source_tree.h"

using namespace axonn::testing_support;

namespace {

std::string trimmed(const std::string& line) {
  const std::size_t begin = line.find_first_not_of(' ');
  return begin == std::string::npos ? "" : line.substr(begin);
}

std::set<std::string> lines_of_examples() {
  std::set<std::string> lines;
  for (const SourceFile& file : source_tree())
    if (file.path.starts_with("examples/") && file.is_cpp())
      for (const std::string& line : file.lines) lines.insert(trimmed(line));
  return lines;
}

}  // namespace

TEST(LibraryPage, ShowsCodeOfTheExamplesAlone) {
  const std::set<std::string> examples = lines_of_examples();
  bool code = false;
  int shown = 0;
  for (const std::string& line : read_source("docs/library.md").lines) {
    if (line.starts_with("```")) {
      code = line == "```cpp";
    } else if (code) {
      ++shown;
      EXPECT_TRUE(examples.contains(trimmed(line))) << line;
    }
  }
  EXPECT_GT(shown, 50);
}
