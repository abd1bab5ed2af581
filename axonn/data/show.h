#pragma once

#include <cstdint>
#include <string>

#include "axonn/data/packing.h"
#include "axonn/data/token_file.h"
#include "axonn/text/tokenizer.h"

namespace axonn {

struct ShowOptions {
  const Tokenizer* tokenizer = nullptr;  ///< if given, the first tokens are shown as text too
  std::int64_t first = 32;               ///< number of first tokens
};

/// Describes a token file, one fact per line: format, type, tokens, documents, smallest and largest
/// token, the first tokens. Reads the whole file once.
std::string describe(const TokenFile& file, const ShowOptions& options = {});

struct ShowExamples {
  const Tokenizer* tokenizer = nullptr;
  std::int64_t sequence = 0;  ///< number of the sequence to show
};

/// Describes packed documents, one fact per line, and shows one sequence, one document per line,
/// with learned tokens between « and ».
std::string describe(const PackedDocuments& packed, std::int64_t seq_len,
                     const ShowExamples& options);

}  // namespace axonn
