#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "axonn/data/text/tokenizer.h"
#include "axonn/run/load/loaded_model.h"
#include "axonn/use/memorize/recite.h"

namespace axonn {

/// Documents of which a report shows every token: those of each group that the model recites best.
inline constexpr std::int64_t kReadingsOfAGroup = 50;
/// Tokens of all of them, so that a page stays small: documents beyond that are left out.
inline constexpr std::int64_t kReadTokens = 200'000;

/// [first, end) of the longest spans in which each run of `length` targets begins or is such that a
/// sample has it, after all tokens before it, with at least the probability 10^least: the union of
/// these runs. log_q: of each target, nats.
std::vector<TokenSpan> extracted_spans(std::span<const double> log_q, std::int64_t length,
                                       double least_log10);

/// Every token of the documents that are recited best with the whole prompt, by one more pass over
/// these. Runs of options.suffix_tokens count as extracted if kMatchedBudget samples by the first
/// policy hold them with a chance of one half. recitations: of the documents, with their groups.
/// Collective; the same on every rank.
std::vector<Reading> readings_of(LoadedModel& model, const Tokenizer& tokenizer,
                                 const StudyDocuments& documents, const ReciteOptions& options,
                                 std::span<const Recitation> recitations);

}  // namespace axonn
