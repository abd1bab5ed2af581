#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "axonn/data/corpus/config.h"
#include "axonn/data/corpus/packing.h"
#include "axonn/data/corpus/sampler.h"
#include "axonn/data/corpus/tokens/tokenize.h"
#include "axonn/data/text/tokenizer.h"

namespace axonn {

struct ForgottenDocument;
struct PromptFile;
struct RolloutFile;

/// The training and validation data of a run.
struct Corpus {
  /// Null if it is "bytes" (the default) and the token files were made with another tokenizer. The
  /// trainer warns of it if the user named "bytes".
  std::shared_ptr<const Tokenizer> tokenizer;
  std::vector<TokenStream> train;       ///< one, or one for each weight of a blend
  std::vector<TokenStream> validation;  ///< empty if there is none
  /// Of the streams.
  DocumentRule documents = {};
  /// With data.jsonl, used instead of the streams.
  DocumentRange train_documents = {}, validation_documents = {};
  ExcessLength excess_length = ExcessLength::split;   ///< of these
  AnswerData answers = {};                            ///< what they are for a loss of preferences
  std::vector<bool> good = {}, validation_good = {};  ///< AnswerDocuments::good of both
  std::shared_ptr<const PromptFile> prompts = {};     ///< in place of documents, to be answered
  std::shared_ptr<const RolloutFile> rollouts = {};   ///< in place of documents, with rewards
  /// Of data.forget; null: none.
  std::shared_ptr<const std::vector<ForgottenDocument>> forgotten = {};
  /// What the user should know of the files and the chat template. Only from options.cache.makes.
  std::vector<std::string> warnings = {};
};

/// A hash of the training data's sizes and weights and of tokens spread over them, but not of paths
/// or times, so that data may move. Reads a few pages of each stream.
std::string fingerprint(const Corpus& corpus);

/// The training sequences: sample n is a function of corpus, options and n alone.
/// Throws UsageError if a source is too short or holds nothing to learn.
std::unique_ptr<const Sequences> training_sequences(const Corpus& corpus,
                                                    const SamplerOptions& options);
/// The validation sequences, in order; null if there are none. Throws as above.
std::unique_ptr<const Sequences> validation_sequences(const Corpus& corpus, std::int64_t seq_len,
                                                      std::int64_t vocab);

/// The goldfish mask for training; empty if config.k is 0. Documents end at corpus.documents'
/// end-of-text token.
SequenceMask make_goldfish(const GoldfishConfig& config, std::uint64_t seed, const Corpus& corpus);

/// Token files of one weight.
struct WeightedPaths {
  double weight;
  std::vector<std::string> paths;
};
/// Parses data.tokens: "w1 path1 w2 path2", in one string or several, or a list of paths, which
/// together have the weight 1. Throws UsageError if a weight or a path is missing.
std::vector<WeightedPaths> parse_blend(const std::vector<std::string>& entries);

struct CorpusOptions {
  /// Text is tokenised once into this cache, which this and other processes then read. The name
  /// has a hash of the tokenizer and of each text's path, size and modification time.
  TokenCache cache = {};
  std::int64_t vocab = 0;      ///< the model's; if positive, the tokenizer's must not be larger
  std::uint64_t seed = 1;      ///< of synthetic text
  TokenizeReport report = {};  ///< called with the progress of tokenising
};

/// The documents of a JSONL file of examples, with the chat template of [data].
DocumentRange open_examples(const std::string& file, const DataConfig& config,
                            std::shared_ptr<const Tokenizer> tokenizer,
                            const CorpusOptions& options);

/// The rule of [data] for the documents of streams of this tokenizer (null: not known). Throws
/// UsageError if data.eod is not below vocab; 0: any may be.
DocumentRule document_rule(const DataConfig& config, const Tokenizer* tokenizer,
                           std::int64_t vocab);
/// Throws UsageError, with the remedy, unless rule and source say where documents begin.
void check_documents(const DocumentRule& rule, const TokenSource& source,
                     const Tokenizer* tokenizer);

/// Throws UsageError unless [data] names one kind of training data, and as validation a file or a
/// fraction.
void check_data(const DataConfig& data);

/// Opens the data that [data] names. Throws UsageError with the key, the file and the fault.
Corpus open_corpus(const DataConfig& config, const CorpusOptions& options);

}  // namespace axonn
