#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string_view>

namespace axonn {

/// Bounds of the settings below for those that users give, in commands and requests.
inline constexpr double kMostTemperature = 100, kLeastPenalty = 1e-3, kMostPenalty = 1e3,
                        kMostLengthPenalty = 10;
inline constexpr std::int64_t kMostBeams = 1024;

/// How the next token is chosen from logits: first the penalties, then temperature, top_k, top_p
/// and min_p in this order, as in Hugging Face's transformers.
struct Sampling {
  double temperature = 1;         ///< 0: the most likely token, the first if there are several
  std::int64_t top_k = 0;         ///< only the k most likely; 0: all
  double top_p = 1;               ///< only the most likely that reach this probability; 0: one
  double repetition_penalty = 1;  ///< the `penalty` of penalise(); 1: none
  /// Only tokens at least this part as likely as the likeliest; 0: all.
  double min_p = 0;
  double presence_penalty = 0, frequency_penalty = 0;  ///< penalise_generated(); 0: none

  bool operator==(const Sampling&) const = default;
};

/// When a beam search stops, once as many texts have ended as there are beams. The names are those
/// of Hugging Face's transformers.
enum class EarlyStopping : std::uint8_t {
  no,    ///< when the best text that goes on, scored by its length so far, is no better than the
         ///< worst that ended
  yes,   ///< at once
  never  ///< as `no`, but scored by the longest length if longer texts score better
};

inline constexpr std::array<std::string_view, 3> kEarlyStoppings = {"false", "true", "never"};

/// Beam search in place of single tokens, see BeamSearch.
struct BeamOptions {
  std::int64_t beams = 1;     ///< texts that go on at each step; 1: no beam search
  std::int64_t returned = 1;  ///< the best of those that ended; at most `beams`
  double length_penalty = 1;  ///< of a score, the power of the length that divides it
  EarlyStopping early_stopping = EarlyStopping::no;

  bool operator==(const BeamOptions&) const = default;
};

/// Makes the tokens in `seen` less likely: divides their logits (of V) by `penalty` if positive,
/// else multiplies them by it; once per token, however often it was seen.
/// Source: Keskar et al., "CTRL", 2019, as implemented in transformers.
void penalise(std::span<float> logits, std::span<const std::int32_t> seen, double penalty);

/// Makes tokens that were generated before less likely: subtracts from a token's logit the presence
/// penalty, if it is among `generated`, and the frequency penalty as often as it is. Penalties
/// below 0 make them likelier. Source: OpenAI's reference of the API.
void penalise_generated(std::span<float> logits, std::span<const std::int32_t> generated,
                        const Sampling& sampling);

/// The largest logit: minus infinity of none, NaN if one is NaN.
float largest_logit(std::span<const float> logits);

/// Draws a token from logits (V), to which the penalty has been applied. `uniform` in [0, 1) is the
/// random number: equal bits give equal tokens on all ranks. Sorts only as many tokens as top_k and
/// top_p need. Infinite logits are the likeliest, or have no weight. Throws if a logit is NaN, or a
/// setting or the random number is out of range: temperature and top_k below 0, top_p and
/// min_p outside of 0 to 1.
std::int32_t sample(std::span<const float> logits, const Sampling& sampling, double uniform);

}  // namespace axonn
