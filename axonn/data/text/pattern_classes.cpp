#include "axonn/data/text/pattern_classes.h"

#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <utility>

#include <fmt/format.h>
#include <pcre2.h>

#include "axonn/data/text/unicode/properties.h"
#include "axonn/foundation/base/utf8.h"

namespace axonn {

namespace {

// The characters that versions of Unicode may differ in. Other planes are empty or for private use.
const CharacterSet kChanging{{0, 0xd7ff}, {0xe000, 0x3ffff}, {0xe0000, 0xe0fff}};

std::string text_of_changing() {
  std::string text;
  for (const auto& [first, last] : kChanging)
    for (char32_t c = first; c <= last; ++c) append_utf8(c, text);
  return text;
}

CharacterSet only_changing(const CharacterSet& set) { return difference(set, all_but(kChanging)); }

/// The changing characters that PCRE2 takes for \p{property}. Empty if it does not know the name.
std::optional<CharacterSet> known_to_pcre2(const std::string& property) {
  static const std::string text = text_of_changing();
  const std::string pattern = "\\p{" + property + '}';
  int error = 0;
  PCRE2_SIZE offset = 0;
  const std::unique_ptr<pcre2_code, void (*)(pcre2_code*)> code(
      pcre2_compile(reinterpret_cast<PCRE2_SPTR>(pattern.data()), pattern.size(), PCRE2_UTF, &error,
                    &offset, nullptr),
      pcre2_code_free);
  if (!code) return std::nullopt;
  const std::unique_ptr<pcre2_match_data, void (*)(pcre2_match_data*)> data(
      pcre2_match_data_create(1, nullptr), pcre2_match_data_free);
  pcre2_jit_compile(code.get(), PCRE2_JIT_COMPLETE);
  CharacterSet set;
  const auto* subject = reinterpret_cast<PCRE2_SPTR>(text.data());
  for (std::size_t at = 0; pcre2_match(code.get(), subject, text.size(), at, PCRE2_NO_UTF_CHECK,
                                       data.get(), nullptr) > 0;) {
    const PCRE2_SIZE* ends = pcre2_get_ovector_pointer(data.get());
    const char32_t c = code_point(std::string_view(text).substr(ends[0], ends[1] - ends[0]));
    if (!set.empty() && set.back().last + 1 == c)
      set.back().last = c;
    else
      set.push_back({c, c});
    at = ends[1];
  }
  return set;
}

std::string listed_ranges(const CharacterSet& set) {
  std::string items;
  for (const auto& [first, last] : difference(set, {{0xd800, 0xdfff}})) {
    const auto c = [](char32_t code) { return static_cast<std::uint32_t>(code); };
    items += first == last ? fmt::format("\\x{{{:x}}}", c(first))
                           : fmt::format("\\x{{{:x}}}-\\x{{{:x}}}", c(first), c(last));
  }
  return items;
}

/// The items of \p{property} and of \P{property}.
std::pair<std::string, std::string> items_of_property(const std::string& property) {
  const std::optional<CharacterSet> wanted = characters_with(property);
  if (!wanted) return {};
  const CharacterSet own = only_changing(*wanted);
  const std::optional<CharacterSet> theirs = known_to_pcre2(property);
  const std::string name = '{' + property + '}';
  if (theirs && *theirs == own) return {"\\p" + name, "\\P" + name};
  const bool more = !theirs || !difference(*theirs, own).empty();
  return {more ? listed_ranges(*wanted) : "\\p" + name + listed_ranges(difference(own, *theirs)),
          listed_ranges(all_but(*wanted))};
}

}  // namespace

std::string class_items(std::string_view property, bool negated) {
  // Comparing takes milliseconds, and programs open tokenizers often.
  static std::mutex mutex;
  static std::map<std::string, std::pair<std::string, std::string>, std::less<>> known;
  const std::lock_guard lock(mutex);
  auto found = known.find(property);
  if (found == known.end())
    found = known.emplace(property, items_of_property(std::string(property))).first;
  return negated ? found->second.second : found->second.first;
}

}  // namespace axonn
