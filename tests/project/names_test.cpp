// No two headers define types of one name, but for operations, which are written ops::Name.
#include <algorithm>
#include <map>
#include <regex>
#include <set>

#include <gmock/gmock.h>

#include "tests/project/source_tree.h"

using namespace axonn::testing_support;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

namespace {

/// A type that a header defines at namespace scope.
struct Type {
  std::string space;  ///< innermost namespace as it is opened, with a colon: "axonn::cpu:"
  std::string name;
  std::string path;
};

const std::string kOperations = "ops:";

std::vector<Type> types_of(const SourceFile& file) {
  static const std::regex kOpens(
      R"(namespace\s+([\w:]*)\s*\{|)"
      R"((?:enum\s+(?:class\s+)?|class\s+|struct\s+)(\w+)(?:\s+final)?\s*(?::[^;{]*)?\{|)"
      R"(\{|\})");
  const std::string code = bare_code(file);
  std::vector<Type> types;
  std::vector<std::string> spaces;  // of each open brace; "" for others than namespaces
  for (auto at = std::sregex_iterator(code.begin(), code.end(), kOpens);
       at != std::sregex_iterator(); ++at) {
    const std::smatch& match = *at;
    if (match.str() == "}") {
      if (!spaces.empty()) spaces.pop_back();
      continue;
    }
    const bool outside = std::ranges::none_of(spaces, &std::string::empty);
    if (match[2].matched && outside && !spaces.empty())
      types.push_back({spaces.back(), match.str(2), file.path});
    spaces.push_back(match.str().starts_with("namespace") ? match.str(1) + ':' : "");
  }
  return types;
}

/// The two devices have types for the same purpose, and CMake chooses between two headers of
/// registers. Layers and operations have the same names.
bool are_alternatives(const Type& a, const Type& b) {
  const auto without = [](std::string path, const std::vector<std::string>& words) {
    for (const std::string& word : words)
      if (const std::size_t at = path.find(word); at != std::string::npos)
        path.erase(at, word.size());
    return path;
  };
  const std::set<std::string> devices = {"axonn::cpu:", "axonn::cuda:"};
  if (a.space != b.space)
    return (devices.contains(a.space) && devices.contains(b.space)) ||
           (a.space == kOperations) != (b.space == kOperations);
  const std::vector<std::string> kinds = {"_avx512", "_portable", "_cuda", "_hip"};
  return a.path != b.path && without(a.path, kinds) == without(b.path, kinds);
}

std::vector<std::string> duplicates(const std::vector<SourceFile>& files) {
  std::map<std::string, std::vector<Type>> by_name;
  for (const SourceFile& file : files)
    if (file.path.starts_with("axonn/") && (file.ends_with(".h") || file.ends_with(".cuh")))
      for (Type& type : types_of(file)) by_name[type.name].push_back(type);
  std::vector<std::string> found;
  for (const auto& [name, types] : by_name)
    for (std::size_t i = 0; i < types.size(); ++i)
      for (std::size_t j = i + 1; j < types.size(); ++j)
        if (!are_alternatives(types[i], types[j]))
          found.push_back(name + " is defined in " + types[i].path + " and " + types[j].path);
  return found;
}

}  // namespace

TEST(Names, NoTwoHeadersDefineTypesOfOneName) { EXPECT_THAT(duplicates(source_tree()), IsEmpty()); }

TEST(Names, OfOperationsAreWrittenWithTheirNamespace) {
  static const std::regex kUsing(R"(using\s+(namespace\s+)?(axonn::)?ops\b)");
  for (const SourceFile& file : source_tree())
    EXPECT_FALSE(std::regex_search(bare_code(file), kUsing)) << file.path;
}

TEST(Names, ASecondTypeOfANameIsFoundAlsoInAnotherNamespace) {
  const auto found = [](const char* a, const char* b) {
    return duplicates({source_file("axonn/a/a.h", a), source_file("axonn/b/b.h", b)});
  };
  const char* spread = "namespace axonn {\nstruct Spread {\n  double min;\n};\n}\n";
  EXPECT_THAT(found(spread, "namespace axonn {\nclass Spread final : A {\n};\n}\n"),
              ElementsAre(HasSubstr("Spread is defined in axonn/a/a.h and axonn/b/b.h")));
  EXPECT_THAT(found(spread, "namespace axonn::rowwise {\nstruct Spread {\n};\n}\n"),
              ElementsAre(HasSubstr("Spread")));
  EXPECT_THAT(found(spread, "namespace axonn {\nenum class Spread { a };\n}\n"),
              ElementsAre(HasSubstr("Spread")));
  EXPECT_THAT(
      found(spread, "namespace axonn {\nclass Spread;\nstruct A {\n  struct Spread {};\n};\n}\n"),
      IsEmpty())
      << "a declaration, and a type within a type";
  EXPECT_THAT(found("namespace axonn::cpu {\nclass Team {\n};\n}\n",
                    "namespace axonn::cuda {\nclass Team {\n};\n}\n"),
              IsEmpty());
  const char* operation = "namespace axonn {\nnamespace ops {\nstruct Spread {\n};\n}\n}\n";
  EXPECT_THAT(found(spread, operation), IsEmpty()) << "ops::Spread";
  EXPECT_THAT(found(operation, operation), ElementsAre(HasSubstr("Spread")));
}
