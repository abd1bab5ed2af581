// The methods of str.
#include <algorithm>

#include "axonn/data/text/characters.h"
#include "axonn/data/text/jinja/jinja_format.h"
#include "axonn/data/text/jinja/jinja_methods.h"
#include "axonn/data/text/unicode/properties.h"
#include "axonn/foundation/base/utf8.h"

namespace axonn::jinja {

namespace {

template <Strip kWhich>
Value strip_method(Session&, const Value& self, const Parameters& in) {
  const std::string* characters = in.some(0) ? &in.text(0).bytes() : nullptr;
  return self.text()->slice(strip(self.text()->bytes(), kWhich, characters));
}

void add_part(List& parts, Text part) {
  if (parts.items.size() == kMostElements)
    refuse("a text is cut into more than ", kMostElements, " parts");
  parts.items.emplace_back(std::move(part));
}

/// split() without a separator: the words between white space.
List split_words(const Text& text, std::int64_t most) {
  List out;
  std::string_view rest = strip(text.bytes(), Strip::left, nullptr);
  while (!rest.empty()) {
    std::size_t end = 0;
    while (end < rest.size() && !is_white_space(code_point(rest.substr(end))))
      end += first_character(rest.substr(end)).size();
    if (most >= 0 && std::ssize(out.items) == most) end = rest.size();
    add_part(out, text.slice(rest.substr(0, end)));
    rest = strip(rest.substr(end), Strip::left, nullptr);
  }
  return out;
}

/// rsplit() without a separator.
List last_words(const Text& text, std::int64_t most) {
  List out;
  std::string_view rest = strip(text.bytes(), Strip::right, nullptr);
  while (!rest.empty() && std::ssize(out.items) < most) {
    std::size_t begin = 0;  // of the last word
    for (std::size_t at = 0; at < rest.size();) {
      const std::string_view first = first_character(rest.substr(at));
      at += first.size();
      if (is_white_space(code_point(first))) begin = at;
    }
    add_part(out, text.slice(rest.substr(begin)));
    rest = strip(rest.substr(0, begin), Strip::right, nullptr);
  }
  if (!strip(rest, Strip::left, nullptr).empty())
    add_part(out, text.slice(strip(rest, Strip::left, nullptr)));
  std::ranges::reverse(out.items);
  return out;
}

template <bool kFromRight>
Value split_method(Session&, const Value& self, const Parameters& in) {
  const Text& text = *self.text();
  const std::int64_t most = in.integer(1, -1);
  if (!in.some(0))
    return kFromRight && most >= 0 ? last_words(text, most) : split_words(text, most);
  const std::string& separator = in.text(0).bytes();
  if (separator.empty()) refuse("split(): the separator is empty");
  List out;
  std::string_view rest = text.bytes();
  while (most < 0 || std::ssize(out.items) < most) {
    const std::size_t at = kFromRight ? rest.rfind(separator) : rest.find(separator);
    if (at == rest.npos) break;
    const std::string_view left = rest.substr(0, at), right = rest.substr(at + separator.size());
    add_part(out, text.slice(kFromRight ? right : left));
    rest = kFromRight ? left : right;
  }
  add_part(out, text.slice(rest));
  if (kFromRight) std::ranges::reverse(out.items);
  return out;
}

Value splitlines_method(Session&, const Value& self, const Parameters& in) {
  List out;
  for (std::string_view line : split_lines(self.text()->bytes(), in.flag(0, false)))
    add_part(out, self.text()->slice(line));
  return out;
}

/// The part of a text between the characters that arguments `i` and i + 1 name, as a slice does.
std::string_view part_of(const Text& text, const Parameters& in, std::size_t i) {
  const auto size = code_points(text.bytes());
  const auto index = [&](std::size_t argument, std::int64_t otherwise) {
    std::int64_t at = in.some(argument) ? in.integer(argument, 0) : otherwise;
    if (at < 0) at = std::max<std::int64_t>(at + size, 0);
    return byte_of_character(text.bytes(), static_cast<std::size_t>(at));
  };
  const std::size_t begin = index(i, 0), end = index(i + 1, size);
  return std::string_view(text.bytes()).substr(begin, end > begin ? end - begin : 0);
}

template <bool kEnds>
Value affix_method(Session&, const Value& self, const Parameters& in) {
  const std::string_view bytes = part_of(*self.text(), in, 1);
  const auto has = [&](const Value& affix) {
    const std::string& part = need_text(affix, "startswith() or endswith()").bytes();
    return kEnds ? bytes.ends_with(part) : bytes.starts_with(part);
  };
  if (const List* list = in.need(0).list(); list && list->is_tuple)
    return std::ranges::any_of(list->items, has);
  return has(in.need(0));
}

/// find(), rfind(), index() and rindex().
template <bool kLast, bool kMustBe>
Value find_method(Session&, const Value& self, const Parameters& in) {
  const std::string_view bytes = part_of(*self.text(), in, 1);
  const std::string& wanted = in.text(0).bytes();
  const std::size_t at = kLast ? bytes.rfind(wanted) : bytes.find(wanted);
  if (at == bytes.npos && kMustBe) refuse(in.function(), "(): substring not found");
  if (at == bytes.npos) return -1;
  const char* const begin = self.text()->bytes().data();
  return code_points({begin, static_cast<std::size_t>(bytes.data() - begin) + at});
}

Value count_method(Session&, const Value& self, const Parameters& in) {
  std::string_view rest = part_of(*self.text(), in, 1);
  const std::string& wanted = in.text(0).bytes();
  if (wanted.empty()) return code_points(rest) + 1;
  std::int64_t count = 0;
  for (std::size_t at = rest.find(wanted); at != rest.npos; at = rest.find(wanted, at), ++count)
    at += wanted.size();
  return count;
}

template <bool kLast>
Value partition_method(Session&, const Value& self, const Parameters& in) {
  const Text& text = *self.text();
  const std::string& separator = in.text(0).bytes();
  if (separator.empty()) refuse(in.function(), "(): the separator is empty");
  const std::size_t at = kLast ? text.bytes().rfind(separator) : text.bytes().find(separator);
  if (at == std::string::npos)
    return List{
        .items = kLast ? std::vector<Value>{"", "", text} : std::vector<Value>{text, "", ""},
        .is_tuple = true};
  const std::size_t end = at + separator.size();
  return List{.items = {text.slice(0, at), text.slice(at, end), text.slice(end, text.size())},
              .is_tuple = true};
}

template <bool kEnd>
Value remove_method(Session&, const Value& self, const Parameters& in) {
  const Text& text = *self.text();
  const std::string &bytes = text.bytes(), &part = in.text(0).bytes();
  if (part.empty() || !(kEnd ? bytes.ends_with(part) : bytes.starts_with(part))) return text;
  return kEnd ? text.slice(0, bytes.size() - part.size()) : text.slice(part.size(), bytes.size());
}

/// A text between so many fill characters.
Value between(const Text& text, std::int64_t left, std::int64_t right, std::string_view fill) {
  constexpr std::int64_t kMostFill = 1'000'000;
  if (left > kMostFill || right > kMostFill) refuse("a text is filled to more than 1,000,000");
  Text out;
  for (; left > 0; --left) out.append(fill, {});
  out.append(text);
  for (; right > 0; --right) out.append(fill, {});
  return out;
}

/// ljust(), rjust() and center(): where the text goes.
template <Strip kFilled>
Value justify_method(Session&, const Value& self, const Parameters& in) {
  const std::string fill = in[1] ? in.text(1).bytes() : " ";
  if (fill.empty() || first_character(fill).size() != fill.size())
    refuse(in.function(), "(): the fill must be one character");
  const std::int64_t width = need_integer(in.need(0), in.function());
  const std::int64_t missing = std::max<std::int64_t>(width - code_points(self.text()->bytes()), 0);
  // As Python does for an odd number.
  const std::int64_t left = kFilled == Strip::left    ? missing
                            : kFilled == Strip::right ? 0
                                                      : missing / 2 + (missing & width & 1);
  return between(*self.text(), left, missing - left, fill);
}

Value zfill_method(Session&, const Value& self, const Parameters& in) {
  const Text& text = *self.text();
  const std::int64_t missing = need_integer(in.need(0), "zfill()") - code_points(text.bytes());
  const bool sign = text.bytes().starts_with('-') || text.bytes().starts_with('+');
  Text out = text.slice(0, sign ? 1 : 0);
  out.append(*between(text.slice(sign ? 1 : 0, text.size()), missing, 0, "0").text());
  return out;
}

Value expandtabs_method(Session&, const Value& self, const Parameters& in) {
  const std::int64_t size = in.integer(0, 8);
  if (size > 1000) refuse("expandtabs() with more than 1,000 columns");
  std::int64_t column = 0;
  return self.text()->mapped([&](std::string_view piece) {
    std::string out;
    while (!piece.empty()) {
      const std::string_view first = first_character(piece);
      piece.remove_prefix(first.size());
      if (first == "\t") {
        const std::int64_t spaces = size > 0 ? size - column % size : 0;
        out.append(static_cast<std::size_t>(spaces), ' ');
        column += spaces;
        continue;
      }
      column = first == "\n" || first == "\r" ? 0 : column + 1;
      out += first;
    }
    return out;
  });
}

std::string swapped_case(std::string_view piece) {
  std::string out;
  while (!piece.empty()) {
    const std::string_view first = first_character(piece);
    piece.remove_prefix(first.size());
    const std::string lower = lower_case(first);
    out += lower == first ? upper_case(first) : lower;
  }
  return out;
}

/// Whether there are characters, and all of them are in one of these categories.
template <const char* kCategories>
Value all_in_method(Session&, const Value& self, const Parameters&) {
  static const std::vector<CharacterSet> sets = [] {
    std::vector<CharacterSet> all;
    std::string_view rest = kCategories;
    for (; !rest.empty(); rest.remove_prefix(std::min(rest.find(' '), rest.size() - 1) + 1))
      all.push_back(*characters_with(rest.substr(0, rest.find(' '))));
    return all;
  }();
  std::string_view rest = self.text()->bytes();
  const bool some = !rest.empty();
  for (; !rest.empty(); rest.remove_prefix(first_character(rest).size()))
    if (std::ranges::none_of(sets, [&](const auto& set) { return holds(set, code_point(rest)); }))
      return false;
  return some;
}

constexpr char kLetters[] = "L", kDecimals[] = "Nd", kDigits[] = "Nd No", kNumerics[] = "N",
               kLettersAndNumbers[] = "L N";

template <bool (*kHolds)(char32_t)>
Value all_are_method(Session&, const Value& self, const Parameters& in) {
  std::string_view rest = self.text()->bytes();
  const bool otherwise = in.function() == "isascii" || in.function() == "isprintable";
  if (rest.empty()) return otherwise;
  for (; !rest.empty(); rest.remove_prefix(first_character(rest).size()))
    if (!kHolds(code_point(rest))) return false;
  return true;
}

bool is_ascii(char32_t c) { return c < 0x80; }

/// islower() and isupper(): there are letters with a case, all in this one.
template <std::string (*kChange)(std::string_view), std::string (*kOther)(std::string_view)>
Value case_test(Session&, const Value& self, const Parameters&) {
  const std::string& bytes = self.text()->bytes();
  return kChange(bytes) == bytes && kOther(bytes) != bytes;
}

Value istitle_method(Session&, const Value& self, const Parameters&) {
  const Text& text = *self.text();
  return title_case(text, false).bytes() == text.bytes() &&
         lower_case(text.bytes()) != text.bytes();
}

Value isidentifier_method(Session&, const Value& self, const Parameters&) {
  const std::string& bytes = self.text()->bytes();
  const auto is_number = [](char c) { return c >= '0' && c <= '9'; };
  if (bytes.empty() || is_number(bytes[0])) return false;
  return std::ranges::all_of(bytes, [&](char c) {
    return is_number(c) || lower_ascii(c) != c || (c >= 'a' && c <= 'z') || c == '_' ||
           (c & 0x80) != 0;
  });
}

Value format_method(Session&, const Value& self, const Parameters& in) {
  return brace_format(*self.text(), in.all());
}

Value replace_method(Session&, const Value& self, const Parameters& in) {
  const Text &text = *self.text(), &to = in.text(1);
  const std::string& from = in.text(0).bytes();
  std::int64_t left = in.integer(2, -1);
  Text out;
  if (from.empty()) {  // before each character and at the end
    if (text.empty() && left >= 0 && in.function() == "replace") return left > 0 ? to : text;
    for (const Value& each : elements(text)) {
      if (left-- != 0)
        out.append(to);
      else
        ++left;
      out.append(*each.text());
    }
    if (left != 0) out.append(to);
    return out;
  }
  std::size_t done = 0;
  for (std::size_t at = text.bytes().find(from); at != std::string::npos && left != 0;
       at = text.bytes().find(from, done), --left) {
    out.append(text.slice(done, at));
    out.append(to);
    done = at + from.size();
  }
  if (done == 0) return text;
  out.append(text.slice(done, text.size()));
  return out;
}

template <std::string (*kChange)(std::string_view)>
Value case_method(Session&, const Value& self, const Parameters&) {
  return self.text()->mapped(kChange);
}

template <bool kOnce>
Value title_method(Session&, const Value& self, const Parameters&) {
  return title_case(*self.text(), kOnce);
}

/// Of a text whose small letters are those of its capitals, but for the German ss.
Value casefold_method(Session&, const Value& self, const Parameters&) {
  const Text lower = self.text()->mapped(lower_case);
  return lower.mapped([](std::string_view piece) {
    std::string out;
    while (!piece.empty()) {
      const std::string_view first = first_character(piece);
      piece.remove_prefix(first.size());
      out += first == "\u00df" ? "ss" : std::string(first);
      if (first.size() > 1 && first != "\u00df" && lower_case(upper_case(first)) != first)
        refuse("casefold() of '", first, "' is not supported");
    }
    return out;
  });
}

Value join_method(Session&, const Value& self, const Parameters& in) {
  Text out;
  bool first = true;
  for (const Value& each : elements(in.need(0))) {
    if (!first) out.append(*self.text());
    first = false;
    out.append(need_text(each, "join()"));
  }
  return out;
}

constexpr Function kTextMethods[] = {
    {"capitalize", {}, title_method<true>},
    {"casefold", {}, casefold_method},
    {"center", {"width", "fillchar"}, justify_method<Strip::both>},
    {"count", {"sub", "start", "end"}, count_method},
    {"endswith", {"suffix", "start", "end"}, affix_method<true>},
    {"expandtabs", {"tabsize"}, expandtabs_method},
    {"find", {"sub", "start", "end"}, find_method<false, false>},
    {"format", {"*"}, format_method},
    {"index", {"sub", "start", "end"}, find_method<false, true>},
    {"isalnum", {}, all_in_method<kLettersAndNumbers>},
    {"isalpha", {}, all_in_method<kLetters>},
    {"isascii", {}, all_are_method<is_ascii>},
    {"isdecimal", {}, all_in_method<kDecimals>},
    {"isdigit", {}, all_in_method<kDigits>},
    {"isidentifier", {}, isidentifier_method},
    {"islower", {}, case_test<lower_case, upper_case>},
    {"isnumeric", {}, all_in_method<kNumerics>},
    {"isprintable", {}, all_are_method<is_printable>},
    {"isspace", {}, all_are_method<is_white_space>},
    {"istitle", {}, istitle_method},
    {"isupper", {}, case_test<upper_case, lower_case>},
    {"join", {"iterable"}, join_method},
    {"ljust", {"width", "fillchar"}, justify_method<Strip::right>},
    {"lower", {}, case_method<lower_case>},
    {"lstrip", {"chars"}, strip_method<Strip::left>},
    {"partition", {"sep"}, partition_method<false>},
    {"removeprefix", {"prefix"}, remove_method<false>},
    {"removesuffix", {"suffix"}, remove_method<true>},
    {"replace", {"old", "new", "count"}, replace_method},
    {"rfind", {"sub", "start", "end"}, find_method<true, false>},
    {"rindex", {"sub", "start", "end"}, find_method<true, true>},
    {"rjust", {"width", "fillchar"}, justify_method<Strip::left>},
    {"rpartition", {"sep"}, partition_method<true>},
    {"rsplit", {"sep", "maxsplit"}, split_method<true>},
    {"rstrip", {"chars"}, strip_method<Strip::right>},
    {"split", {"sep", "maxsplit"}, split_method<false>},
    {"splitlines", {"keepends"}, splitlines_method},
    {"startswith", {"prefix", "start", "end"}, affix_method<false>},
    {"strip", {"chars"}, strip_method<Strip::both>},
    {"swapcase", {}, case_method<swapped_case>},
    {"title", {}, title_method<false>},
    {"upper", {}, case_method<upper_case>},
    {"zfill", {"width"}, zfill_method},
};

}  // namespace

const Function* text_method(std::string_view name) { return find_function(kTextMethods, name); }

}  // namespace axonn::jinja
