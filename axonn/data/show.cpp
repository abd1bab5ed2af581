#include "axonn/data/show.h"

#include <algorithm>
#include <vector>

#include "axonn/base/check.h"
#include "axonn/data/utf8.h"

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

}  // namespace

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
