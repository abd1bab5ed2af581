// Every file of tests is built, and the patterns of test names in scripts/ match tests that exist.
#include <regex>
#include <set>

#include <gmock/gmock.h>

#include "tests/project/source_tree.h"

using namespace axonn::testing_support;

namespace {

/// "Suite.Name" of every test.
std::set<std::string> test_names() {
  static const std::regex kTest(R"(^(?:TEST|TEST_F|TEST_P|TYPED_TEST)\((\w+), *(\w+)\))");
  std::set<std::string> names;
  for (const SourceFile& file : source_tree())
    for (const std::string& line : file.lines)
      if (std::smatch match; std::regex_search(line, match, kTest))
        names.insert(match.str(1) + "." + match.str(2));
  return names;
}

/// Words in the lists of a script that look like GoogleTest patterns: "Study.Finds*", "Search*". A
/// list's lines are indented or begin with the quoted name of a test program.
std::set<std::string> patterns_in(const std::string& path) {
  static const std::regex kLine(R"(^    [A-Z*]|^  "\w+_test |^[A-Z]+ = "[A-Z])");
  static const std::regex kPattern(R"([A-Za-z*]\w*\*?\w*(\.[\w*]+)?(/\w+)?)");
  std::set<std::string> patterns;
  for (const std::string& line : read_source(path).lines) {
    if (!std::regex_search(line, kLine)) continue;
    const std::string words = line.substr(line.find_first_of("' ") + 1);
    for (auto at = std::sregex_iterator(words.begin(), words.end(), kPattern);
         at != std::sregex_iterator(); ++at)
      if (at->str().find('*') != std::string::npos) patterns.insert(at->str());
  }
  return patterns;
}

bool matches(const std::string& pattern, const std::string& name) {
  const std::string test = pattern.substr(0, pattern.find('/'));  // without the parameter
  std::string expression;
  for (const char c : test) expression += c == '*' ? ".*" : c == '.' ? "\\." : std::string(1, c);
  return std::regex_match(name, std::regex(expression));
}

}  // namespace

TEST(Filters, EveryPatternOfTheTestsPartsMatchesATest) {
  const std::set<std::string> names = test_names();
  EXPECT_GT(names.size(), 1000);
  const char* const script = "scripts/testing/parts.py";
  const std::set<std::string> patterns = patterns_in(script);
  EXPECT_GT(patterns.size(), 5) << script;
  for (const std::string& pattern : patterns)
    EXPECT_TRUE(
        std::ranges::any_of(names, [&](const auto& name) { return matches(pattern, name); }))
        << script << ": no test matches " << pattern;
}

TEST(TestFiles, AreAllInTheListsOfTheirFolders) {
  std::string lists;
  for (const SourceFile& file : source_tree())
    if (file.path.starts_with("tests/") && file.ends_with("CMakeLists.txt"))
      for (const std::string& line : file.lines) lists += ' ' + line + ' ';
  for (const SourceFile& file : source_tree()) {
    if (!file.path.starts_with("tests/") || !file.ends_with("_test.cpp")) continue;
    const std::string name = file.path.substr(file.path.rfind('/') + 1);
    EXPECT_TRUE(lists.find(' ' + name) != std::string::npos ||
                lists.find('/' + name) != std::string::npos)
        << "no CMakeLists.txt builds " << file.path;
  }
}
