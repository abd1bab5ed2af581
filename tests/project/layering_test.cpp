// Checks every #include in axonn/ against the table in docs/overview.md.
#include <algorithm>
#include <sstream>

#include <gmock/gmock.h>

#include "tests/project/source_tree.h"

using namespace axonn::testing_support;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

namespace {

/// A row of the table: a folder, and the folders (or single headers) that it may include.
struct Layer {
  std::string folder;
  std::vector<std::string> may_include;
};

/// The rows between ```layers and ```.
std::vector<Layer> parse_layers(const SourceFile& document) {
  std::vector<Layer> layers;
  bool inside = false;
  for (const std::string& line : document.lines) {
    if (line.starts_with("```")) {
      inside = line == "```layers";
    } else if (inside) {
      std::istringstream words(line);
      Layer layer;
      words >> layer.folder;
      for (std::string word; words >> word;) layer.may_include.push_back(word);
      layers.push_back(layer);
    }
  }
  return layers;
}

bool allowed(const std::vector<Layer>& layers, const std::string& folder,
             const std::string& header) {  // "base/check.h"
  const std::string to = header.substr(0, header.find('/'));
  if (to == folder) return true;
  const auto layer = std::ranges::find(layers, folder, &Layer::folder);
  if (layer == layers.end()) return false;
  return std::ranges::any_of(layer->may_include,
                             [&](const std::string& one) { return one == to || one == header; });
}

std::vector<std::string> violations(const std::vector<Layer>& layers,
                                    const std::vector<SourceFile>& files) {
  std::vector<std::string> found;
  for (const SourceFile& file : files) {
    if (file.folder().empty() || !file.is_cpp()) continue;
    for (std::size_t i = 0; i < file.lines.size(); ++i) {
      const std::string header = included_by(file.lines[i]);
      if (header.empty() || header.starts_with('<')) continue;
      if (!header.starts_with("axonn/") || !allowed(layers, file.folder(), header.substr(6)))
        found.push_back(file.path + ":" + std::to_string(i + 1) + " includes " + header);
    }
  }
  return found;
}

/// Finds headers of third-party libraries that axonn's headers include. Exceptions: the private
/// headers of the mpi transport, of oneDNN's versions and of JSON files that are read, and the
/// compiler's header of vector instructions.
std::vector<std::string> foreign_headers(const std::vector<SourceFile>& files) {
  std::vector<std::string> found;
  for (const SourceFile& file : files) {
    if (file.folder().empty() || !file.ends_with(".h")) continue;
    if (file.path.starts_with("axonn/comm/mpi/mpi_")) continue;
    if (file.path == "axonn/ops/cpu/matmul/onednn.h") continue;
    if (file.path == "axonn/model/json_reader.h" || file.path == "axonn/base/asked_keys.h" ||
        file.path == "axonn/serve/request_body.h")
      continue;
    for (const std::string& line : file.lines) {
      const std::string header = included_by(line);
      if (header == "<immintrin.h>") continue;
      if (header.starts_with('<') && header.find_first_of("./") != std::string::npos)
        found.push_back(file.path + " includes " + header);
    }
  }
  return found;
}

std::vector<Layer> table() { return parse_layers(read_source("docs/overview.md")); }

}  // namespace

TEST(Layering, EveryIncludeIsInTheTableOfTheOverview) {
  EXPECT_THAT(violations(table(), source_tree()), IsEmpty());
}

TEST(Layering, TheTableHasEveryFolderOnceAndRefersOnlyToFoldersAbove) {
  std::vector<std::string> above;
  for (const Layer& layer : table()) {
    EXPECT_THAT(above, testing::Not(testing::Contains(layer.folder)));
    for (const std::string& one : layer.may_include)
      EXPECT_THAT(above, testing::Contains(one.substr(0, one.find('/')))) << layer.folder;
    above.push_back(layer.folder);
  }
  for (const SourceFile& file : source_tree())
    if (!file.folder().empty()) {
      EXPECT_THAT(above, testing::Contains(file.folder())) << file.path;
    }
}

TEST(Layering, AnIncludeThatTheTableDoesNotAllowIsReportedWithItsLine) {
  const std::vector<Layer> layers = {{"base", {}}, {"comm", {"base"}}, {"io", {"comm/grid.h"}}};
  const auto found = [&](const char* path, const char* text) {
    return violations(layers, {source_file(path, text)});
  };
  EXPECT_THAT(found("axonn/base/a.h", "#pragma once\n#include \"axonn/comm/grid.h\"\n"),
              ElementsAre("axonn/base/a.h:2 includes axonn/comm/grid.h"));
  EXPECT_THAT(found("axonn/comm/a.cpp", "#include \"axonn/base/check.h\"\n#include <map>\n"),
              IsEmpty());
  EXPECT_THAT(found("axonn/io/a.cpp", "#include \"axonn/comm/grid.h\"\n"), IsEmpty());
  EXPECT_THAT(found("axonn/io/a.cpp", "#include \"axonn/comm/self.h\"\n"),
              ElementsAre(HasSubstr("a.cpp:1")));
  EXPECT_THAT(found("axonn/io/a.cpp", "#include \"tests/support/tiny_model.h\"\n"),
              ElementsAre(HasSubstr("tests/support")));
  EXPECT_THAT(found("axonn/new/a.cpp", "#include \"axonn/base/check.h\"\n"),
              ElementsAre(HasSubstr("axonn/new")));
}

TEST(Layering, NoHeaderIncludesAThirdPartyLibrary) {
  EXPECT_THAT(foreign_headers(source_tree()), IsEmpty());
  EXPECT_THAT(foreign_headers({source_file("axonn/ops/a.h", "#include <oneapi/dnnl/dnnl.hpp>\n")}),
              ElementsAre(HasSubstr("dnnl")));
}
