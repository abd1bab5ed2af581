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

/// A text that must be one of a form, and what may follow it.
struct FormProgress {
  Constraint& constraint;
  const Constraint::State& state;
  std::int64_t left;  ///< tokens that there is room for
  bool may_end;       ///< whether a token that ends the text may follow
};

/// Forbids what cannot follow in the form, or leaves too little room for its end. A token that ends
/// the text is allowed where it may end.
void keep_form(std::span<float> logits, const GenerationOptions& options, const FormProgress& at) {
  std::vector<std::pair<std::int32_t, float>> stops;
  for (const std::int32_t token : options.stop_tokens)
    if (token >= 0 && token < std::ssize(logits)) stops.emplace_back(token, logits[token]);
  Constraint::Mask to_end = at.constraint.mask(at.state);
  for (const std::int32_t token : at.constraint.specials())
    if (std::ranges::find(options.shown_tokens, token) == options.shown_tokens.end())
      to_end[token] = Constraint::kForbidden;
  for (const auto& [token, logit] : stops)
    if (token < std::ssize(to_end)) to_end[token] = Constraint::kForbidden;
  // A byte takes at most one token. Where nothing ends in time, the text is cut off.
  const bool in_time = *std::ranges::min_element(to_end) < at.left;
  for (std::size_t token = 0; token < logits.size(); ++token)
    if (token >= to_end.size() || to_end[token] == Constraint::kForbidden ||
        (in_time && to_end[token] >= at.left))
      logits[token] = -kInfinity;
  for (const auto& [token, logit] : stops) logits[token] = at.may_end ? logit : -kInfinity;
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
    keep_form(logits, options,
              {*sequence.constraint, sequence.state, left, may_end && sequence.state.accepts});
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

/// The first `count` of the best tokens by log-probabilities, the likeliest first.
LikeliestTokens likeliest_of(std::span<const float> logits, std::size_t count) {
  std::vector<std::int32_t> order(logits.size());
  std::iota(order.begin(), order.end(), 0);
  const auto end = order.begin() + static_cast<std::ptrdiff_t>(std::min(count, order.size()));
  std::ranges::partial_sort(order, end, [&](std::int32_t a, std::int32_t b) {
    return logits[a] != logits[b] ? logits[a] > logits[b] : a < b;
  });
  LikeliestTokens best;
  for (auto token = order.begin(); token != end; ++token) best.emplace_back(*token, logits[*token]);
  return best;
}

/// The candidates of a beam whose text tokens may complete.
LikeliestTokens candidates_of_text(std::span<const float> logits, const PassPart& part) {
  const BeamSearch& search = *part.sequence->search;
  const auto beams = static_cast<std::size_t>(search.beams());
  for (std::size_t looked = 4 * beams;; looked *= 4) {
    const LikeliestTokens best = likeliest_of(logits, looked);
    LikeliestTokens chosen;
    std::size_t going = 0;
    for (std::size_t i = 0; i < best.size() && going < beams; ++i) {
      const auto& [token, log_probability] = best[i];
      if (log_probability == -kInfinity) return chosen;
      const bool ends = search.ends(token) || completes(*part.sequence, part.beam, token);
      if (!ends) ++going;
      if (!ends || i < beams) chosen.push_back(best[i]);
    }
    if (going == beams || best.size() < looked) return chosen;
  }
}

}  // namespace

bool completes(const GeneratedSequence& sequence, std::size_t beam, std::int32_t token) {
  if (sequence.constraint && sequence.constraint->after(sequence.state_at(beam), token).ended())
    return true;
  if (sequence.options.stop_strings.empty()) return false;
  StreamDecoder text = sequence.decoder_at(beam);
  text.push(token);
  return text.stopped();
}

BeamRow beam_row(std::span<float> logits, const PassPart& part, std::int64_t known) {
  const GeneratedSequence& sequence = *part.sequence;
  const GenerationOptions& options = sequence.options;
  const BeamSearch& search = *sequence.search;
  const auto count = static_cast<std::size_t>(search.candidates());
  const auto scored = static_cast<std::size_t>(std::max<std::int64_t>(options.likeliest, 0));
  if (const float most = largest_logit(logits); !(most < kInfinity)) {
    AXONN_CHECK(options.ends_if_not_finite, "beam search: a logit is ", most,
                "; the model is broken");
    return {BeamSearch::Candidates(count, {kNotFinite, 0.0f}),
            LikeliestTokens(scored, {kNotFinite, 0.0f})};
  }
  log_softmax(logits);
  logits = logits.first(known);
  std::vector<float> raw;  // without penalties
  if (options.likeliest >= 0) raw.assign(logits.begin(), logits.end());
  const std::span<const std::int32_t> tokens = part.tokens();
  penalise(logits, tokens, options.sampling.repetition_penalty);
  const auto generated = tokens.subspan(sequence.prompt_size);
  penalise_generated(logits, generated, options.sampling);
  add_biases(logits, options);
  const bool may_end = std::ssize(generated) >= options.min_tokens;
  if (sequence.constraint) {
    const Constraint::State& state = sequence.state_at(part.beam);
    keep_form(logits, options,
              {*sequence.constraint, state, search.left(), may_end && state.accepts});
  } else if (!may_end) {
    forbid_stops(logits, options);
  }
  BeamRow row;
  for (const auto& [token, log_probability] :
       search.completes() ? candidates_of_text(logits, part) : likeliest_of(logits, count))
    row.candidates.push_back({token, log_probability, raw.empty() ? 0 : raw[token]});
  row.candidates.resize(count, {kNoToken, -kInfinity, -kInfinity});
  if (scored > 0) row.likeliest = likeliest_of(raw, scored);
  row.likeliest.resize(scored, {kNoToken, -kInfinity});
  return row;
}

TokenScore score_of(const BeamRow& row, const GenerationOptions& options) {
  TokenScore score;
  for (const auto& [token, log_probability, plain] : row.candidates)
    score.likeliest.emplace_back(token, log_probability);
  if (options.likeliest < 0) return score;
  for (const auto& [token, log_probability, plain] : row.candidates)
    score.likeliest.emplace_back(token, plain);
  score.likeliest.insert(score.likeliest.end(), row.likeliest.begin(), row.likeliest.end());
  return score;
}

BeamRow beam_row_of(const TokenScore& score, std::int64_t candidates) {
  const LikeliestTokens& all = score.likeliest;
  const bool scored = std::ssize(all) > candidates;
  BeamRow row;
  for (std::int64_t i = 0; i < candidates; ++i)
    row.candidates.push_back(
        {all[i].first, all[i].second, scored ? all[candidates + i].second : 0});
  if (scored) row.likeliest.assign(all.begin() + 2 * candidates, all.end());
  return row;
}

}  // namespace axonn
