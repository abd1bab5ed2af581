#include "axonn/use/memorize/near_recite.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <numbers>

#include "axonn/foundation/base/check.h"
#include "axonn/use/infer/generator.h"
#include "axonn/use/memorize/extraction.h"

namespace axonn {

namespace {

/// The search of one document's suffix, or its samples.
template <typename Walk>
struct Asked {
  std::vector<std::int32_t> prompt;
  Walk walk;
};

using Values = std::vector<std::vector<double>>;  // of some documents

/// What add_near() has, for all distances.
class NearPass {
 public:
  NearPass(LoadedModel& model, const Tokenizer& tokenizer, const StudyDocuments& documents,
           const ReciteOptions& options, std::span<Recitation> recitations)
      : options_(options),
        documents_(documents),
        vocab_(tokenizer.vocab_size()),
        policy_(parse_policy(options.policies.front(), "policies")),
        leads_(model.grid().world().rank() == 0),
        generator_(model, {.batch = options.batch,
                           .context = documents.longest(),
                           .hold_weights = options.hold_weights,
                           .tokenizer = &tokenizer}) {
    for (Recitation& one : recitations)
      if (is_whole(options, one.prompt)) whole_.push_back(&one);
    const std::int64_t beams = options.near.beams;
    at_once_ = options.near.at_once;
    if (at_once_ == 0)  // if there is room for their beams, the cache keeps the prompts
      at_once_ = std::max<std::int64_t>(generator_.reserve(whole_.size() * beams) / beams, 1);
  }

  /// Bounds, a pass over all documents for each distance.
  void search() {
    const NearRequest& near = options_.near;
    const std::int64_t all = std::ssize(whole_) * std::ssize(near.epsilon);
    for (const std::int64_t epsilon : near.epsilon)
      for_some(
          2,
          [&](std::span<Recitation*> some) {
            const auto begin = [&](std::span<const std::int32_t> suffix, std::int64_t) {
              return NearSearch(
                  suffix, {.epsilon = epsilon, .beams = near.beams, .distance = near.distance});
            };
            Values values;
            for (const auto& one : walked<NearSearch>(some, begin, {kNearSearches, set_, all})) {
              const NearBounds bounds = one.walk.bounds();
              values.push_back({bounds.low / std::numbers::ln10, bounds.high / std::numbers::ln10});
            }
            return values;
          },
          [&](Recitation& one, const std::vector<double>& values) {
            one.near.push_back(
                {.epsilon = epsilon, .log10_low = values[0], .log10_high = values[1]});
          });
  }

  /// Samples, for all distances at once.
  void draw() {
    const NearRequest& near = options_.near;
    const std::int64_t before = set_;
    for_some(
        near.epsilon.size(),
        [&](std::span<Recitation*> some) {
          const auto begin = [&](std::span<const std::int32_t> suffix, std::int64_t document) {
            return NearSamples(
                suffix, {.epsilon = near.epsilon,
                         .samples = near.samples,
                         .distance = near.distance,
                         .seed = near.seed,
                         .first_stream = static_cast<std::uint64_t>(document * near.samples)});
          };
          Values values;
          for (const auto& one : walked<NearSamples>(
                   some, begin, {kNearSamples, set_ - before, std::ssize(whole_)})) {
            const std::vector<std::int64_t> found = one.walk.found();
            values.emplace_back(found.begin(), found.end());
          }
          return values;
        },
        [&](Recitation& one, const std::vector<double>& found) {
          for (std::size_t e = 0; e < found.size(); ++e) {
            one.near[e].samples = near.samples;
            one.near[e].found = std::llround(found[e]);
          }
        });
  }

  std::int64_t set() const { return set_; }

 private:
  struct Counted {
    const char* unit;
    std::int64_t before, all;
  };

  /// Makes the values of all documents, some at a time, or takes those that an earlier start has
  /// made, which only rank 0 has; on others they do not count.
  void for_some(std::size_t width, const std::function<Values(std::span<Recitation*>)>& make,
                const std::function<void(Recitation&, const std::vector<double>&)>& take) {
    for (std::size_t first = 0; first < whole_.size(); first += at_once_) {
      const auto some = std::span(whole_).subspan(first, std::min(at_once_, whole_.size() - first));
      Values values;
      if (options_.kept && set_ + std::ssize(some) <= options_.kept->values) {
        for (std::int64_t i = 0; i < std::ssize(some); ++i)
          values.push_back(options_.part ? options_.part->values(set_ + i)
                                         : std::vector<double>(width, 0));
      } else {
        values = make(some);
        if (options_.part) options_.part->append_values(set_, values);
      }
      for (std::size_t i = 0; i < some.size(); ++i) take(*some[i], values[i]);
      set_ += std::ssize(some);
    }
  }

  /// Walks along the suffixes of some documents, all of them a token at a time.
  template <typename Walk, typename Begin>
  std::vector<Asked<Walk>> walked(std::span<Recitation*> some, const Begin& begin,
                                  const Counted& counted) {
    std::vector<Asked<Walk>> all;
    for (const Recitation* one : some) {
      std::vector<std::int32_t> tokens = documents_[one->document].tokens;
      const std::size_t before = tokens.size() - options_.suffix_tokens;
      Walk walk = begin(std::span<const std::int32_t>(tokens).subspan(before), one->document);
      tokens.resize(before);
      all.push_back({std::move(tokens), std::move(walk)});
    }
    for (std::int64_t token = 1; token <= options_.suffix_tokens; ++token) {
      step(all);
      if (options_.progress && leads_)
        options_.progress(counted.unit,
                          counted.before + token * std::ssize(some) / options_.suffix_tokens,
                          counted.all);
    }
    return all;
  }

  /// Lets all that are not done go on by one token.
  template <typename Walk>
  void step(std::vector<Asked<Walk>>& all) {
    std::vector<std::vector<std::int32_t>> prompts;
    for (const Asked<Walk>& one : all)
      for (const std::vector<std::int32_t>& prefix : one.walk.prefixes()) {
        if (one.walk.done()) break;
        prompts.push_back(one.prompt);
        prompts.back().insert(prompts.back().end(), prefix.begin(), prefix.end());
      }
    const auto found =
        generator_.generate(prompts, {.max_tokens = 1, .likeliest = kept_tokens(policy_, vocab_)});
    std::size_t at = 0;
    for (Asked<Walk>& one : all) {
      if (one.walk.done()) continue;
      std::vector<std::vector<TokenChance>> next;
      for (std::size_t i = 0; i < one.walk.prefixes().size(); ++i)
        next.push_back(chances_of(found[at++].scores.at(0).likeliest, policy_, vocab_));
      one.walk.step(next);
    }
  }

  const ReciteOptions& options_;
  const StudyDocuments& documents_;
  std::int64_t vocab_;
  SamplingPolicy policy_;
  bool leads_;
  Generator generator_;
  std::vector<Recitation*> whole_;  // those with the whole prompt
  std::size_t at_once_;
  std::int64_t set_ = 0;
};

}  // namespace

void check_near(const ReciteOptions& options, std::int64_t vocab) {
  constexpr std::int64_t kMostKept = 4096;
  if (options.near.epsilon.empty()) return;
  if (options.policies.empty())
    refuse("near-verbatim probabilities need a policy, such as t=1,k=40; there is none");
  const SamplingPolicy policy = parse_policy(options.policies.front(), "policies");
  if (policy.top_k == 0 && policy.temperature > 0 && vocab > kMostKept)
    refuse("near-verbatim probabilities by \"", options.policies.front(), "\" need all ", vocab,
           " tokens after each prefix; put a policy with top-k first, as in t=1,k=40");
}

std::int64_t add_near(LoadedModel& model, const Tokenizer& tokenizer,
                      const StudyDocuments& documents, const ReciteOptions& options,
                      std::span<Recitation> recitations) {
  if (options.near.epsilon.empty()) return 0;
  check_near(options, tokenizer.vocab_size());
  NearPass pass(model, tokenizer, documents, options, recitations);
  pass.search();
  if (options.near.samples > 0) pass.draw();
  return pass.set();
}

}  // namespace axonn
