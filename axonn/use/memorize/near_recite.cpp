#include "axonn/use/memorize/near_recite.h"

#include <algorithm>
#include <functional>
#include <numbers>

#include "axonn/foundation/base/check.h"
#include "axonn/use/infer/generator.h"
#include "axonn/use/memorize/extraction.h"

namespace axonn {

namespace {

/// The search of one document's suffix.
struct Asked {
  std::vector<std::int32_t> prompt;
  NearSearch search;
};

/// Lets all searches go on by one token.
void step_all(Generator& generator, std::vector<Asked>& all, const SamplingPolicy& policy,
              std::int64_t vocab) {
  std::vector<std::vector<std::int32_t>> prompts;
  for (const Asked& one : all)
    for (const std::vector<std::int32_t>& prefix : one.search.prefixes()) {
      prompts.emplace_back(one.prompt.begin(), one.prompt.end());
      prompts.back().insert(prompts.back().end(), prefix.begin(), prefix.end());
    }
  const auto found =
      generator.generate(prompts, {.max_tokens = 1, .likeliest = kept_tokens(policy, vocab)});
  std::size_t at = 0;
  for (Asked& one : all) {
    std::vector<std::vector<TokenChance>> next;
    for (std::size_t i = 0; i < one.search.prefixes().size(); ++i)
      next.push_back(chances_of(found[at++].scores.at(0).likeliest, policy, vocab));
    one.search.step(next);
  }
}

/// Searches texts near the suffixes of some documents. step: step_all() of these.
std::vector<NearRecord> search_all(const std::vector<Asked>& all, std::int64_t epsilon,
                                   const std::function<void()>& step) {
  while (!all.front().search.done()) step();
  std::vector<NearRecord> found;
  for (const Asked& one : all) {
    const NearBounds bounds = one.search.bounds();
    found.push_back({.epsilon = epsilon,
                     .log10_low = bounds.low / std::numbers::ln10,
                     .log10_high = bounds.high / std::numbers::ln10});
  }
  return found;
}

/// Bounds that an earlier start has made. On others than rank 0 they do not count.
std::vector<NearRecord> known_bounds(std::int64_t first, std::size_t count, std::int64_t epsilon,
                                     const AuditPart* part) {
  std::vector<NearRecord> known;
  for (std::size_t i = 0; i < count; ++i) {
    NearRecord& one = known.emplace_back(NearRecord{.epsilon = epsilon});
    if (!part) continue;
    const std::vector<double> values = part->values(first + static_cast<std::int64_t>(i));
    one.log10_low = values.at(0);
    one.log10_high = values.at(1);
  }
  return known;
}

void keep_bounds(std::int64_t first, std::span<const NearRecord> made, AuditPart& part) {
  std::vector<std::vector<double>> values;
  for (const NearRecord& one : made) values.push_back({one.log10_low, one.log10_high});
  part.append_values(first, values);
}

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
  const std::int64_t vocab = tokenizer.vocab_size();
  check_near(options, vocab);
  const SamplingPolicy policy = parse_policy(options.policies.front(), "policies");
  Generator generator(model, {.batch = options.batch,
                              .context = documents.longest(),
                              .hold_weights = options.hold_weights,
                              .tokenizer = &tokenizer});
  std::vector<Recitation*> whole;
  for (Recitation& one : recitations)
    if (is_whole(options, one.prompt)) whole.push_back(&one);
  const std::int64_t beams = options.near.beams;
  std::size_t at_once = options.near.at_once;
  if (at_once == 0)  // if there is room for their beams, the cache keeps the prompts
    at_once = std::max<std::int64_t>(generator.reserve(whole.size() * beams) / beams, 1);
  const std::int64_t distances = std::ssize(options.near.epsilon);
  std::int64_t set = 0;  // bounds, of all distances
  for (const std::int64_t epsilon : options.near.epsilon)
    for (std::size_t first = 0; first < whole.size(); first += at_once) {
      const auto some = std::span(whole).subspan(first, std::min(at_once, whole.size() - first));
      std::vector<NearRecord> bounds;
      if (options.kept && set + std::ssize(some) <= options.kept->values) {
        bounds = known_bounds(set, some.size(), epsilon, options.part);
      } else {
        std::vector<Asked> all;
        for (const Recitation* one : some) {
          std::vector<std::int32_t> tokens = documents[one->document].tokens;
          const std::size_t before = tokens.size() - options.suffix_tokens;
          const auto suffix = std::span<const std::int32_t>(tokens).subspan(before);
          NearSearch search(
              suffix, {.epsilon = epsilon, .beams = beams, .distance = options.near.distance});
          tokens.resize(before);
          all.push_back({std::move(tokens), std::move(search)});
        }
        std::int64_t tokens = 0;
        bounds = search_all(all, epsilon, [&] {
          step_all(generator, all, policy, vocab);
          if (!options.progress || model.grid().world().rank() > 0) return;
          const std::int64_t done = ++tokens * std::ssize(some) / options.suffix_tokens;
          options.progress(kNearSearches, set + done, std::ssize(whole) * distances);
        });
        if (options.part) keep_bounds(set, bounds, *options.part);
      }
      for (std::size_t i = 0; i < some.size(); ++i) some[i]->near.push_back(bounds[i]);
      set += std::ssize(some);
    }
  return set;
}

}  // namespace axonn
