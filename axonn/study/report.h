#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace axonn {

/// A model's greedy continuation of a prompt, compared with the document's own suffix.
struct Recitation {
  std::int64_t document = 0;       ///< index among the documents of the study or the audit
  std::int64_t group = 0;          ///< index into MemorizationReport::groups
  std::int64_t prompt = 0;         ///< index into MemorizationReport::prompt_lengths
  bool exact = false;              ///< all tokens are equal
  std::int64_t longest_run = 0;    ///< tokens of the longest common run
  double token_accuracy = 0;       ///< share of positions with equal tokens
  std::int64_t edit_distance = 0;  ///< Levenshtein distance in tokens
  double loss = 0;                 ///< of the true suffix, nats per token
  /// The end of the prompt, the true suffix and the model's text, decoded; may not be valid UTF-8.
  std::string before, truth, written;
};

/// The recitations of one model: in a study, of one training run.
struct RecitationRun {
  std::string variant;     ///< the training loss, "standard" or "goldfish"; "" in an audit
  std::int64_t trial = 0;  ///< counted from 1
  std::uint64_t seed = 0;  ///< of the trial
  std::optional<double> validation_loss = {}, kept_fraction = {};
  double train_seconds = 0;  ///< without the warm-up that the variants share
  double test_seconds = 0;
  std::vector<Recitation> recitations = {};
};

/// The result of a study (a group is a bucket of documents, learned for a number of epochs) or of
/// an audit (the groups are the tested documents and, optionally, the controls).
struct MemorizationReport {
  std::string title;                        ///< "Memorization study" or "Memorization audit"
  std::string model;                        ///< one-line description
  std::vector<std::string> notes = {};      ///< what was done, one sentence each
  std::vector<std::string> groups;          ///< "control", "4 epochs", ...
  std::vector<std::int64_t> group_sizes;    ///< documents of each
  std::vector<std::string> document_names;  ///< of each document
  std::int64_t suffix_tokens = 50;
  /// Lengths of the prompts in tokens; kWholePrompt: all tokens before the suffix.
  std::vector<std::int64_t> prompt_lengths;
  std::vector<RecitationRun> runs;
};

inline constexpr std::int64_t kWholePrompt = 0;

}  // namespace axonn
