// Every test has an assertion outside of loops that may not run.
#include <algorithm>
#include <regex>

#include <gmock/gmock.h>

#include "tests/project/source_tree.h"

using namespace axonn::testing_support;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

namespace {

/// The place behind the bracket that closes the one at `open`.
std::size_t behind_bracket(const std::string& code, std::size_t open) {
  int depth = 0;
  for (std::size_t i = open; i < code.size(); ++i) {
    if (std::string_view("({[").find(code[i]) != std::string_view::npos) ++depth;
    if (std::string_view(")}]").find(code[i]) != std::string_view::npos && --depth == 0)
      return i + 1;
  }
  return code.size();
}

/// The place behind the statement at `begin`. A loop or a condition includes what it governs.
std::size_t behind_statement(const std::string& code, std::size_t begin) {
  begin = code.find_first_not_of(" \n", begin);
  if (code[begin] == '{') return behind_bracket(code, begin);
  if (code.compare(begin, 4, "for ") == 0 || code.compare(begin, 3, "if ") == 0)
    return behind_statement(code, behind_bracket(code, code.find('(', begin)));
  while (begin < code.size() && code[begin] != ';')
    begin = std::string_view("({[").find(code[begin]) != std::string_view::npos
                ? behind_bracket(code, begin)
                : begin + 1;
  return begin;
}

/// Whether a range may be empty: a member of a result. Lists in braces, constants and the functions
/// of tests are taken to have elements.
bool may_be_empty(const std::string& range) {
  static const std::regex kList(R"([\w:<>(), ]*\{)"), kMember(R"([\w)\]](\.|->)[a-z])");
  return !std::regex_search(range, kList, std::regex_constants::match_continuous) &&
         std::regex_search(range, kMember);
}

/// Empties the loops over ranges that may be empty.
std::string without_loops(std::string body) {
  static const std::regex kLoop(R"(for \(([^;:()]|::)*[^:]:\s)");
  for (std::smatch loop; std::regex_search(body, loop, kLoop);) {
    const auto begin = static_cast<std::size_t>(loop.position());
    const std::size_t range = begin + static_cast<std::size_t>(loop.length()),
                      closed = behind_bracket(body, body.find('(', begin));
    if (may_be_empty(body.substr(range, closed - 1 - range)))
      body.replace(begin, behind_statement(body, closed) - begin, ";");
    else
      body.replace(begin, 4, "for  ");  // seen
  }
  return body;
}

/// "tests/a_test.cpp: Suite.Name", of each test whose assertions may all be left out.
std::vector<std::string> idle_tests(const SourceFile& file) {
  static const std::regex kTest(R"(\nTEST(?:_F|_P)?\((\w+), (\w+)\) \{)"),
      kAssertion(R"(\b(EXPECT_|ASSERT_|FAIL\b|ADD_FAILURE|GTEST_|expect_|check_|compare_))");
  std::vector<std::string> found;
  const std::string code = '\n' + bare_code(file);
  for (auto at = std::sregex_iterator(code.begin(), code.end(), kTest);
       at != std::sregex_iterator(); ++at) {
    const auto open = static_cast<std::size_t>(at->position() + at->length() - 1);
    const std::string body = code.substr(open, behind_bracket(code, open) - open);
    if (std::regex_search(body, kAssertion) && !std::regex_search(without_loops(body), kAssertion))
      found.push_back(file.path + ": " + at->str(1) + '.' + at->str(2));
  }
  return found;
}

}  // namespace

TEST(Loops, OfResultsHaveNotAllAssertionsOfATest) {
  std::vector<std::string> found;
  for (const SourceFile& file : source_tree())
    if (file.path.starts_with("tests/") && file.ends_with("_test.cpp"))
      std::ranges::move(idle_tests(file), std::back_inserter(found));
  EXPECT_THAT(found, IsEmpty()) << "check first that the range is not empty";
}

TEST(Loops, ThatMayNotRunAreFound) {
  const auto found = [](const std::string& body) {
    return idle_tests(source_file("tests/a_test.cpp", "TEST(A, B) {\n" + body + "\n}\n"));
  };
  const std::string loop = "for (const auto& one : run.all())\n    for (int i : {1, 2})\n      ";
  EXPECT_THAT(found(loop + "EXPECT_GT(one, f([] { return 1; }));"),
              ElementsAre(HasSubstr("tests/a_test.cpp: A.B")));
  EXPECT_THAT(found("for (const auto& one : of(run)->lines) {\n    EXPECT_GT(one, 0);\n  }"),
              ElementsAre(HasSubstr("A.B")));
  EXPECT_THAT(found("ASSERT_THAT(run.all(), SizeIs(2));\n  " + loop + "EXPECT_GT(one, i);"),
              IsEmpty());
  EXPECT_THAT(found("for (int i : {run.size()}) EXPECT_GT(i, 0);"), IsEmpty());
  EXPECT_THAT(found("for (int i : kAll) EXPECT_GT(i, 0);"), IsEmpty());
}
