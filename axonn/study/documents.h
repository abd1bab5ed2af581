#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "axonn/data/tokenize.h"
#include "axonn/data/tokenizer.h"

namespace axonn {

/// A document whose end a model may recite.
struct StudyDocument {
  std::string name;                  ///< "document 17 of wiki.jsonl"
  std::vector<std::int32_t> tokens;  ///< with the tokenizer's beginning of text, without its end
};

/// The documents that were found, and why others were not taken.
struct StudyDocuments {
  std::vector<StudyDocument> documents;
  std::int64_t found = 0;
  std::int64_t too_short = 0, repeated = 0;
};

struct DocumentLimits {
  std::int64_t least = 1;  ///< tokens; shorter documents are left out
  std::int64_t most = 0;   ///< tokens; longer ones are cut
};

/// Lines of {"text": ...} of JSONL files (or patterns of them), in order. A document of which an
/// earlier one has the same tokens is left out: it could be learned in one bucket and asked for in
/// another. cache_folder and report: as encode_examples().
/// Errors: UsageError, as encode_examples(), and if the lines are of another kind.
StudyDocuments read_documents(const std::vector<std::string>& files,
                              std::shared_ptr<const Tokenizer> tokenizer,
                              const DocumentLimits& limits, const std::string& cache_folder,
                              const TokenizeReport& report);

/// The first `count` generated records (synthetic_records.h) that are long enough.
StudyDocuments generated_documents(std::int64_t count, std::uint64_t seed,
                                   const Tokenizer& tokenizer, const DocumentLimits& limits);

/// `count` of them in an order that the seed fixes, no two the same. Errors: UsageError if there
/// are fewer, which says how many, of what, are needed.
std::vector<StudyDocument> draw(StudyDocuments from, std::int64_t count, std::uint64_t seed);

}  // namespace axonn
