#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "axonn/data/bpe_vocab.h"
#include "axonn/data/json_node.h"
#include "axonn/data/mapped_file.h"

namespace axonn {

/// The large tables of a tokenizer's JSON file, and the rest of it.
struct TokenizerTables {
  TokenIds ids;                   ///< model.vocab
  std::vector<TokenPair> merges;  ///< model.merges
  JsonValue rest;                 ///< all else, with null in place of these two
};

/// Reads vocab.json, one flat object {"token": id, ...}. Errors: UsageError, with file and place.
TokenIds read_vocab_ids(const MappedFile& file);

/// Reads tokenizer.json. A key that stands twice in an object, and nesting deeper than any
/// tokenizer's, are refused. Memory: some times the file. Errors: UsageError, with file and place.
TokenizerTables read_tokenizer_tables(const MappedFile& file);

}  // namespace axonn
