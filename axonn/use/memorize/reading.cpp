#include "axonn/use/memorize/reading.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <numbers>

#include "axonn/data/text/stream_decoder.h"
#include "axonn/use/infer/evaluate.h"
#include "axonn/use/memorize/extraction.h"

namespace axonn {

namespace {

/// The documents of each group that are recited best, as most_recited() orders them.
std::vector<std::int64_t> best_documents(const StudyDocuments& documents,
                                         const ReciteOptions& options,
                                         std::span<const Recitation> recitations) {
  std::map<std::int64_t, std::vector<const Recitation*>> groups;
  for (const Recitation& one : recitations)
    if (is_whole(options, one.prompt)) groups[one.group].push_back(&one);
  std::vector<std::int64_t> best;
  std::int64_t tokens = 0;
  for (auto& [group, all] : groups) {
    std::ranges::stable_sort(all, {}, [](const Recitation* one) { return rank_of(*one); });
    for (std::int64_t i = 0; i < std::min(std::ssize(all), kReadingsOfAGroup); ++i) {
      tokens += documents.length(all[i]->document);
      if (tokens > kReadTokens) return best;
      best.push_back(all[i]->document);
    }
  }
  return best;
}

/// The text of each token, as it is shown after those before it. A character of several tokens is
/// the last one's.
std::vector<std::string> pieces_of(std::span<const std::int32_t> tokens,
                                   const Tokenizer& tokenizer) {
  StreamDecoder decoder(tokenizer, {.skip_special = true});
  std::vector<std::string> pieces;
  for (const std::int32_t token : tokens) pieces.push_back(decoder.push(token));
  if (!pieces.empty()) pieces.back() += decoder.finish();
  return pieces;
}

}  // namespace

std::vector<TokenSpan> extracted_spans(std::span<const double> log_q, std::int64_t length,
                                       double least_log10) {
  std::vector<TokenSpan> spans;
  std::vector<double> sums{0};         // of the first ones, but for those that are never drawn,
  std::vector<std::int64_t> never{0};  // of which these are the numbers
  for (const double one : log_q) {
    const bool possible = std::isfinite(one);
    sums.push_back(sums.back() + (possible ? one : 0));
    never.push_back(never.back() + (possible ? 0 : 1));
  }
  for (std::int64_t end = length; end <= std::ssize(log_q); ++end) {
    const std::int64_t first = end - length;
    if (never[end] > never[first] || (sums[end] - sums[first]) / std::numbers::ln10 < least_log10)
      continue;
    if (spans.empty() || spans.back().end < first)
      spans.push_back({first, end});
    else
      spans.back().end = end;
  }
  return spans;
}

std::vector<Reading> readings_of(LoadedModel& model, const Tokenizer& tokenizer,
                                 const StudyDocuments& documents, const ReciteOptions& options,
                                 std::span<const Recitation> recitations) {
  const std::vector<std::int64_t> best = best_documents(documents, options, recitations);
  if (best.empty() || options.policies.empty()) return {};
  const auto sequence = [&](std::int64_t n) {
    ScoredSequence result{.tokens = documents[best[n]].tokens};
    result.scored = result.positions = std::ssize(result.tokens) - 1;
    return result;
  };
  const std::vector<SamplingPolicy> policy{parse_policy(options.policies.front(), "policies")};
  const auto records =
      record_targets(model, {.count = std::ssize(best), .at = sequence}, policy,
                     {.batch = usual_batch(model.grid(), documents.longest(), std::ssize(best))});
  std::vector<Reading> readings;
  for (std::size_t n = 0; n < best.size(); ++n) {
    Reading& reading = readings.emplace_back(Reading{.document = best[n]});
    reading.tokens = pieces_of(documents[best[n]].tokens, tokenizer);
    for (const TargetRecord& one : records[n]) {
      reading.log_p.push_back(one.log_p);
      reading.rank.push_back(one.rank);
      reading.log_q.push_back(one.log_q.front());
    }
    reading.extracted = extracted_spans(reading.log_q, options.suffix_tokens,
                                        least_log10_p(static_cast<double>(kMatchedBudget), 0.5));
    for (TokenSpan& span : reading.extracted) {  // the first token is no target
      ++span.first;
      ++span.end;
    }
  }
  return readings;
}

}  // namespace axonn
