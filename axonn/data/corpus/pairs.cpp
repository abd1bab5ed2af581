#include "axonn/data/corpus/pairs.h"

#include <algorithm>
#include <array>

#include "axonn/data/corpus/jsonl.h"
#include "axonn/data/corpus/text_reader.h"
#include "axonn/data/text/chat/members.h"
#include "axonn/foundation/base/check.h"
#include "axonn/foundation/base/log.h"

namespace axonn {

namespace {

constexpr const char* kPairLine =
    "a line of preferences has \"chosen\" and \"rejected\", and a \"prompt\" unless both begin "
    "with it";

/// The string under a key; "" if it is missing.
std::string string_of_pair(Members& line, const char* key, const std::string& place) {
  const jinja::Value* found = line.find(key);
  if (!found) return {};
  if (found->list())
    refuse(place, ": \"", key, "\" is a list; preferences between lists of messages are not ",
           "supported yet: write them as texts, in the model's chat template");
  if (!found->text()) refuse(place, ": \"", key, "\" is not a string");
  return found->text()->bytes();
}

/// Appends the end-of-text token unless the tokens end with it.
void add_end(const Tokenizer& tokenizer, std::vector<std::int32_t>& tokens) {
  const auto end = tokenizer.end_of_text();
  if (end && (tokens.empty() || tokens.back() != *end)) tokens.push_back(*end);
}

std::size_t shared_tokens(const std::vector<std::int32_t>& a, const std::vector<std::int32_t>& b) {
  return std::ranges::mismatch(a, b).in1 - a.begin();
}

}  // namespace

std::size_t shared_prompt(std::string_view chosen, std::string_view rejected) {
  std::size_t shared = std::ranges::mismatch(chosen, rejected).in1 - chosen.begin();
  const std::size_t shorter = std::min(chosen.size(), rejected.size());
  if (shared == shorter && shared > 0) --shared;  // the shorter one has an answer, too
  // A character of several bytes is not cut.
  const auto inside = [&](std::size_t at) {
    return at < chosen.size() && (static_cast<unsigned char>(chosen[at]) & 0xC0) == 0x80;
  };
  while (shared > 0 && inside(shared)) --shared;
  if (shared > 0 && chosen[shared - 1] == ' ') --shared;
  return shared;
}

TextPair parse_pair(std::string_view line, const std::string& place) {
  const std::optional<jinja::Value> value = parse_chat_json(line);
  if (!value || !value->dict()) refuse(place, ": this is not a JSON object in UTF-8; ", kPairLine);
  Members members(*value->dict());
  const bool prompted = members.peek("prompt");
  for (const char* key : {"chosen", "rejected"})
    if (!members.peek(key)) refuse(place, ": there is no \"", key, "\"; ", kPairLine);
  TextPair pair{.prompt = string_of_pair(members, "prompt", place),
                .chosen = string_of_pair(members, "chosen", place),
                .rejected = string_of_pair(members, "rejected", place)};
  if (pair.chosen == pair.rejected)
    refuse(place, ": \"chosen\" and \"rejected\" are the same, so there is no preference; leave ",
           "the line out");
  if (prompted) return pair;
  const std::size_t shared = shared_prompt(pair.chosen, pair.rejected);
  pair.prompt = pair.chosen.substr(0, shared);
  pair.chosen.erase(0, shared);
  pair.rejected.erase(0, shared);
  return pair;
}

CodedPair encode_pair(const Tokenizer& tokenizer, const TextPair& pair) {
  const std::vector<std::int32_t> prompt = tokenizer.encode_prompt(pair.prompt);
  CodedPair coded{.chosen = tokenizer.encode_prompt(pair.prompt + pair.chosen),
                  .rejected = tokenizer.encode_prompt(pair.prompt + pair.rejected)};
  add_end(tokenizer, coded.chosen);
  add_end(tokenizer, coded.rejected);
  const std::size_t border =
      std::min(shared_tokens(prompt, coded.chosen), shared_tokens(prompt, coded.rejected));
  for (std::vector<std::int32_t>* tokens : {&coded.chosen, &coded.rejected})
    for (std::size_t i = 0; i < border; ++i) (*tokens)[i] = ~(*tokens)[i];
  return coded;
}

std::shared_ptr<const Documents> encode_pairs(const std::vector<std::string>& files,
                                              const Tokenizer& tokenizer) {
  constexpr std::size_t kAtOnce = std::size_t{8} << 20;
  DocumentWriter writer("", files.front());
  for (TextFiles reader(files); !reader.at_end(); reader.advance()) {
    const std::int64_t before = reader.reader().line();
    for (const Line& line : lines_of(reader.reader().lines(kAtOnce), reader.file(), before)) {
      const CodedPair coded = encode_pair(tokenizer, parse_pair(line.text, line.place));
      writer.append(coded.chosen);
      writer.append(coded.rejected);
    }
  }
  return writer.finish();
}

PairSequences::PairSequences(DocumentRange range, std::int64_t seq_len, std::int64_t vocab,
                             ExcessLength excess)
    : range_(std::move(range)), seq_len_(seq_len), vocab_(vocab) {
  AXONN_CHECK(range_.documents && range_.begin % 2 == 0 && range_.end % 2 == 0, "documents ",
              range_.begin, " to ", range_.end, " are no pairs");
  for (std::int64_t d = range_.begin; d < range_.end; d += 2) {
    const std::int64_t rows = rows_of(d);
    if (rows <= seq_len) {
      pairs_.push_back(d);
    } else if (excess != ExcessLength::drop) {
      refuse("pair ", d / 2 + 1, " of ", range_.documents->name(), " has ", rows,
             " tokens in both answers with their prompts, more than training.seq_len = ", seq_len,
             "; raise seq_len, or leave such pairs out by data.excess_length_strategy = \"drop\"");
    }
  }
  if (pairs_.empty())
    refuse(range_.documents->name(), ": no pair of answers fits into training.seq_len = ", seq_len,
           "; raise it, or give more data");
}

std::int64_t PairSequences::rows_of(std::int64_t document) const {
  return range_.documents->size(document) + range_.documents->size(document + 1) - 2;
}

void PairSequences::read(std::int64_t n, Sequence& to) const {
  AXONN_CHECK(n >= 0 && n < count(), "pair ", n, " of ", count(), " was asked for");
  make_padding(seq_len_, to);
  std::int32_t row = 0;
  for (const std::int64_t document : {pairs_[n], pairs_[n] + 1}) {
    const std::vector<std::int32_t> coded = range_.documents->coded(document);
    for (std::int32_t t = 0, start = row; t + 1 < std::ssize(coded); ++t, ++row) {
      to.ids[row] = token_of(coded[t]);
      to.targets[row] = is_learned(coded[t + 1]) ? coded[t + 1] : -1;
      to.positions[row] = t;
      to.starts[row] = start;
    }
    for (const std::int32_t token : coded)
      if (vocab_ > 0 && token_of(token) >= vocab_)
        refuse(where(n), " has the token ", token_of(token), ", but model.vocab is ", vocab_);
  }
}

Sequences::Size PairSequences::size(std::int64_t n) const {
  const std::int64_t document = pairs_.at(n);
  return {range_.documents->learned(document) + range_.documents->learned(document + 1),
          rows_of(document)};
}

std::string PairSequences::where(std::int64_t n) const {
  return concat("pair ", pairs_.at(n) / 2 + 1, " of ", range_.documents->name());
}

std::vector<std::string> PairSequences::notes() const {
  const std::int64_t all = (range_.end - range_.begin) / 2;
  if (all == count()) return {};
  return {concat(format_count(all - count()), " of ", format_count(all), " pairs are longer than ",
                 format_count(seq_len_),
                 " tokens and are left out (data.excess_length_strategy = drop)")};
}

}  // namespace axonn
