#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "axonn/data/tokenizer.h"

namespace axonn {

struct TokenizeProgress {
  std::int64_t bytes, total_bytes;  ///< of text
  std::int64_t tokens;              ///< made so far
};

/// Called after every few megabytes of text.
using TokenizeReport = std::function<void(const TokenizeProgress&)>;

/// Where tokens go: pieces of a document, and then its end.
struct TokenSink {
  std::function<void(std::span<const std::int32_t>)> append;
  std::function<void()> end_document;
};

struct TokenizeOptions {
  int threads = 0;   ///< 0: one for each core that the process may use
  bool ends = true;  ///< whether an end of text is put behind each file
  TokenizeReport report = {};
};

/// Encodes files, each one document. Before each comes the tokenizer's beginning of text and behind
/// it, if asked, its end of text, if it has one and the file does not have it there itself. Pieces
/// of the files are encoded at once by several threads; the sink sees them in order, on the
/// caller's. Memory: about 20 MB a thread, whatever the size of the files (unless megabytes of text
/// have no place where the tokenizer can cut).
TokenizeProgress tokenize(const std::vector<std::string>& files, const Tokenizer& tokenizer,
                          const TokenSink& sink, const TokenizeOptions& options = {});

struct TokenizeJob {
  std::string tokenizer;          ///< as for make_tokenizer()
  std::vector<std::string> text;  ///< files, folders or patterns
  std::string output;             ///< PATH.bin: llm.c's format; else the prefix of Megatron's
};

/// Makes a token file; it appears whole or not at all. Errors: UsageError for what the job names,
/// Error if the disk is full.
TokenizeProgress tokenize_files(const TokenizeJob& job, const TokenizeOptions& options = {});

}  // namespace axonn
