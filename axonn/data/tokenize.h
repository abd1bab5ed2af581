#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "axonn/data/token_writer.h"
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
  std::function<void()> end_document;
};
/// Passes everything on to the writer.
TokenSink sink_of(TokenWriter& writer);

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

struct TokenizeJob {
  std::string tokenizer;          ///< as for make_tokenizer()
  std::vector<std::string> text;  ///< files, folders or patterns
  std::string output;             ///< PATH.bin: llm.c's format; else the prefix of Megatron's
};

/// Makes a token file, atomically. Throws UsageError for faults in the job's values, Error if the
/// disk is full.
TokenizeProgress tokenize_files(const TokenizeJob& job, const TokenizeOptions& options = {});

}  // namespace axonn
