#pragma once

// The probability that a sample is nearly a text. Of the ball of all texts w of the length of z
// with a distance of at most epsilon from z, P = sum of products of q. A search over beams finds
// a lower and an upper bound: prefixes that can no longer end in the ball are left out, which loses
// nothing; of the others the likeliest go on, and the mass of those that do not is what the bounds
// differ by.

#include <array>
#include <cstdint>
#include <functional>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include "axonn/use/infer/evaluate.h"

namespace axonn {

enum class TextDistance { hamming, levenshtein };
inline constexpr std::array<std::string_view, 2> kTextDistances = {"hamming", "levenshtein"};

struct NearOptions {
  std::int64_t epsilon = 1;  ///< the largest distance, in tokens
  std::int64_t beams = 20;   ///< prefixes that go on after each token
  TextDistance distance = TextDistance::levenshtein;
};

/// A next token and the logarithm of its probability by a policy; those of probability 0 are left
/// out.
using TokenChance = std::pair<std::int32_t, double>;
/// The next tokens of prefixes, of each of which it gets all tokens; all have the same length.
using NextTokens = std::function<std::vector<std::vector<TokenChance>>(
    std::span<const std::vector<std::int32_t>> prefixes)>;

/// The distances of a prefix from a text's first 0, 1, ... tokens.
class PrefixDistances {
 public:
  explicit PrefixDistances(std::size_t tokens);  ///< of the empty prefix
  /// The prefix gets another token.
  void add(std::span<const std::int32_t> text, std::int32_t token, TextDistance distance);
  /// Of a prefix that is as long as the text.
  std::int64_t whole() const { return row_.back(); }
  /// Whether a text of the length of `text` that begins with the prefix can be so near.
  bool can_be_within(std::int64_t epsilon, TextDistance distance) const;

 private:
  std::vector<std::int64_t> row_;
  std::int64_t length_ = 0;  // of the prefix
};

/// Natural logarithms of probabilities; minus infinity: 0.
struct NearBounds {
  double low = 0, high = 0;  ///< of P
  double exact = 0;          ///< of the text itself
  std::int64_t found = 0;    ///< texts that the lower bound sums
};

/// The bounds for one text, which must have a token. The prefix of the text itself always goes on,
/// so low >= exact. Costs at most `beams` next tokens of each length.
NearBounds near_bounds(std::span<const std::int32_t> text, const NextTokens& next,
                       const NearOptions& options);

/// The same as a machine of steps, for many texts at once: prefixes() are those whose next tokens
/// step() wants, in this order, until done().
class NearSearch {
 public:
  NearSearch(std::span<const std::int32_t> text, const NearOptions& options);

  bool done() const { return length_ == std::ssize(text_); }
  const std::vector<std::vector<std::int32_t>>& prefixes() const { return prefixes_; }
  void step(std::span<const std::vector<TokenChance>> next);
  /// After the last step.
  NearBounds bounds() const;

 private:
  struct Prefix {
    double log_q = 0;
    PrefixDistances distances;
    bool true_so_far = true;
  };

  std::vector<std::int32_t> text_;
  NearOptions options_;
  std::int64_t length_ = 0;
  std::vector<std::vector<std::int32_t>> prefixes_{{}};
  std::vector<Prefix> states_;
  double lost_ = 0;  // mass of prefixes that did not go on
};

struct NearSampling {
  std::vector<std::int64_t> epsilon;  ///< the largest distances, in tokens
  std::int64_t samples = 1000;
  TextDistance distance = TextDistance::levenshtein;
  std::uint64_t seed = 1, first_stream = 0;  ///< of Generator: sample i has stream first_stream + i
};

/// Counts samples that are near a text, as a machine like NearSearch. Sample i is the text that a
/// Generator writes with this seed and stream, up to rounding; but all samples with one prefix ask
/// for its next tokens once, and those that can no longer be near are given up.
class NearSamples {
 public:
  NearSamples(std::span<const std::int32_t> text, NearSampling options);

  bool done() const { return length_ == std::ssize(text_) || prefixes_.empty(); }
  const std::vector<std::vector<std::int32_t>>& prefixes() const { return prefixes_; }
  /// next: as chances_of() has them for drawing.
  void step(std::span<const std::vector<TokenChance>> next);
  /// At the end, of each distance the samples within it.
  std::vector<std::int64_t> found() const;

 private:
  struct Samples {
    PrefixDistances distances;
    std::vector<std::int64_t> numbers;
  };

  std::vector<std::int32_t> text_;
  NearSampling options_;
  std::int64_t length_ = 0;
  std::vector<std::vector<std::int32_t>> prefixes_{{}};
  std::vector<Samples> of_prefix_;
};

/// How many of the likeliest tokens a policy can draw.
std::int64_t kept_tokens(const SamplingPolicy& policy, std::int64_t vocab);

/// Next tokens by a policy, of the log-probabilities (nats) of the likeliest tokens, the likeliest
/// first; in the order in which sample() adds them up: as they are, or by their numbers if the
/// policy draws all. Throws UsageError if the policy keeps more tokens than these.
std::vector<TokenChance> chances_of(std::span<const std::pair<std::int32_t, float>> likeliest,
                                    const SamplingPolicy& policy, std::int64_t vocab);

}  // namespace axonn
