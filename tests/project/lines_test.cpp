// Holds the number of lines on each floor, so that growth is a decision: whoever raises a figure
// says in the commit what the lines give, and what went in their place.
#include <gmock/gmock.h>

#include "tests/project/source_tree.h"

using namespace axonn::testing_support;

namespace {

/// Lines of C++, CUDA, JavaScript and HTML on a floor at most.
const std::map<std::string, std::int64_t> kMost = {
    {"foundation", 5730}, {"compute", 28120}, {"ranks", 10350}, {"data", 32620}, {"network", 20790},
    {"run", 17490},       {"use", 15250},     {"plan", 8400},   {"app", 14690}};

std::map<std::string, std::int64_t> lines_of_floors(const std::vector<SourceFile>& files) {
  std::map<std::string, std::int64_t> lines;
  for (const SourceFile& file : files)
    if (!file.floor().empty() &&
        (file.is_cpp() || file.ends_with(".js") || file.ends_with(".html")))
      lines[file.floor()] += std::ssize(file.lines);
  return lines;
}

}  // namespace

TEST(Lines, OfEachFloorAreNotMoreThanItsBudget) {
  const auto lines = lines_of_floors(source_tree());
  ASSERT_EQ(lines.size(), kMost.size());
  for (const auto& [floor, count] : lines)
    EXPECT_LE(count, kMost.at(floor))
        << "lines of axonn/" << floor << "; leave something out, or raise kMost with a reason";
}

TEST(Lines, AreThoseOfSourcesOnAFloor) {
  EXPECT_THAT(lines_of_floors({source_file("axonn/data/text/a.h", "1\n2\n"),
                               source_file("axonn/data/corpus/b/c.js", "1\n"),
                               source_file("axonn/data/CMakeLists.txt", "1\n"),
                               source_file("axonn/axonn.h", "1\n"),
                               source_file("tests/data/text/a.cpp", "1\n")}),
              testing::ElementsAre(testing::Pair("data", 3)));
}
