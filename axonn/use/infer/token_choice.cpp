#include "axonn/use/infer/token_choice.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <utility>
#include <vector>

#include "axonn/foundation/base/check.h"
#include "axonn/foundation/base/random.h"
#include "axonn/use/infer/generation_schedule.h"
#include "axonn/use/infer/sampling.h"

namespace axonn {

namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();

void add_biases(std::span<float> logits, const GenerationOptions& options) {
  for (const auto& [token, bias] : options.logit_bias)
    if (token >= 0 && token < std::ssize(logits)) logits[token] += bias;
}

/// Forbids what cannot follow in the form, or leaves too little room for its end. A token that ends
/// the text is allowed where it may end.
void keep_form(std::span<float> logits, const GeneratedSequence& sequence, std::int64_t left,
               bool may_end) {
  const GenerationOptions& options = sequence.options;
  std::vector<std::pair<std::int32_t, float>> stops;
  for (const std::int32_t token : options.stop_tokens)
    if (token >= 0 && token < std::ssize(logits)) stops.emplace_back(token, logits[token]);
  Constraint::Mask to_end = sequence.constraint->mask(sequence.place);
  for (const std::int32_t token : sequence.constraint->specials())
    if (std::ranges::find(options.shown_tokens, token) == options.shown_tokens.end())
      to_end[token] = Constraint::kForbidden;
  for (const auto& [token, logit] : stops)
    if (token < std::ssize(to_end)) to_end[token] = Constraint::kForbidden;
  // A byte takes at most one token. Where nothing ends in time, the text is cut off.
  const bool in_time = *std::ranges::min_element(to_end) < left;
  for (std::size_t token = 0; token < logits.size(); ++token)
    if (token >= to_end.size() || to_end[token] == Constraint::kForbidden ||
        (in_time && to_end[token] >= left))
      logits[token] = -kInfinity;
  for (const auto& [token, logit] : stops) logits[token] = may_end ? logit : -kInfinity;
}

void forbid_stops(std::span<float> logits, const GenerationOptions& options) {
  for (const std::int32_t token : options.stop_tokens)
    if (token >= 0 && token < std::ssize(logits)) logits[token] = -kInfinity;
}

}  // namespace

std::int32_t choose_token(std::span<float> logits, const GeneratedSequence& sequence,
                          std::int64_t left) {
  const GenerationOptions& options = sequence.options;
  const auto tokens = std::span(sequence.tokens);
  penalise(logits, tokens.subspan(sequence.begin), options.sampling.repetition_penalty);
  if (options.ends_if_not_finite && !(largest_logit(logits) < kInfinity)) return kNotFinite;
  penalise_generated(logits, tokens.subspan(sequence.prompt_size), options.sampling);
  add_biases(logits, options);
  const bool may_end = static_cast<std::int64_t>(sequence.produced()) >= options.min_tokens;
  if (sequence.constraint)
    keep_form(logits, sequence, left, may_end && sequence.place.accepts);
  else if (!may_end)
    forbid_stops(logits, options);
  if (largest_logit(logits) == -kInfinity) return kNoToken;
  const std::uint64_t draw = options.random_stream << 32 | sequence.produced();
  return sample(logits, options.sampling, Random(options.seed, "generate").uniform(draw));
}

namespace {

/// Turns logits into log-probabilities. Sums in f64.
void log_softmax(std::span<float> logits) {
  const float most = largest_logit(logits);
  double sum = 0;
  for (const float logit : logits) sum += std::exp(double{logit} - most);
  const double log_sum = most + std::log(sum);
  for (float& logit : logits) logit = static_cast<float>(logit - log_sum);
}

}  // namespace

BeamSearch::Candidates beam_candidates(std::span<float> logits, const GeneratedSequence& sequence,
                                       std::span<const std::int32_t> tokens, std::int64_t known) {
  const GenerationOptions& options = sequence.options;
  const auto count = static_cast<std::size_t>(sequence.search->candidates());
  if (const float most = largest_logit(logits); !(most < kInfinity)) {
    AXONN_CHECK(options.ends_if_not_finite, "beam search: a logit is ", most,
                "; the model is broken");
    return BeamSearch::Candidates(count, {kNotFinite, 0.0f});
  }
  log_softmax(logits);
  logits = logits.first(known);
  penalise(logits, tokens, options.sampling.repetition_penalty);
  const auto generated = tokens.subspan(sequence.prompt_size);
  penalise_generated(logits, generated, options.sampling);
  add_biases(logits, options);
  if (std::ssize(generated) < options.min_tokens) forbid_stops(logits, options);
  std::vector<std::int32_t> order(logits.size());
  std::iota(order.begin(), order.end(), 0);
  const auto end = order.begin() + static_cast<std::ptrdiff_t>(count);
  std::ranges::partial_sort(order, end, [&](std::int32_t a, std::int32_t b) {
    return logits[a] != logits[b] ? logits[a] > logits[b] : a < b;
  });
  if (logits[order.front()] == -kInfinity) return BeamSearch::Candidates(count, {kNoToken, 0.0f});
  BeamSearch::Candidates candidates;
  for (auto token = order.begin(); token != end; ++token)
    candidates.emplace_back(*token, logits[*token]);
  return candidates;
}

}  // namespace axonn
