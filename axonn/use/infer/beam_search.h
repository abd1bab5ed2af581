#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "axonn/use/infer/sampling.h"

namespace axonn {

/// Beam search after one prompt: which of several texts go on with which tokens, and which of those
/// that ended are the best. Plain bookkeeping, which knows no model.
///
/// At each step the texts with the highest sums of log-probabilities go on, as many as there are
/// beams. Of the same number of best continuations, those with an end token have ended, and those
/// whose text the caller says is complete; their score is the sum divided by the length, the last
/// token included, to the power of the length penalty.
/// The best of these are kept, as many as there are beams. In the last step the best continuations
/// have ended whatever their token is. The results are those of `generate` in Hugging Face's
/// transformers 5 but for ties, of which here the better text's and the lower token comes first.
class BeamSearch {
 public:
  /// A next token of a text.
  struct Candidate {
    std::int32_t token;
    float log_probability;
    float plain = 0;  ///< its log-probability before penalties, which the search only keeps
  };
  /// The likeliest first.
  using Candidates = std::vector<Candidate>;

  struct Settings {
    BeamOptions options;
    std::vector<std::int32_t> ends = {};  ///< tokens that end a text
    std::int64_t longest = 1;             ///< tokens of a text, an end token included
    bool completes = false;               ///< whether other tokens may complete a text: step()
  };
  /// A text that goes on.
  struct Running {
    std::vector<std::int32_t> tokens = {};
    float score = 0;         ///< the sum of the log-probabilities
    std::size_t parent = 0;  ///< its text's number before the last step
    /// For each token the number of the text that it continued, in its step.
    std::vector<std::size_t> path = {};
    std::vector<float> plain = {};  ///< of each token, see Candidate
  };
  struct Ended {
    std::vector<std::int32_t> tokens;  ///< without the end token
    float score;
    bool by_token;  ///< else complete, or by its length
    bool complete = false;
    std::vector<std::size_t> path = {};  ///< as in Running; of an end token, too
    std::vector<float> plain = {};
  };
  /// Whether a token completes the running text with this number, as its last; not for tokens that
  /// end it.
  using Completes = std::function<bool(std::size_t text, std::int32_t token)>;

  explicit BeamSearch(Settings settings);

  /// The candidates that a step needs of each text. If tokens may complete texts, they are the
  /// `beams` likeliest and the `beams` likeliest that end none.
  std::int64_t candidates() const;
  bool ends(std::int32_t token) const;
  std::int64_t beams() const { return settings_.options.beams; }
  bool completes() const { return settings_.completes; }
  /// Tokens that a running text may still get.
  std::int64_t left() const { return settings_.longest - length(); }
  /// Continues the running texts, each with its candidates(): in the first step one, which is
  /// empty, later as many as there are beams, the best first, or fewer if too few tokens are
  /// possible: those of probability 0 are not.
  void step(std::span<const Candidates> of_running, const Completes& completes = {});
  const std::vector<Running>& running() const { return running_; }
  /// Whether no step can follow, or improve what has ended by the rule of EarlyStopping.
  bool done() const { return done_; }
  /// The best first.
  const std::vector<Ended>& ended() const { return ended_; }

 private:
  std::int64_t length() const { return running_.empty() ? 0 : std::ssize(running_[0].tokens); }
  bool can_improve(std::int64_t length) const;

  Settings settings_;
  std::vector<Running> running_{Running{}};
  std::vector<Ended> ended_;
  bool done_ = false;
};

}  // namespace axonn
