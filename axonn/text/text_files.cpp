#include "axonn/text/text_files.h"

#include <algorithm>
#include <filesystem>

#include <glob.h>

#include "axonn/base/check.h"
#include "axonn/base/files.h"

namespace axonn {

namespace fs = std::filesystem;

namespace {

std::vector<std::string> files_below(const std::string& folder) {
  std::vector<std::string> files;
  std::error_code error;
  for (fs::recursive_directory_iterator
           at(folder, fs::directory_options::follow_directory_symlink, error),
       end;
       !error && at != end; at.increment(error))
    if (at->path().extension() == ".txt" && at->is_regular_file(error))
      files.push_back(at->path().string());
  if (error) refuse("cannot read the folder ", folder, ": ", error.message());
  if (files.empty()) refuse("the folder ", folder, " and those below it have no .txt files");
  std::ranges::sort(files);
  return files;
}

}  // namespace

std::vector<std::string> expand_pattern(const std::string& path) {
  if (path_exists(path) || path.find_first_of("*?[") == path.npos) return {path};
  glob_t found{};
  const int status = glob(path.c_str(), 0, nullptr, &found);  // sorted
  std::vector<std::string> paths;
  if (status == 0) paths.assign(found.gl_pathv, found.gl_pathv + found.gl_pathc);
  globfree(&found);
  if (paths.empty()) refuse("no file matches ", path);
  return paths;
}

std::vector<std::string> text_files(const std::vector<std::string>& paths) {
  std::vector<std::string> files;
  for (const std::string& pattern : paths) {
    for (const std::string& path : expand_pattern(pattern)) {
      if (path.empty()) refuse("data.text names an empty path");
      if (!path_exists(path)) refuse("there is no file or folder ", path);
      if (!is_folder(path)) {
        files.push_back(path);
        continue;
      }
      const auto below = files_below(path);
      files.insert(files.end(), below.begin(), below.end());
    }
  }
  return files;
}

std::size_t safe_cut(std::string_view text, std::size_t wanted, CutAt at) {
  const auto visible = [&](std::size_t i) { return text[i] > ' ' && text[i] <= '~'; };
  for (std::size_t i = std::max<std::size_t>(wanted, 2); i + 1 < text.size(); ++i) {
    if (text[i] == ' ' && visible(i - 1) && visible(i + 1)) return i;
    if (at == CutAt::space_or_newline && text[i - 1] == '\n' && visible(i - 2) && visible(i))
      return i;
  }
  return text.size();
}

}  // namespace axonn
