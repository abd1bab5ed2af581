#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "axonn/data/corpus/tokens/token_cache.h"
#include "axonn/data/corpus/tokens/token_file.h"
#include "axonn/data/text/tokenizer.h"
#include "axonn/foundation/base/log.h"

namespace axonn {

struct TokenizeProgress {
  std::int64_t bytes, total_bytes;  ///< of the files
  std::int64_t tokens;              ///< made so far
};

/// Called after every few megabytes of text.
using TokenizeReport = std::function<void(const TokenizeProgress&)>;

/// The name of the progress of tokenising.
inline constexpr const char* kTokenizing = "tokenizing";

/// A report that shows the progress on a line, which must outlive it.
TokenizeReport report_to(ProgressLine& line);

/// Receives the pieces of a document, then its end.
struct TokenSink {
  std::function<void(std::span<const std::int32_t>)> append;
  std::function<void()> end_document = [] {};
};

struct TokenizeOptions {
  int threads = 0;             ///< 0: one for each core that this thread may run on
  bool ends = true;            ///< whether to put an end-of-text token after each document
  std::string field = "text";  ///< of a line of JSON: the document
  /// tokenize() encodes part `part` of `parts` of about equal size. The tokens of all parts are
  /// those of the files. Files are cut where the tokenizer, or a line of JSON, allows it, and
  /// compressed files are not cut; so parts may be empty.
  int part = 0, parts = 1;
  TokenizeReport report = {};
};

/// Encodes files of text, one document each, and files of JSON lines (is_json_lines()), one
/// document for each line that is not blank: the string under options.field. Files may be
/// compressed (text_reader.h). A document begins with the tokenizer's begin-of-text token and ends,
/// if options.ends, with its end-of-text token; a token that does not exist or is already there in
/// the text is not added. Several threads encode pieces of the files; the sink is called in order,
/// on the caller's thread. Memory: about 20 MB per thread for files of any size (unless megabytes
/// of text have no position where the tokenizer can cut, or a line has as many). Throws UsageError
/// with the file and the byte or line if it is damaged or not such a file.
TokenizeProgress tokenize(const std::vector<std::string>& files, const Tokenizer& tokenizer,
                          const TokenSink& sink, const TokenizeOptions& options = {});

/// Tokenises text files in memory.
std::shared_ptr<const TokenSource> tokenize_in_memory(const std::vector<std::string>& files,
                                                      const Tokenizer& tokenizer,
                                                      const TokenizeOptions& options = {});

/// Opens the tokens of these text files in the cache; makes them first, in CachedParts, if they are
/// missing or damaged. The parts are files in Megatron's format.
std::shared_ptr<const TokenSource> tokenize_cached(const std::vector<std::string>& files,
                                                   const Tokenizer& tokenizer,
                                                   const TokenCache& cache,
                                                   const TokenizeOptions& options = {});

/// The tokenizer and the files that make a token file. Throws as tokenize_files() does.
struct TokenizeInput {
  std::shared_ptr<const Tokenizer> tokenizer;
  std::vector<std::string> files;
};
TokenizeInput tokenize_input(const std::string& tokenizer, const std::vector<std::string>& text,
                             const std::string& output);

/// Throws UsageError if the files gave no tokens, or only those that begin and end documents.
void need_text(const TokenizeInput& input, std::int64_t tokens, std::int64_t documents, bool ends);

/// Makes a token file, atomically. tokenizer: as for make_tokenizer(). text: files, folders or
/// patterns. output: PATH.bin for llm.c's format; else the prefix of Megatron's. Throws UsageError
/// for faults in these values, Error if the disk is full.
TokenizeProgress tokenize_files(const std::string& tokenizer, const std::vector<std::string>& text,
                                const std::string& output, const TokenizeOptions& options = {});

}  // namespace axonn
