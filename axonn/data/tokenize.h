#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "axonn/base/check.h"
#include "axonn/base/files.h"
#include "axonn/data/token_file.h"
#include "axonn/text/tokenizer.h"

namespace axonn {

struct TokenizeProgress {
  std::int64_t bytes, total_bytes;  ///< of text
  std::int64_t tokens;              ///< made so far
};

/// Called after every few megabytes of text.
using TokenizeReport = std::function<void(const TokenizeProgress&)>;

/// Receives the pieces of a document, then its end.
struct TokenSink {
  std::function<void(std::span<const std::int32_t>)> append;
  std::function<void()> end_document = [] {};
};

struct TokenizeOptions {
  int threads = 0;   ///< 0: one for each core that this thread may run on
  bool ends = true;  ///< whether to put an end-of-text token after each file
  TokenizeReport report = {};
};

/// Encodes files, one document each. A document begins with the tokenizer's begin-of-text token and
/// ends, if options.ends, with its end-of-text token; a token that does not exist or is already
/// there in the text is not added. Several threads encode pieces of the files; the sink is called
/// in order, on the caller's thread. Memory: about 20 MB per thread for files of any size (unless
/// megabytes of text have no place where the tokenizer can cut).
TokenizeProgress tokenize(const std::vector<std::string>& files, const Tokenizer& tokenizer,
                          const TokenSink& sink, const TokenizeOptions& options = {});

/// Tokenises text files in memory.
std::shared_ptr<const TokenSource> tokenize_in_memory(const std::vector<std::string>& files,
                                                      const Tokenizer& tokenizer,
                                                      const TokenizeOptions& options = {});

/// A folder in which tokens are kept for later runs, and who makes them.
struct TokenCache {
  std::string folder = {};  ///< "": tokens stay in memory
  /// Whether to make what is missing or damaged. Of a run's ranks only the first does, before the
  /// others. They never change a file: they wait until they see the first one's, which takes a
  /// while on some network file systems, and throw UsageError if they do not.
  bool makes = true;
  double patience_seconds = 90;  ///< NFS keeps the names in a folder for up to 60 seconds
  double part_seconds = 60;      ///< of tokenising text; at most what a kill loses
};

/// Opens the tokens of these text files in the cache; makes them first if they are missing or
/// damaged. They are made in parts, so that the next run continues after the last finished part if
/// this one ends before all are made.
///
/// FOLDER/tokens-KEY has a line for each part: the file and the byte in it where the text of the
/// next part begins, and the number of tokens; a last line "whole" once all are there. The tokens
/// are in tokens-KEY-0.bin and .idx, tokens-KEY-1.bin, ..., in Megatron's format.
std::shared_ptr<const TokenSource> tokenize_cached(const std::vector<std::string>& files,
                                                   const Tokenizer& tokenizer,
                                                   const TokenCache& cache,
                                                   const TokenizeReport& report);

/// Makes a token file, atomically. tokenizer: as for make_tokenizer(). text: files, folders or
/// patterns. output: PATH.bin for llm.c's format; else the prefix of Megatron's. Throws UsageError
/// for faults in these values, Error if the disk is full.
TokenizeProgress tokenize_files(const std::string& tokenizer, const std::vector<std::string>& text,
                                const std::string& output, const TokenizeOptions& options = {});

/// The path FOLDER/KIND-KEY of data made from files. The key is a hash of `how`, which says how the
/// data is made, and of each file's path, size and modification time. If the cache makes data,
/// creates the folder, and removes what killed writers left in it.
std::string cache_path(const TokenCache& cache, const std::string& kind,
                       const std::vector<std::string>& files, const std::string& how);

/// Waits for a file of the cache that another rank has made and this one cannot open because of
/// `fault`. Returns `waited` plus the seconds. Throws UsageError if the cache's patience is over.
double wait_for_cached(const std::string& path, const TokenCache& cache, double waited,
                       const std::string& fault);

/// Returns open(), which reads the data at `path`. If it refuses them as missing or damaged, calls
/// make(), which replaces them; or, if the cache does not make data, waits for them.
template <typename Open, typename Make>
auto open_cached(const std::string& path, const TokenCache& cache, const Open& open,
                 const Make& make) {
  for (double waited = 0;;) {
    std::string fault;
    try {
      return open();
    } catch (const UsageError& error) {
      fault = error.what();
    }
    if (cache.makes) break;
    waited = wait_for_cached(path, cache, waited, fault);
  }
  make();
  return open();
}

}  // namespace axonn
