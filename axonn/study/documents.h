#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "axonn/data/tokenize.h"
#include "axonn/text/tokenizer.h"

namespace axonn {

/// A document for testing whether a model can recite its end.
struct StudyDocument {
  std::string name;                  ///< "document 17 of wiki.jsonl"
  std::vector<std::int32_t> tokens;  ///< with begin-of-text, without end-of-text token
};

/// The usable documents, and counts of those left out by reason.
struct FoundDocuments {
  std::vector<StudyDocument> documents;
  std::int64_t found = 0;
  std::int64_t too_short = 0, repeated = 0;
};

struct DocumentLimits {
  std::int64_t least = 1;  ///< tokens; shorter documents are left out
  std::int64_t most = 0;   ///< tokens; longer ones are cut
};

/// Reads documents from the {"text": ...} lines of JSONL files (paths or patterns), in order. A
/// document that has the same tokens as an earlier one is left out: otherwise it could be learned
/// in one bucket and tested in another. cache_folder and report: as in encode_examples().
/// Throws UsageError as encode_examples() does, and if the lines are of another kind.
FoundDocuments read_documents(const std::vector<std::string>& files,
                              std::shared_ptr<const Tokenizer> tokenizer,
                              const DocumentLimits& limits, const std::string& cache_folder,
                              const TokenizeReport& report);

/// Those of the first `count` generated records (synthetic_records.h) that are long enough.
FoundDocuments generated_documents(std::int64_t count, std::uint64_t seed,
                                   const Tokenizer& tokenizer, const DocumentLimits& limits);

/// Draws `count` different documents, in an order that depends on the seed. Throws UsageError if
/// there are fewer; the message says how many are needed and why others cannot be used.
std::vector<StudyDocument> draw_documents(FoundDocuments from, std::int64_t count,
                                          std::uint64_t seed);

}  // namespace axonn
