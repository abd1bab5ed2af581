#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "axonn/data/config.h"
#include "axonn/data/goldfish.h"
#include "axonn/data/packing.h"
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
  /// Where data.jsonl is what there is, these in place of the streams.
  DocumentRange train_documents = {}, validation_documents = {};
};

/// What training reads: sample n is a function of corpus, options and n alone.
/// Errors: UsageError if a source is too short, or holds nothing to learn.
std::unique_ptr<const Sequences> training_sequences(const Corpus& corpus,
                                                    const SamplerOptions& options);
/// What is evaluated, in order; null if there is none. Errors: as above.
std::unique_ptr<const Sequences> validation_sequences(const Corpus& corpus, std::int64_t seq_len,
                                                      std::int64_t vocab);

/// The targets that training leaves out; nothing where config.k is 0. Documents end where the
/// corpus' tokenizer says so.
std::optional<Goldfish> make_goldfish(const GoldfishConfig& config, std::uint64_t seed,
                                      const Corpus& corpus);

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
