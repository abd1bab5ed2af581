#include "axonn/data/corpus/tokens/token_cache.h"

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <span>
#include <sstream>
#include <thread>

#include "axonn/data/corpus/tokens/tokenize.h"
#include "axonn/foundation/base/files.h"
#include "axonn/foundation/base/hash.h"
#include "axonn/foundation/base/random.h"

namespace axonn {

namespace fs = std::filesystem;

std::string cache_path(const TokenCache& cache, const std::string& kind,
                       const std::vector<std::string>& files, const std::string& how) {
  if (cache.makes && cache.writes) {
    make_folders(cache.folder);
    remove_abandoned(cache.folder);
  }
  std::error_code error;  // ignored: opening a missing file gives a better message
  std::string key = how;
  for (const std::string& file : files)
    key +=
        concat('\n', fs::weakly_canonical(file, error).string(), '\n', fs::file_size(file, error),
               '\n', fs::last_write_time(file, error).time_since_epoch().count());
  return concat(cache.folder, '/', kind, '-', hex_of(hash_text(key)));
}

std::vector<std::string> files_below(const std::string& path) {
  if (fs::is_regular_file(path)) return {path};
  std::vector<std::string> files;
  if (fs::is_directory(path))
    for (const fs::directory_entry& entry : fs::recursive_directory_iterator(path))
      if (entry.is_regular_file()) files.push_back(entry.path());
  std::ranges::sort(files);
  return files;
}

double wait_for_cached(const std::string& path, const TokenCache& cache, double waited,
                       const std::string& fault) {
  if (waited >= cache.patience_seconds)
    refuse("after ", waited, " seconds this rank still cannot read ", path,
           ", which the run's first rank made: ", fault,
           "; output.dir must be on a file system that all ranks share, and the data files must "
           "have the same paths and times on all of them");
  const double seconds = std::clamp(waited, 0.05, 2.0);
  std::this_thread::sleep_for(std::chrono::duration<double>(seconds));
  // Listing the folder makes an NFS client ask its server for the names.
  std::error_code error;
  for (fs::directory_iterator at(cache.folder, error), end; !error && at != end;)
    at.increment(error);
  return waited + seconds;
}

std::string CachedParts::part_path(std::size_t part) const { return concat(path_, '-', part); }

CachedParts::List CachedParts::read() const {
  List list;
  std::istringstream lines(read_text(path_));
  for (std::string line; std::getline(lines, line);) {
    if (list.whole) refuse(path_, " goes on after its end");
    list.whole = line == "whole" && !list.parts.empty();
    if (list.whole) continue;
    Part part{.path = part_path(list.parts.size()), .end = {}};
    std::istringstream fields(line);
    if (!(fields >> part.end.file >> part.end.byte >> part.tokens))
      refuse(path_, ": '", line, "' is not a part");
    fields >> part.end.line;
    list.parts.push_back(std::move(part));
  }
  return list;
}

std::vector<CachedParts::Part> CachedParts::whole() const {
  List list = read();
  if (!list.whole) refuse(path_, ": not all text is tokenised");
  return std::move(list.parts);
}

std::vector<CachedParts::Part> CachedParts::good_parts(const std::vector<std::string>& files,
                                                       const CountTokens& count) const {
  std::vector<Part> parts;
  std::size_t good = 0;
  try {
    parts = read().parts;
    for (; good < parts.size(); ++good) {
      const auto& [file, byte, line] = parts[good].end;
      if (count(parts[good].path) != parts[good].tokens) break;
      if (file > files.size() || byte < 0 || line < 0) break;
      if (byte > 0 && file == files.size()) break;
      if (byte > 0 && is_stored_as_text(files[file]) && byte >= InputFile(files[file]).bytes())
        break;
    }
  } catch (const UsageError&) {  // missing or damaged
  }
  parts.resize(good);
  return parts;
}

void CachedParts::write(const std::vector<Part>& parts, const char* last) const {
  std::string list;
  for (const auto& [path, end, tokens] : parts)
    list += concat(end.file, ' ', end.byte, ' ', tokens, ' ', end.line, '\n');
  write_file_atomically(path_, list + last);
}

void CachedParts::make(const std::vector<std::string>& files, const CountTokens& count,
                       const MakePart& make_part) const {
  std::vector<Part> parts = good_parts(files, count);
  TextPosition from = parts.empty() ? TextPosition{} : parts.back().end;
  TokenizeProgress progress{};
  for (const std::string& file : files) progress.total_bytes += InputFile(file).bytes();
  for (const Part& part : parts) progress.tokens += part.tokens;
  while (parts.empty() || from.file < files.size()) {
    Part part{.path = part_path(parts.size()), .end = {}};
    const std::int64_t before = progress.tokens;
    part.end = from = make_part(from, part.path, progress);
    part.tokens = progress.tokens - before;
    parts.push_back(std::move(part));
    write(parts, "");
  }
  write(parts, "whole\n");
}

}  // namespace axonn
