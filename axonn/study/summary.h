#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "axonn/study/recitation.h"

namespace axonn {

/// Of one figure, over the trials.
struct Spread {
  double mean = 0, minimum = 0, maximum = 0;
};

struct Interval {
  double low = 0, high = 0;
};

/// All recitations of one loss, group and prompt length. Where there are none, trials is 0 and so
/// is everything else.
struct RecitationCell {
  std::int64_t variant = 0;  ///< of MemorizationSummary::variants
  std::int64_t group = 0;    ///< of MemorizationReport::groups
  std::int64_t prompt = 0;   ///< of MemorizationReport::prompt_lengths
  std::int64_t trials = 0;   ///< that recited any of it
  std::int64_t documents = 0;
  std::int64_t recitations = 0, exact = 0;  ///< of all trials; exact ones among them
  Spread exact_percent = {};                ///< of each trial's recitations
  /// 95 % interval of exact / recitations, in percent: how far the share would move with other
  /// documents. It takes recitations for independent, which those of one document in several
  /// trials are not: of use where there is one trial.
  Interval exact_interval = {};
  /// Means over documents and trials, in the units of Recitation.
  double longest_run = 0, token_accuracy = 0, edit_distance = 0, loss = 0;
};

/// All trials of one loss.
struct VariantSummary {
  std::string name;
  std::int64_t trials = 0;
  std::optional<Spread> validation_loss = {};  ///< nats a token, of the trials that have it
  std::optional<Spread> kept_percent = {};     ///< tokens that the loss counted
  double train_seconds = 0, test_seconds = 0;  ///< of all trials together
};

/// The figures of a report.
struct MemorizationSummary {
  std::vector<VariantSummary> variants;  ///< in the order of their first runs
  std::vector<std::int64_t> prompts;     ///< numbers of prompt lengths, from short to long
  std::vector<RecitationCell> cells;     ///< by variant, then group, then prompt

  /// Errors: there is no such cell.
  const RecitationCell& at(std::int64_t variant, std::int64_t group, std::int64_t prompt) const;

  /// The one that single figures are about: what memorization is said of unless told otherwise.
  std::int64_t longest_prompt() const { return prompts.empty() ? 0 : prompts.back(); }
};

/// Errors: a recitation's group or prompt is not one of the report.
MemorizationSummary summarize(const MemorizationReport& report);

/// Wilson's score interval of a share, 95 %, in percent. Source: Wilson, "Probable Inference, the
/// Law of Succession, and Statistical Inference", J. Am. Stat. Assoc., 1927. Errors: count is below
/// 1, or exact not within 0 .. count.
Interval wilson_interval(std::int64_t exact, std::int64_t count);

}  // namespace axonn
