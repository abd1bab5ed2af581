#include "axonn/use/memorize/exposure.h"

#include <algorithm>

#include <fmt/format.h>

#include "axonn/foundation/base/check.h"
#include "axonn/foundation/base/random.h"
#include "axonn/use/infer/evaluate.h"

namespace axonn {

namespace {

std::int64_t texts_of(std::int64_t digits) {
  std::int64_t texts = 1;
  for (std::int64_t i = 0; i < digits; ++i) texts *= 10;
  return texts;
}

/// The losses of the candidates, of which the first is the document itself.
std::vector<double> losses_of(LoadedModel& model,
                              const std::vector<std::vector<std::int32_t>>& candidates,
                              std::int64_t batch) {
  std::int64_t shared = std::ssize(candidates[0]), longest = 0;
  for (const auto& one : candidates) {
    const auto at = std::ranges::mismatch(candidates[0], one).in2;
    if (&one != &candidates[0]) shared = std::min<std::int64_t>(shared, at - one.begin());
    longest = std::max(longest, std::ssize(one));
  }
  const auto sequence = [&](std::int64_t n) {
    return ScoredSequence{.tokens = candidates[n],
                          .scored = std::ssize(candidates[n]) - shared,
                          .positions = longest - 1};
  };
  const std::int64_t count = std::ssize(candidates);
  if (batch == 0) batch = usual_batch(model.grid(), longest, count);
  std::vector<double> losses;
  for (const SequenceScore& one : score(model, {.count = count, .at = sequence}, {.batch = batch}))
    losses.push_back(one.nats);
  return losses;
}

}  // namespace

std::int64_t CanarySpace::candidates() const { return others == 0 ? texts_of(digits) : others + 1; }

std::vector<std::string> other_canaries(const std::string& text, const CanarySpace& space) {
  const std::size_t end = text.find_last_of("0123456789") + 1;
  const auto length = static_cast<std::size_t>(space.digits);
  const auto is_digit = [](char c) { return c >= '0' && c <= '9'; };
  AXONN_CHECK(length > 0 && end >= length &&
                  std::ranges::all_of(text.substr(end - length, length), is_digit),
              "canary: no ", space.digits, " digits at the end of \"", text, '"');
  const std::int64_t all = texts_of(space.digits),
                     own = std::stoll(text.substr(end - length, length)),
                     wanted = space.candidates() - 1;
  AXONN_CHECK(wanted < all, "canary: ", wanted, " others of ", all, " texts");
  std::vector<std::string> texts;
  for (std::int64_t i = 0; std::ssize(texts) < wanted; ++i) {
    const auto drawn = static_cast<std::int64_t>(
        space.others == 0 ? i : permute(i, all, mix_bits(space.seed ^ hash_text(text))));
    if (drawn == own) continue;
    texts.push_back(text);
    texts.back().replace(end - length, length, fmt::format("{:0{}}", drawn, space.digits));
  }
  return texts;
}

std::int64_t rank_of_first(std::span<const double> losses) {
  return std::ranges::count_if(losses, [&](double one) { return one <= losses[0]; });
}

void add_exposure(LoadedModel& model, const Tokenizer& tokenizer, const SpacedDocuments& of,
                  const ReciteOptions& options, std::span<Recitation> recitations) {
  for (Recitation& one : recitations) {
    const CanarySpace& space = of.spaces[one.document];
    const StudyDocument& document = of.documents[one.document];
    if (space.digits == 0 || !is_whole(options, one.prompt)) continue;
    std::vector<std::vector<std::int32_t>> candidates{document.tokens};
    const std::string text = tokenizer.decode(document.tokens, {.skip_special = true});
    AXONN_CHECK(tokenizer.encode_prompt(text) == document.tokens, "canary: ", document.name,
                " is not the whole text \"", text, '"');
    for (const std::string& other : other_canaries(text, space))
      candidates.push_back(tokenizer.encode_prompt(other));
    one.exposure = Exposure{.rank = rank_of_first(losses_of(model, candidates, options.batch)),
                            .candidates = std::ssize(candidates)};
  }
}

}  // namespace axonn
