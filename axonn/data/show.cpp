#include "axonn/data/show.h"

#include <algorithm>
#include <vector>

#include "axonn/base/check.h"
#include "axonn/base/utf8.h"

namespace axonn {

namespace {

/// 1234567 -> "1,234,567"
std::string grouped(std::int64_t count) {
  std::string digits = std::to_string(count);
  for (auto place = std::ssize(digits) - 3; place > 0; place -= 3)
    digits.insert(static_cast<std::size_t>(place), 1, ',');
  return digits;
}

std::string text_of(std::span<const std::int32_t> tokens, const Tokenizer& tokenizer) {
  std::string text;
  for (std::int32_t token : tokens) {
    if (token < 0 || token >= tokenizer.vocab_size())
      return concat("token ", token, " is not one of the ", tokenizer.vocab_size(), " of ",
                    tokenizer.name(), ": the file was made with another tokenizer");
    text += tokenizer.bytes_of(token);
  }
  text.resize(text.size() - incomplete_utf8_suffix(text));
  return '"' + printable(text) + '"';
}

/// The documents of a sequence, one per line. The target of a row is the token of the next row.
std::string documents_of(const Sequence& sequence, const Tokenizer& tokenizer) {
  std::string out;
  const std::int64_t rows = std::ssize(sequence.ids);
  for (std::int64_t begin = 0, end = 0; begin < rows; begin = end) {
    for (end = begin + 1; end < rows && sequence.starts[end] == begin;) ++end;
    std::string text;
    bool learned = false;
    const auto put = [&](std::int32_t token, bool learns) {
      if (learns != learned) text += learns ? "«" : "»";
      learned = learns;
      text += printable(tokenizer.bytes_of(token));
    };
    put(sequence.ids[begin], false);
    for (std::int64_t r = begin; r < end; ++r) {
      const bool learns = sequence.targets[r] >= 0;
      if (learns || r + 1 < end) put(learns ? sequence.targets[r] : sequence.ids[r + 1], learns);
    }
    if (learned) text += "»";
    const bool padding = end == begin + 1 && sequence.targets[begin] < 0;
    if (padding) return out + concat("  rows ", begin, " to ", rows - 1, ": padding\n");
    out += concat("  rows ", begin, " to ", end - 1, ": ", text, '\n');
  }
  return out;
}

}  // namespace

std::string describe(const PackedDocuments& packed, std::int64_t seq_len,
                     const ShowExamples& options) {
  const Sequences::Size& total = packed.total();
  const std::int64_t rows = packed.count() * seq_len;
  std::string out = concat("sequences  ", grouped(packed.count()), " of ", grouped(seq_len),
                           " tokens, with ", grouped(packed.pieces()), " documents\ninputs     ",
                           grouped(total.inputs), ", and ", grouped(rows - total.inputs),
                           " rows of padding\nlearned    ", grouped(total.targets), " targets\n");
  if (packed.continued() > 0)
    out += concat("longer     ", grouped(packed.continued()),
                  " documents exceed a sequence; each is split into several\n");
  if (packed.left_out() > 0)
    out += concat("left out   ", grouped(packed.left_out()),
                  " documents, or parts of them, with nothing to learn\n");
  if (options.sequence < 0 || options.sequence >= packed.count())
    refuse("--sequence is ", options.sequence, "; it must be 0 to ", packed.count() - 1);
  Sequence sequence;
  packed.read(options.sequence, sequence);
  return out + concat("sequence ", options.sequence, ": ", packed.where(options.sequence), '\n') +
         documents_of(sequence, *options.tokenizer);
}

std::string describe(const TokenFile& file, const ShowOptions& options) {
  std::string out = concat("file       ", file.name(), "\nformat     ", name_of(file.format()),
                           ", ", name_of(file.type()), "\ntokens     ", grouped(file.size()), '\n');
  if (const auto documents = file.documents()) {
    out += concat("documents  ", grouped(*documents));
    if (*documents > 0)
      out += concat(", ", grouped(file.size() / *documents), " tokens on average");
    out += '\n';
  }
  if (file.size() == 0) return out;
  const TokenRange range = token_range(file);
  out += concat("smallest   ", range.smallest, "\nlargest    ", range.largest, '\n');
  std::vector<std::int32_t> tokens(
      static_cast<std::size_t>(std::clamp<std::int64_t>(options.first, 0, file.size())));
  file.read(0, tokens);
  out += "first     ";
  for (std::int32_t token : tokens) out += concat(' ', token);
  out += '\n';
  if (options.tokenizer) out += concat("text       ", text_of(tokens, *options.tokenizer), '\n');
  return out;
}

}  // namespace axonn
