#pragma once

#include <cstdint>
#include <filesystem>
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

/// Opens the token file of these text files in `folder`; makes it first if it is missing or
/// damaged.
std::shared_ptr<const TokenSource> tokenize_cached(const std::vector<std::string>& files,
                                                   const Tokenizer& tokenizer,
                                                   const std::string& folder,
                                                   const TokenizeReport& report);

/// Makes a token file, atomically. tokenizer: as for make_tokenizer(). text: files, folders or
/// patterns. output: PATH.bin for llm.c's format; else the prefix of Megatron's. Throws UsageError
/// for faults in these values, Error if the disk is full.
TokenizeProgress tokenize_files(const std::string& tokenizer, const std::vector<std::string>& text,
                                const std::string& output, const TokenizeOptions& options = {});

/// The path FOLDER/KIND-KEY of data made from files; creates the folder. The key is a hash of
/// `how`, which says how the data is made, and of each file's path, size and modification time.
std::string cache_path(const std::string& folder, const std::string& kind,
                       const std::vector<std::string>& files, const std::string& how);

/// Returns open(), which reads the file at `path`. If there is no such file, or open() refuses it
/// as damaged, calls make(), which writes it. Several processes may do so at once: each writes its
/// own file, and the last one stays.
template <typename Open, typename Make>
auto open_cached(const std::string& path, const Open& open, const Make& make) {
  if (path_exists(path)) {
    try {
      return open();
    } catch (const UsageError&) {
      std::error_code ignored;
      std::filesystem::remove(path, ignored);
    }
  }
  make();
  return open();
}

}  // namespace axonn
