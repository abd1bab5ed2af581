#include "tests/project/source_tree.h"

#include <algorithm>
#include <array>
#include <filesystem>
#include <fstream>
#include <iterator>

#include "axonn/foundation/base/check.h"

#include "tests/support/build_paths.h"

namespace axonn::testing_support {

namespace {

namespace fs = std::filesystem;

constexpr std::string_view kProgram = "axonn/";
constexpr std::array<std::string_view, 9> kFolders = {
    "axonn", "bench", "cmake", "configs", "docs", "examples", "scripts", "tests", ".ci"};
constexpr std::array<std::string_view, 11> kEndings = {
    ".h", ".cpp", ".cu", ".cuh", ".in", ".txt", ".cmake", ".toml", ".sh", ".html", ".js"};

bool is_source(const fs::path& path) {
  return path.has_extension() && std::ranges::find(kEndings, path.extension()) != kEndings.end();
}

/// The end of the comment or literal that starts at `begin`; `begin` if none starts there.
std::size_t end_of_blank(const std::string& text, std::size_t begin) {
  const auto upto = [&](std::string_view closing, std::size_t from) {
    const std::size_t at = text.find(closing, from);
    return at == std::string::npos ? text.size() : at + closing.size();
  };
  if (text.compare(begin, 2, "//") == 0) return std::min(text.find('\n', begin), text.size());
  if (text.compare(begin, 2, "/*") == 0) return upto("*/", begin + 2);
  if (text.compare(begin, 2, "R\"") == 0) {
    const std::size_t open = text.find('(', begin);
    return upto(")" + text.substr(begin + 2, open - begin - 2) + "\"", open);
  }
  const char quote = text[begin];
  const bool digits = begin > 0 && std::isalnum(static_cast<unsigned char>(text[begin - 1]));
  if (quote != '"' && (quote != '\'' || digits)) return begin;  // 1'000 is a number, not a quote
  for (std::size_t i = begin + 1; i < text.size(); ++i) {
    if (text[i] == quote) return i + 1;
    if (text[i] == '\\') ++i;
  }
  return text.size();
}

}  // namespace

std::string SourceFile::floor() const {
  const std::size_t slash = path.find('/', kProgram.size());
  if (!path.starts_with(kProgram) || slash == std::string::npos) return {};
  return path.substr(kProgram.size(), slash - kProgram.size());
}

std::string SourceFile::room() const {
  const std::size_t begin = kProgram.size() + floor().size() + 1, end = path.find('/', begin);
  return floor().empty() || end == std::string::npos ? "" : path.substr(begin, end - begin);
}

SourceFile source_file(std::string path, std::string_view text) {
  SourceFile file{.path = std::move(path), .lines = {}};
  while (!text.empty()) {
    const std::size_t end = text.find('\n');
    file.lines.emplace_back(text.substr(0, end));
    text.remove_prefix(end == std::string_view::npos ? text.size() : end + 1);
  }
  return file;
}

SourceFile read_source(const std::string& path) {
  std::ifstream in(fs::path(test::source_folder()) / path, std::ios::binary);
  AXONN_CHECK(in, path, ": cannot read this file");
  return source_file(path, std::string(std::istreambuf_iterator<char>(in), {}));
}

std::vector<SourceFile> source_tree() {
  const fs::path root = test::source_folder();
  std::vector<std::string> paths;
  for (const std::string_view folder : kFolders) {
    if (!fs::is_directory(root / folder)) continue;
    for (const auto& entry : fs::recursive_directory_iterator(root / folder))
      if (entry.is_regular_file() && is_source(entry.path()))
        paths.push_back(fs::relative(entry.path(), root).generic_string());
  }
  std::ranges::sort(paths);
  std::vector<SourceFile> files;
  for (const std::string& path : paths) files.push_back(read_source(path));
  return files;
}

std::string included_by(const std::string& line) {
  constexpr std::string_view kInclude = "#include ";
  if (!line.starts_with(kInclude)) return {};
  const std::string rest = line.substr(kInclude.size());
  if (rest.starts_with('<')) return rest.substr(0, rest.find('>') + 1);
  return rest.substr(1, rest.find('"', 1) - 1);
}

std::string bare_code(const SourceFile& file) {
  std::string text;
  bool preprocessor = false;
  for (const std::string& line : file.lines) {
    const bool begins = line.starts_with('#');
    text += (begins || preprocessor ? std::string() : line) + '\n';
    preprocessor = (begins || preprocessor) && line.ends_with('\\');
  }
  for (std::size_t i = 0; i < text.size();) {
    const std::size_t end = end_of_blank(text, i);
    for (std::size_t k = i; k < end; ++k)
      if (text[k] != '\n') text[k] = ' ';
    i = std::max(end, i + 1);
  }
  return text;
}

}  // namespace axonn::testing_support
