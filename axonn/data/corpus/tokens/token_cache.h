#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "axonn/data/corpus/files/text_reader.h"
#include "axonn/foundation/base/check.h"

namespace axonn {

struct TokenizeProgress;

/// A folder in which tokens are kept for later runs, and who makes them.
struct TokenCache {
  std::string folder = {};  ///< "": tokens stay in memory
  /// Whether to make what is missing or damaged. Of a run's ranks only the first does, before the
  /// others. They never change a file: they wait until they see the first one's, which takes a
  /// while on some network file systems, and throw UsageError if they do not.
  bool makes = true;
  bool writes = true;            ///< false: makes in memory what is missing, and writes nothing
  double patience_seconds = 90;  ///< NFS keeps the names in a folder for up to 60 seconds
  double part_seconds = 60;      ///< of tokenising; at most what a kill loses
};

/// The path FOLDER/KIND-KEY of data made from files. The key is a hash of `how`, which says how the
/// data is made, and of each file's path, size and modification time. If the cache makes and writes
/// data, creates the folder, and removes what killed writers left in it.
std::string cache_path(const TokenCache& cache, const std::string& kind,
                       const std::vector<std::string>& files, const std::string& how);

/// The files that a path stands for, in order: itself, or all in its folder and below. Empty if
/// there are none.
std::vector<std::string> files_below(const std::string& path);

/// Waits for a file of the cache that another rank has made and this one cannot open because of
/// `fault`. Returns `waited` plus the seconds. Throws UsageError if the cache's patience is over.
double wait_for_cached(const std::string& path, const TokenCache& cache, double waited,
                       const std::string& fault);

/// Returns open(), which reads the data at `path`. If it refuses them as missing or damaged, calls
/// make(), which replaces them; or, if the cache does not make data, waits for them; or, if it does
/// not write, returns in_memory().
template <typename Open, typename Make, typename InMemory>
auto open_cached(const std::string& path, const TokenCache& cache, const Open& open,
                 const Make& make, const InMemory& in_memory) {
  for (double waited = 0;;) {
    std::string fault;
    try {
      return open();
    } catch (const UsageError& error) {
      fault = error.what();
    }
    if (!cache.writes) return in_memory();
    if (cache.makes) break;
    waited = wait_for_cached(path, cache, waited, fault);
  }
  make();
  return open();
}

/// Tokens of files that are made in parts, so that the next run continues after the last finished
/// part if this one ends before all are made.
///
/// The list of the parts, FOLDER/KIND-KEY, has a line for each: the file, and the byte and the line
/// in it, where the next part begins, and the number of tokens; a last line "whole" once all are
/// there. Part i is in the files that begin with FOLDER/KIND-KEY-i.
class CachedParts {
 public:
  struct Part {
    std::string path;
    TextPosition end;
    std::int64_t tokens = 0;
  };

  explicit CachedParts(std::string path) : path_(std::move(path)) {}

  /// The parts. Throws UsageError if the list is missing or damaged, or if parts are missing.
  std::vector<Part> whole() const;

  /// The number of tokens in the part at `path`. Throws UsageError if it is missing or damaged.
  using CountTokens = std::function<std::int64_t(const std::string& path)>;
  /// Makes the part at `path` of what begins at `from`, adds to the progress, and returns the
  /// part's end: {number of files, 0} if it is the last.
  using MakePart = std::function<TextPosition(const TextPosition& from, const std::string& path,
                                              TokenizeProgress& progress)>;
  /// Makes the parts that are missing, and those after a damaged one.
  void make(const std::vector<std::string>& files, const CountTokens& count,
            const MakePart& make_part) const;

 private:
  struct List {
    std::vector<Part> parts;
    bool whole = false;
  };
  std::string part_path(std::size_t part) const;
  List read() const;
  std::vector<Part> good_parts(const std::vector<std::string>& files,
                               const CountTokens& count) const;
  void write(const std::vector<Part>& parts, const char* last) const;

  std::string path_;
};

}  // namespace axonn
