#include "axonn/use/infer/token_choice.h"

#include <algorithm>
#include <limits>
#include <utility>
#include <vector>

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

}  // namespace axonn
