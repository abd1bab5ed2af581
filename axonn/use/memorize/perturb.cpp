#include "axonn/use/memorize/perturb.h"

#include <algorithm>
#include <functional>
#include <iterator>
#include <map>
#include <set>
#include <utility>
#include <vector>

#include "axonn/foundation/base/random.h"
#include "axonn/use/memorize/synonyms.h"

namespace axonn {

namespace {

bool is_capital(char c) { return c >= 'A' && c <= 'Z'; }
bool is_ascii_letter(char c) { return is_capital(c) || (c >= 'a' && c <= 'z'); }
char lower(char c) { return is_capital(c) ? static_cast<char>(c - 'A' + 'a') : c; }

/// A run of ASCII letters: [begin, end) of a text.
struct Word {
  std::size_t begin, end;
};

std::vector<Word> words_of(std::string_view text) {
  std::vector<Word> words;
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (!is_ascii_letter(text[i])) continue;
    const std::size_t begin = i;
    while (i < text.size() && is_ascii_letter(text[i])) ++i;
    words.push_back({begin, i});
  }
  return words;
}

/// The text with another text in place of each word for which there is one.
std::string with_words(std::string_view text,
                       const std::function<std::string(std::string)>& other) {
  std::string changed;
  std::size_t done = 0;
  for (const Word& word : words_of(text)) {
    changed += text.substr(done, word.begin - done);
    changed += other(std::string(text.substr(word.begin, word.end - word.begin)));
    done = word.end;
  }
  return changed += text.substr(done);
}

/// Draws one after the other.
class Draws {
 public:
  Draws(std::uint64_t seed, std::string_view name) : random_(seed, name) {}
  std::uint64_t below(std::uint64_t bound) { return random_.below(next_++, bound); }

 private:
  Random random_;
  std::uint64_t next_ = 0;
};

/// The words that may stand for each word, itself among them.
const std::map<std::string_view, std::vector<std::string_view>>& synonyms() {
  static const auto rows = [] {
    std::map<std::string_view, std::vector<std::string_view>> found;
    std::vector<std::string_view> row;
    const std::string_view all = paraphrase::kSynonyms;
    for (const Word& word : words_of(all)) {
      row.push_back(all.substr(word.begin, word.end - word.begin));
      if (word.end < all.size() && all[word.end] != ';') continue;
      for (const std::string_view one : row) found[one] = row;
      row.clear();
    }
    return found;
  }();
  return rows;
}

/// A word's synonym, with a capital where it has one.
std::string synonym_of(const std::string& word, Draws& draws, bool always) {
  const std::string plain = lower(word[0]) + word.substr(1);
  const auto found = synonyms().find(plain);
  if (found == synonyms().end()) return word;
  const auto& row = found->second;
  const bool changes = draws.below(2) == 0 || always;
  const auto step = static_cast<std::ptrdiff_t>(1 + draws.below(row.size() - 1));
  if (!changes) return word;
  const std::ptrdiff_t at = std::ranges::find(row, plain) - row.begin();
  std::string other(row[(at + step) % std::ssize(row)]);
  if (is_capital(word[0])) other[0] = static_cast<char>(other[0] - 'a' + 'A');
  return other;
}

/// Whether the point, or another mark, at `at` ends a sentence of a line that goes on.
bool ends_sentence(std::string_view line, std::size_t at) {
  constexpr std::string_view kEnds = ".!?";
  if (kEnds.find(line[at]) == std::string_view::npos) return false;
  if (at + 2 >= line.size() || line[at + 1] != ' ' || lower(line[at + 2]) == line[at + 2])
    return false;
  std::size_t begin = at;
  while (begin > 0 && is_ascii_letter(line[begin - 1])) --begin;
  const std::string_view before = line.substr(begin, at - begin);
  return line[at] != '.' ||
         (before.size() != 1 && std::ranges::find(paraphrase::kAbbreviations, before) ==
                                    std::end(paraphrase::kAbbreviations));
}

/// A line with neighbouring sentences in another order. Its end counts as one if it has a mark.
std::string reordered(std::string_view line, Draws& draws, bool always) {
  std::vector<std::string_view> sentences;
  std::size_t begin = 0;
  for (std::size_t i = 0; i + 1 < line.size(); ++i)
    if (ends_sentence(line, i)) {
      sentences.push_back(line.substr(begin, i + 1 - begin));
      begin = i + 2;
    }
  const std::string_view rest = line.substr(begin);
  const bool whole = rest.ends_with('.') || rest.ends_with('!') || rest.ends_with('?');
  const std::size_t movable = sentences.size() + (whole ? 1 : 0);
  sentences.push_back(rest);
  for (std::size_t i = 0; i + 1 < movable; i += 2)
    if (draws.below(2) == 0 || always) std::swap(sentences[i], sentences[i + 1]);
  std::string text;
  for (const std::string_view one : sentences) text.append(text.empty() ? "" : " ").append(one);
  return text;
}

std::string paraphrased_once(std::string_view text, std::uint64_t seed, bool always) {
  Draws draws(seed, "study/paraphrase");
  std::string changed;
  for (std::size_t begin = 0; begin <= text.size();) {
    const std::size_t end = std::min(text.find('\n', begin), text.size());
    changed += reordered(text.substr(begin, end - begin), draws, always);
    if (end < text.size()) changed += '\n';
    begin = end + 1;
  }
  return with_words(changed,
                    [&](const std::string& word) { return synonym_of(word, draws, always); });
}

/// Whether a word looks like a name: a capital, then at least two small letters.
bool may_be_name(std::string_view word) {
  return word.size() >= 3 && is_capital(word[0]) &&
         std::ranges::none_of(word.substr(1), is_capital) &&
         std::ranges::find(paraphrase::kNoNames, word) == std::end(paraphrase::kNoNames);
}

/// Whether a word that begins there is the first of a sentence or a line.
bool begins_sentence(std::string_view text, std::size_t at) {
  constexpr std::string_view kBefore = " '(*_-", kEnds = ".!?\n\"";  // a quotation is one, too
  while (at > 0 && kBefore.find(text[at - 1]) != std::string_view::npos) --at;
  return at == 0 || kEnds.find(text[at - 1]) != std::string_view::npos;
}

std::set<std::string, std::less<>> names_in(std::string_view text) {
  const std::vector<Word> words = words_of(text);
  const auto name_at = [&](std::size_t i) {
    const std::string_view word = text.substr(words[i].begin, words[i].end - words[i].begin);
    return may_be_name(word) ? word : std::string_view();
  };
  std::set<std::string, std::less<>> names;
  for (std::size_t i = 0; i < words.size(); ++i) {
    if (name_at(i).empty()) continue;
    const bool followed = i + 1 < words.size() && words[i + 1].begin == words[i].end + 1 &&
                          text[words[i].end] == ' ' && !name_at(i + 1).empty();
    if (followed || !begins_sentence(text, words[i].begin)) names.emplace(name_at(i));
  }
  return names;
}

/// A spelling in which each letter of `letters` is another of them: they follow one another in a
/// circle, in an order drawn with the seed.
void add_spelling(std::string letters, Draws& draws, std::map<char, char>& to) {
  for (std::size_t i = letters.size() - 1; i > 0; --i)
    std::swap(letters[i], letters[draws.below(i + 1)]);
  for (std::size_t i = 0; i < letters.size(); ++i)
    to[letters[i]] = letters[(i + 1) % letters.size()];
}

}  // namespace

std::string paraphrased(std::string_view text, std::uint64_t seed) {
  std::string changed = paraphrased_once(text, seed, false);
  return changed == text ? paraphrased_once(text, seed, true) : changed;
}

std::string with_translated_names(std::string_view text, std::uint64_t seed) {
  Draws draws(seed, "study/names");
  std::map<char, char> spelling;
  add_spelling("aeiou", draws, spelling);
  add_spelling("bcdfghjklmnpqrstvwxyz", draws, spelling);
  const auto names = names_in(text);
  return with_words(text, [&](std::string word) {
    if (!names.contains(word)) return word;
    for (char& c : word) {
      const char small = spelling.at(lower(c));
      c = is_capital(c) ? static_cast<char>(small - 'a' + 'A') : small;
    }
    return word;
  });
}

}  // namespace axonn
