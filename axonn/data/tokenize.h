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

/// Encodes files, each one document. Behind each comes the tokenizer's end of text, if it has one
/// and the file does not end with it. Memory: a few megabytes, whatever the size of the files
/// (unless megabytes of text have no space between two words).
TokenizeProgress tokenize(const std::vector<std::string>& files, const Tokenizer& tokenizer,
                          const TokenSink& sink, const TokenizeReport& report = {});

struct TokenizeJob {
  std::string tokenizer;          ///< "bytes" or a folder
  std::vector<std::string> text;  ///< files, folders or patterns
  std::string output;             ///< PATH.bin: llm.c's format; else the prefix of Megatron's
};

/// Makes a token file; it appears whole or not at all. Errors: UsageError for what the job names,
/// Error if the disk is full.
TokenizeProgress tokenize_files(const TokenizeJob& job, const TokenizeReport& report = {});

}  // namespace axonn
