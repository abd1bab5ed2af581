#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "axonn/base/mapped_file.h"
#include "axonn/text/bpe/bpe_vocab.h"
#include "axonn/text/json_node.h"

namespace axonn {

/// The large tables of tokenizer.json, and the rest of the file.
struct TokenizerTables {
  TokenIds ids;                   ///< model.vocab
  std::vector<TokenPair> merges;  ///< model.merges
  JsonValue rest;                 ///< the whole file, with null in place of these two
};

/// Reads vocab.json, one flat object {"token": id, ...}. Throws UsageError with the file and the
/// place.
TokenIds read_vocab_ids(const MappedFile& file);

/// Reads tokenizer.json. Memory: a few times the file. Throws UsageError with the file and the
/// place; also for a duplicate key in an object, and for nesting deeper than any tokenizer's.
TokenizerTables read_tokenizer_tables(const MappedFile& file);

}  // namespace axonn
