#pragma once

#include <cstdint>
#include <string>

#include "axonn/data/token_file.h"
#include "axonn/data/tokenizer.h"

namespace axonn {

struct ShowOptions {
  const Tokenizer* tokenizer = nullptr;  ///< if given, the first tokens are shown as text too
  std::int64_t first = 32;               ///< how many of them
};

/// What is in a token file, a fact a line: format, type, tokens, documents, smallest and largest
/// token, the first tokens. Reads the whole file once.
std::string describe(const TokenFile& file, const ShowOptions& options = {});

}  // namespace axonn
