#include "axonn/data/corpus/preferences/pair_sequences.h"

#include <algorithm>

#include "axonn/data/corpus/preferences/answer_lines.h"
#include "axonn/foundation/base/check.h"
#include "axonn/foundation/base/log.h"

namespace axonn {

PairSequences::PairSequences(DocumentRange range, std::int64_t seq_len, std::int64_t vocab,
                             ExcessLength excess, const AnswerData& data)
    : range_(std::move(range)), seq_len_(seq_len), vocab_(vocab), data_(data) {
  AXONN_CHECK(range_.documents && range_.begin % 2 == 0 && range_.end % 2 == 0, "documents ",
              range_.begin, " to ", range_.end, " are no pairs");
  for (std::int64_t d = range_.begin; d < range_.end; d += 2) {
    const std::int64_t rows = rows_of(d);
    if (rows <= seq_len) {
      pairs_.push_back(d);
    } else if (excess != ExcessLength::drop) {
      refuse(noun(), ' ', d / 2 + 1, " of ", range_.documents->name(), " has ", rows,
             " tokens in two answers with their prompts, more than training.seq_len = ", seq_len,
             "; raise seq_len, or leave such ones out by data.excess_length_strategy = \"drop\"");
    }
  }
  if (pairs_.empty())
    refuse(range_.documents->name(), ": no ", noun(),
           " of answers fits into training.seq_len = ", seq_len, "; raise it, or give more data");
}

const char* PairSequences::noun() const {
  return data_.kind == AnswerData::Kind::labels ? "example" : "pair";
}

std::int64_t PairSequences::prompt_rows(std::int64_t n) const {
  const auto prompt = static_cast<std::int64_t>(prompt_size(range_.documents->coded(pairs_.at(n))));
  return std::max<std::int64_t>(0, prompt - 1);
}

std::int64_t PairSequences::shared_rows(std::int64_t document) const {
  if (!data_.shared_prompt) return 0;
  const auto first = range_.documents->coded(document),
             second = range_.documents->coded(document + 1);
  const auto prompt =
      static_cast<std::ptrdiff_t>(std::min(prompt_size(first), prompt_size(second)));
  const auto end = std::mismatch(first.begin(), first.begin() + prompt, second.begin()).first;
  // The last of these tokens has another target in each document.
  return std::max<std::int64_t>(0, end - first.begin() - 1);
}

std::int64_t PairSequences::rows_of(std::int64_t document) const {
  return range_.documents->size(document) + range_.documents->size(document + 1) - 2 -
         shared_rows(document);
}

void PairSequences::read(std::int64_t n, Sequence& to) const {
  AXONN_CHECK(n >= 0 && n < count(), "pair ", n, " of ", count(), " was asked for");
  make_padding(seq_len_, to);
  const auto shared = static_cast<std::int32_t>(shared_rows(pairs_[n]));
  std::int32_t row = 0, second = 0;
  for (const std::int64_t document : {pairs_[n], pairs_[n] + 1}) {
    std::vector<std::int32_t> coded = range_.documents->coded(document);
    if (data_.with_prompt && document == pairs_[n])
      std::ranges::transform(coded, coded.begin(), token_of);
    const bool branch = data_.shared_prompt && document != pairs_[n];
    if (branch) second = row;
    const std::int32_t start = branch ? 0 : row;
    for (std::int32_t t = branch ? shared : 0; t + 1 < std::ssize(coded); ++t, ++row) {
      to.ids[row] = token_of(coded[t]);
      to.targets[row] = is_learned(coded[t + 1]) ? coded[t + 1] : -1;
      to.positions[row] = t;
      to.starts[row] = start;
    }
    for (const std::int32_t token : coded)
      if (vocab_ > 0 && token_of(token) >= vocab_)
        refuse(where(n), " has the token ", token_of(token), ", but model.vocab is ", vocab_);
  }
  if (data_.shared_prompt) to.branches = {shared, second, row};
}

Sequences::Size PairSequences::size(std::int64_t n) const {
  const std::int64_t document = pairs_.at(n);
  const std::int64_t chosen = data_.with_prompt ? range_.documents->size(document) - 1
                                                : range_.documents->learned(document);
  return {chosen + range_.documents->learned(document + 1), rows_of(document)};
}

std::string PairSequences::where(std::int64_t n) const {
  return concat(noun(), ' ', number(n) + 1, " of ", range_.documents->name());
}

std::vector<std::string> PairSequences::notes() const {
  const std::int64_t all = (range_.end - range_.begin) / 2;
  if (all == count()) return {};
  return {concat(format_count(all - count()), " of ", format_count(all), ' ', noun(),
                 "s are longer than ", format_count(seq_len_),
                 " tokens and are left out (data.excess_length_strategy = drop)")};
}

}  // namespace axonn
