#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace axonn {

/// What a model wrote, greedily, where a document goes on with `suffix_tokens` tokens.
struct Recitation {
  std::int64_t document = 0;       ///< number among the documents of the study or the audit
  std::int64_t group = 0;          ///< of MemorizationReport::groups
  std::int64_t prompt = 0;         ///< of MemorizationReport::prompt_lengths
  bool exact = false;              ///< every token is the document's
  std::int64_t longest_run = 0;    ///< tokens of the longest run that both texts have
  double token_accuracy = 0;       ///< share of places where both have the same token
  std::int64_t edit_distance = 0;  ///< tokens put in, left out or changed (Levenshtein)
  double loss = 0;                 ///< nats a token of the true suffix
  /// The prompt's end, how the document goes on, and what the model wrote: UTF-8.
  std::string before, truth, written;
};

/// What one model recites: of a study, after one training.
struct RecitationRun {
  std::string variant;     ///< "standard" or "goldfish": the loss; of an audit ""
  std::int64_t trial = 0;  ///< counted from 1
  std::uint64_t seed = 0;  ///< of the trial
  std::optional<double> validation_loss = {}, kept_fraction = {};
  double train_seconds = 0, test_seconds = 0;
  std::vector<Recitation> recitations = {};
};

/// The result of a study (groups are buckets, each learned so often) or of an audit (groups are the
/// documents asked about and, perhaps, controls).
struct MemorizationReport {
  std::string title;                        ///< "Memorization study" or "Memorization audit"
  std::string model;                        ///< one line about it
  std::vector<std::string> notes = {};      ///< what was done, a sentence each
  std::vector<std::string> groups;          ///< "control", "4 epochs", ...
  std::vector<std::int64_t> group_sizes;    ///< documents of each
  std::vector<std::string> document_names;  ///< of each document
  std::int64_t suffix_tokens = 50;
  /// Tokens of the prompts; kWholePrompt: all before the suffix.
  std::vector<std::int64_t> prompt_lengths;
  std::vector<RecitationRun> runs;
};

inline constexpr std::int64_t kWholePrompt = 0;

/// Compares tokens: fills in exact, longest_run, token_accuracy and edit_distance.
void compare(std::span<const std::int32_t> truth, std::span<const std::int32_t> written,
             Recitation& recitation);

}  // namespace axonn
