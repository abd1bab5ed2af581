#include "axonn/use/infer/beam_search.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>

#include "axonn/foundation/base/check.h"

namespace axonn {

namespace {

/// A running text with a next token.
struct Continuation {
  float score;
  std::size_t parent;
  std::int32_t token;
  float plain;
};

}  // namespace

BeamSearch::BeamSearch(Settings settings) : settings_(std::move(settings)) {
  const BeamOptions& options = settings_.options;
  AXONN_CHECK(options.beams >= 1 && options.returned >= 1 && options.returned <= options.beams &&
                  settings_.longest >= 1 && std::isfinite(options.length_penalty),
              "BeamSearch: ", options.returned, " texts of ", options.beams, " beams, of at most ",
              settings_.longest, " tokens, with a length penalty of ", options.length_penalty);
  std::ranges::sort(settings_.ends);
  const auto repeated = std::ranges::unique(settings_.ends);
  settings_.ends.erase(repeated.begin(), repeated.end());
}

/// Among so many, each text has as many that do not end it as there are beams.
std::int64_t BeamSearch::candidates() const {
  return beams() + (completes() ? beams() : std::ssize(settings_.ends));
}

bool BeamSearch::ends(std::int32_t token) const {
  return std::ranges::binary_search(settings_.ends, token);
}

void BeamSearch::step(std::span<const Candidates> of_running, const Completes& completes) {
  AXONN_CHECK(!done_ && of_running.size() == running_.size(), "BeamSearch::step: candidates of ",
              of_running.size(), " texts, wanted of ", running_.size(), done_ ? ", but done" : "");
  std::vector<Continuation> all;
  for (std::size_t parent = 0; parent < running_.size(); ++parent)
    for (const auto& [token, log_probability, plain] : of_running[parent])
      if (log_probability > -std::numeric_limits<float>::infinity())
        all.push_back({running_[parent].score + log_probability, parent, token, plain});
  std::ranges::stable_sort(all, std::ranges::greater(), &Continuation::score);

  const BeamOptions& options = settings_.options;
  const auto beams = static_cast<std::size_t>(options.beams);
  const std::int64_t longer = length() + 1;
  const bool last = longer == settings_.longest;
  const double divisor = std::pow(static_cast<double>(longer), options.length_penalty);
  std::vector<Running> next;
  for (std::size_t i = 0; i < all.size() && (i < beams || next.size() < beams); ++i) {
    const auto& [score, parent, token, plain] = all[i];
    const bool by_token = ends(token);
    const bool complete = !by_token && completes && completes(parent, token);
    Running text = running_[parent];
    text.score = score;
    text.parent = parent;
    text.path.push_back(parent);
    text.plain.push_back(plain);
    if (!by_token) text.tokens.push_back(token);
    if ((by_token || complete || last) && i < beams)
      ended_.push_back({text.tokens, static_cast<float>(score / divisor), by_token, complete,
                        text.path, text.plain});
    if (!by_token && !complete && next.size() < beams) next.push_back(std::move(text));
  }
  std::ranges::stable_sort(ended_, std::ranges::greater(), &Ended::score);
  if (ended_.size() > beams) ended_.resize(beams);
  running_ = std::move(next);
  const bool full = ended_.size() == beams;
  done_ = last || running_.empty() ||
          (full && (options.early_stopping == EarlyStopping::yes || !can_improve(longer)));
}

/// Whether the best running text could become better than the worst that ended.
bool BeamSearch::can_improve(std::int64_t length) const {
  const BeamOptions& options = settings_.options;
  const bool longer_is_better =
      options.early_stopping == EarlyStopping::never && options.length_penalty > 0;
  const auto counted = static_cast<double>(longer_is_better ? settings_.longest : length);
  const double divisor = std::pow(counted, options.length_penalty);
  return running_.front().score / divisor > ended_.back().score;
}

}  // namespace axonn
