// docs/library.md shows code of the examples, which are built against the installed library, and
// names only what is installed.
#include <regex>
#include <set>

#include <gmock/gmock.h>

#include "tests/project/source_tree.h"

using namespace axonn::testing_support;
using testing::AllOf;
using testing::Contains;
using testing::Gt;
using testing::IsSubsetOf;
using testing::SizeIs;

namespace {

using Names = std::set<std::string>;

std::string trimmed(const std::string& line) {
  const std::size_t begin = line.find_first_not_of(' ');
  return begin == std::string::npos ? "" : line.substr(begin);
}

/// The first group of the pattern that matches, wherever one does.
Names all_matches(const std::string& text, const char* pattern) {
  Names names;
  const std::regex regex(pattern);
  for (std::sregex_iterator at(text.begin(), text.end(), regex), end; at != end; ++at)
    names.insert((*at)[1].matched ? (*at)[1] : (*at)[2]);
  return names;
}

struct Page {
  Names code = {};   ///< lines of C++, without indentation
  std::string text;  ///< outside of code
  Names spans;       ///< `between backticks` in the text
};

Page library_page() {
  Page page;
  std::string language;
  for (const std::string& line : read_source("docs/library.md").lines) {
    if (line.starts_with("```")) {
      language = language.empty() ? line : "";
    } else if (language.empty()) {
      page.text += line + '\n';
    } else if (language == "```cpp") {
      page.code.insert(trimmed(line));
    }
  }
  page.spans = all_matches(page.text, "`([^`]+)`");
  return page;
}

/// The public headers that the page lists, without comments, and all that they include.
std::string installed_code(const Page& page) {
  Names todo = all_matches(page.text, "`(axonn/[a-z_/]+[.]h)`"), done;
  Names roots;
  for (const std::string& line : read_source("cmake/public-headers.cmake").lines)
    roots.merge(all_matches(line, "(axonn/[a-z_/]+[.]h)"));
  EXPECT_EQ(todo, roots);
  std::string code;
  while (!todo.empty()) {
    const SourceFile header = read_source(todo.extract(todo.begin()).value());
    done.insert(header.path);
    code += bare_code(header);
    for (const std::string& line : header.lines)
      if (const std::string path = included_by(line); path.starts_with("axonn/"))
        if (!done.contains(path)) todo.insert(path);
  }
  return code;
}

}  // namespace

TEST(LibraryPage, ShowsCodeOfTheExamplesAlone) {
  Names examples;
  for (const SourceFile& file : source_tree())
    if (file.path.starts_with("examples/") && file.is_cpp())
      for (const std::string& line : file.lines) examples.insert(trimmed(line));
  EXPECT_THAT(library_page().code, AllOf(SizeIs(Gt(50u)), IsSubsetOf(examples)));
}

TEST(LibraryPage, NamesOnlyTypesAndFunctionsThatInstalledHeadersDeclare) {
  const Page page = library_page();
  const std::string code = installed_code(page);
  // A forward declaration, which ends before a brace, is no type that a program can use.
  const Names types = all_matches(
                  code, R"(\b(?:class|struct)\s+([A-Z]\w*)[^;{}()<>]*\{|\busing\s+([A-Z]\w*)\s*=)"),
              functions = all_matches(code, R"(\b([a-z_]+)\s*\()");
  EXPECT_THAT(types, Contains("Training"));
  for (const std::string& span : page.spans) {
    if (span.find('/') != std::string::npos) continue;  // a path or a command
    EXPECT_THAT(all_matches(span, R"(\b([A-Z][a-z]\w*))"), IsSubsetOf(types)) << span;
    EXPECT_THAT(all_matches(span, R"(\b([a-z_]+)(?:<\w+>)?\()"), IsSubsetOf(functions)) << span;
  }
}
