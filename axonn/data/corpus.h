#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "axonn/data/config.h"
#include "axonn/data/sampler.h"
#include "axonn/data/tokenize.h"
#include "axonn/data/tokenizer.h"

namespace axonn {

/// What a run learns from and is measured on.
struct Corpus {
  /// None if it is "bytes", as it is by default, and the token files hold other tokens.
  std::shared_ptr<const Tokenizer> tokenizer;
  std::vector<TokenStream> train;       ///< one, or one for each weight of a blend
  std::vector<TokenStream> validation;  ///< empty if there is none
};

struct CorpusOptions {
  /// Text is tokenised once into a token file here, and mapped from then on, by this process and
  /// others. Its name is a hash of the tokenizer and of each text's path, size and time of change.
  /// Empty: tokens are kept in memory.
  std::string cache_folder = {};
  std::int64_t vocab = 0;      ///< the model's; if positive, the tokenizer must fit into it
  std::uint64_t seed = 1;      ///< of synthetic text
  TokenizeReport report = {};  ///< how far tokenising is
};

/// Opens what [data] names. Errors: UsageError names the key, the file and what is wrong.
Corpus open_corpus(const DataConfig& config, const CorpusOptions& options);

}  // namespace axonn
