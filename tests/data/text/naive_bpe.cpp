#include "tests/data/text/naive_bpe.h"

#include <algorithm>

#include "axonn/data/text/bpe/bpe_vocab.h"

namespace axonn::test {

namespace {

bool is_letter(const std::string& c) {
  return (c.size() == 1 && ((c[0] >= 'a' && c[0] <= 'z') || (c[0] >= 'A' && c[0] <= 'Z'))) ||
         c == "é" || c == "日" || c == "本" || c == "ſ";
}

bool is_number(const std::string& c) {
  return (c.size() == 1 && c[0] >= '0' && c[0] <= '9') || c == "٣" || c == "½";
}

bool is_newline(const std::string& c) { return c == "\r" || c == "\n"; }

bool is_space(const std::string& c) {
  return c == " " || c == "\t" || is_newline(c) || c == "\u2003" || c == "\u0085";
}

bool is_sign(const std::string& c) { return !is_space(c) && !is_letter(c) && !is_number(c); }

/// The number of characters of the contraction's ending at i, or 0.
std::size_t contraction(const std::vector<std::string>& c, std::size_t i) {
  const auto is = [&](std::size_t at, char letter) {
    if (at >= c.size()) return false;
    if (letter == 's' && c[at] == "ſ") return true;  // its capital letter is S, too
    return c[at].size() == 1 && (c[at][0] | 0x20) == letter && is_letter(c[at]);
  };
  if (c[i] != "'") return 0;
  for (char one : {'s', 't', 'm', 'd'})
    if (is(i + 1, one)) return 2;
  for (const std::string_view two : {"re", "ve", "ll"})
    if (is(i + 1, two[0]) && is(i + 2, two[1])) return 3;
  return 0;
}

/// The number of characters of the word at i, by the pattern's alternatives in order.
std::size_t word_at(const std::vector<std::string>& c, std::size_t i, std::size_t most_digits) {
  const auto run = [&](std::size_t from, auto is) {
    while (from < c.size() && is(c[from])) ++from;
    return from;
  };
  if (const std::size_t n = contraction(c, i)) return n;
  const bool skips = !is_newline(c[i]) && !is_letter(c[i]) && !is_number(c[i]);
  if (const std::size_t end = run(i + skips, is_letter); end > i + skips) return end - i;
  if (is_number(c[i])) return std::min(run(i, is_number) - i, most_digits);
  const std::size_t signs = i + (c[i] == " ");
  if (const std::size_t end = run(signs, is_sign); end > signs) return run(end, is_newline) - i;
  const std::size_t end = run(i, is_space);  // white space begins here
  for (std::size_t last = end; last > i; --last)
    if (is_newline(c[last - 1])) return last - i;
  return end == c.size() || end == i + 1 ? end - i : end - 1 - i;
}

}  // namespace

std::vector<std::string> characters_of(std::string_view text) {
  std::vector<std::string> out;
  for (char c : text) {
    if ((static_cast<unsigned char>(c) & 0xc0) != 0x80) out.emplace_back();
    out.back() += c;
  }
  return out;
}

std::vector<std::string> naive_words(const std::string& text, std::size_t most_digits) {
  const std::vector<std::string> characters = characters_of(text);
  std::vector<std::string> words;
  for (std::size_t i = 0; i < characters.size();) {
    const std::size_t n = word_at(characters, i, most_digits);
    words.emplace_back();
    for (std::size_t k = 0; k < n; ++k) words.back() += characters[i++];
  }
  return words;
}

std::vector<std::string> naive_merge(std::vector<std::string> symbols, const SmallVocab& vocab) {
  for (std::size_t rank = 0; rank < vocab.merges.size();) {
    const auto& [left, right] = vocab.merges[rank];
    std::size_t i = 0;
    while (i + 1 < symbols.size() && !(symbols[i] == left && symbols[i + 1] == right)) ++i;
    if (i + 1 >= symbols.size()) {
      ++rank;
      continue;
    }
    symbols[i] += symbols[i + 1];
    symbols.erase(symbols.begin() + static_cast<std::ptrdiff_t>(i) + 1);
    rank = 0;
  }
  return symbols;
}

std::vector<int> naive_byte_level(const std::string& word, const SmallVocab& vocab) {
  std::vector<std::string> symbols;
  for (char c : word) symbols.push_back(bpe_character(static_cast<unsigned char>(c)));
  std::vector<int> tokens;
  for (const std::string& symbol : naive_merge(symbols, vocab))
    tokens.push_back(vocab.id_of(symbol));
  return tokens;
}

std::vector<int> naive_llama2(const std::string& text, const SmallVocab& vocab) {
  std::vector<std::string> symbols;
  for (std::string& c : characters_of(text.empty() ? "" : " " + text)) {
    if (c == " ") c = "▁";
    if (std::ranges::find(vocab.tokens, c) != vocab.tokens.end()) {
      symbols.push_back(c);
      continue;
    }
    for (char byte : c) symbols.push_back(vocab.tokens[3 + static_cast<unsigned char>(byte)]);
  }
  std::vector<int> tokens;
  for (const std::string& symbol : naive_merge(symbols, vocab))
    tokens.push_back(vocab.id_of(symbol));
  return tokens;
}

}  // namespace axonn::test
