#include "axonn/infer/token_choice.h"

#include <algorithm>
#include <limits>

#include "axonn/base/random.h"
#include "axonn/infer/generation_schedule.h"

namespace axonn {

namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();

void add_biases(std::span<float> logits, const GenerationOptions& options) {
  for (const auto& [token, bias] : options.logit_bias)
    if (token >= 0 && token < std::ssize(logits)) logits[token] += bias;
}

void forbid_stops(std::span<float> logits, const GenerationOptions& options) {
  for (const std::int32_t token : options.stop_tokens)
    if (token >= 0 && token < std::ssize(logits)) logits[token] = -kInfinity;
}

}  // namespace

std::int32_t choose_token(std::span<float> logits, const GeneratedSequence& sequence) {
  const GenerationOptions& options = sequence.options;
  const auto tokens = std::span(sequence.tokens);
  penalise(logits, tokens.subspan(sequence.begin), options.sampling.repetition_penalty);
  if (options.ends_if_not_finite &&
      !std::ranges::all_of(logits, [](float logit) { return logit < kInfinity; }))
    return kNotFinite;
  penalise_generated(logits, tokens.subspan(sequence.prompt_size), options.sampling);
  add_biases(logits, options);
  if (static_cast<std::int64_t>(sequence.produced()) < options.min_tokens)
    forbid_stops(logits, options);
  const std::uint64_t draw = options.random_stream << 32 | sequence.produced();
  return sample(logits, options.sampling, Random(options.seed, "generate").uniform(draw));
}

}  // namespace axonn
