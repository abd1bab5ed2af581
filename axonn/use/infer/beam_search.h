#pragma once

#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "axonn/use/infer/sampling.h"

namespace axonn {

/// Beam search after one prompt: which of several texts go on with which tokens, and which of those
/// that ended are the best. Plain bookkeeping, which knows no model.
///
/// At each step the texts with the highest sums of log-probabilities go on, as many as there are
/// beams. Of the same number of best continuations, those with an end token have ended; their score
/// is the sum divided by the length, the end token included, to the power of the length penalty.
/// The best of these are kept, as many as there are beams. In the last step the best continuations
/// have ended whatever their token is. The results are those of `generate` in Hugging Face's
/// transformers 5 but for ties, of which here the better text's and the lower token comes first.
class BeamSearch {
 public:
  /// Next tokens of a text with their log-probabilities, the likeliest first.
  using Candidates = std::vector<std::pair<std::int32_t, float>>;

  struct Settings {
    BeamOptions options;
    std::vector<std::int32_t> ends = {};  ///< tokens that end a text
    std::int64_t longest = 1;             ///< tokens of a text, an end token included
  };
  /// A text that goes on.
  struct Running {
    std::vector<std::int32_t> tokens = {};
    float score = 0;         ///< the sum of the log-probabilities
    std::size_t parent = 0;  ///< its text's number before the last step
  };
  struct Ended {
    std::vector<std::int32_t> tokens;  ///< without the end token
    float score;
    bool by_token;  ///< else by its length
  };

  explicit BeamSearch(Settings settings);

  /// The candidates that a step needs of each text.
  std::int64_t candidates() const;
  /// Continues the running texts, each with its candidates(): in the first step one, which is
  /// empty, later as many as there are beams, the best first.
  void step(std::span<const Candidates> of_running);
  const std::vector<Running>& running() const { return running_; }
  /// Whether no step can follow, or improve what has ended by the rule of EarlyStopping.
  bool done() const { return done_; }
  /// The best first.
  const std::vector<Ended>& ended() const { return ended_; }

 private:
  bool can_improve(std::int64_t length) const;

  Settings settings_;
  std::vector<Running> running_{Running{}};
  std::vector<Ended> ended_;
  bool done_ = false;
};

}  // namespace axonn
