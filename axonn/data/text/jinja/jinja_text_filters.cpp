// The filters that make texts.
#include <algorithm>
#include <cctype>

#include <fmt/format.h>

#include "axonn/data/text/characters.h"
#include "axonn/data/text/jinja/jinja_filters.h"
#include "axonn/data/text/jinja/jinja_format.h"
#include "axonn/data/text/jinja/jinja_methods.h"
#include "axonn/data/text/jinja/jinja_operators.h"
#include "axonn/data/text/jinja/jinja_print.h"
#include "axonn/data/text/unicode/properties.h"
#include "axonn/foundation/base/utf8.h"

namespace axonn::jinja {

namespace {

constexpr char kStrip[] = "strip", kUpper[] = "upper", kLower[] = "lower",
               kCapitalize[] = "capitalize", kReplace[] = "replace";

/// A filter that is a method of the value's text.
template <const char* kMethod>
Value by_method(Session& session, const Value& value, const Parameters& in) {
  return text_method(kMethod)->run(session, to_text(value), in);
}

/// Jinja's own title(): a letter after white space, -, (, {, [ or < is in upper case.
Value title_filter(Session&, const Value& value, const Parameters&) {
  bool inner = false;
  return to_text(value).mapped([&](std::string_view piece) {
    std::string out;
    while (!piece.empty()) {
      const std::string_view first = first_character(piece);
      piece.remove_prefix(first.size());
      out += inner ? lower_case(first) : upper_case(first);
      inner = !strip(first, Strip::both, nullptr).empty() &&
              std::string_view("-({[<").find(first) == std::string_view::npos;
    }
    return out;
  });
}

/// An indentation that is given as a text or as a number of spaces.
std::string indentation(const Parameters& in, std::size_t i, std::int64_t otherwise) {
  if (in[i] && in[i]->text()) return in[i]->text()->bytes();
  const auto width = std::clamp<std::int64_t>(in.integer(i, otherwise), 0, 100);
  return std::string(static_cast<std::size_t>(width), ' ');
}

Value tojson_filter(Session&, const Value& value, const Parameters& in) {
  JsonStyle style{.ensure_ascii = in.flag(0, false), .sort_keys = in.flag(3, false)};
  if (in.some(1)) {
    style.has_indent = true;
    style.indent = indentation(in, 1, 0);
    style.item_separator = ",";
  }
  if (in.some(2)) {
    const std::vector<Value> both = elements(*in[2]);
    if (both.size() != 2) refuse("tojson: separators must be two texts");
    style.item_separator = need_text(both[0], "tojson").bytes();
    style.key_separator = need_text(both[1], "tojson").bytes();
  }
  return to_json(value, style);
}

Value indent_filter(Session&, const Value& value, const Parameters& in) {
  const std::string by = indentation(in, 0, 4);
  Text text = need_text(value, "indent");
  text.append("\n", {});  // as Jinja does: so the lines of a text that ends with \n have a last one
  Text out;
  bool first = true;
  for (std::string_view line : split_lines(text.bytes(), false)) {
    const bool indents = first ? in.flag(1, false) : !line.empty() || in.flag(2, false);
    if (!first) out.append("\n", {});
    first = false;
    if (indents) out.append(by, {});
    out.append(text.slice(line));
  }
  return out;
}

Value center_filter(Session& session, const Value& value, const Parameters& in) {
  const Value width = in[0] ? *in[0] : Value(80);
  return call_function(*text_method("center"), session, to_text(value), {.positional = {width}});
}

Value escape_filter(Session&, const Value& value, const Parameters&) {
  return to_text(value).mapped([](std::string_view piece) {
    std::string out;
    for (const char c : piece) switch (c) {
        case '&':
          out += "&amp;";
          break;
        case '<':
          out += "&lt;";
          break;
        case '>':
          out += "&gt;";
          break;
        case '"':
          out += "&#34;";
          break;
        case '\'':
          out += "&#39;";
          break;
        default:
          out += c;
      }
    return out;
  });
}

Value format_filter(Session&, const Value& value, const Parameters& in) {
  const Arguments& all = in.all();
  if (!all.positional.empty() && !all.named.empty())
    refuse("format: arguments with and without names");
  Dict named;
  for (const auto& [name, each] : all.named) named.set(name, each);
  const Value values = named.size() > 0 ? Value(std::move(named))
                                        : Value(List{.items = all.positional, .is_tuple = true});
  return percent_format(to_text(value), values);
}

Value striptags_filter(Session&, const Value& value, const Parameters&) {
  std::string text = to_text(value).bytes();
  for (const auto& [open, close] : {std::pair("<!--", "-->"), std::pair("<", ">")})
    for (std::size_t at = text.find(open); at != text.npos; at = text.find(open)) {
      const std::size_t end = text.find(close, at);
      if (end == text.npos) break;
      text.erase(at, end - at + std::string_view(close).size());
    }
  if (text.find('&') != text.npos) refuse("striptags: references such as &amp; are not supported");
  std::string out;
  for (std::string_view rest = strip(text, Strip::both, nullptr); !rest.empty();) {
    const std::string_view first = first_character(rest);
    const std::string_view shorter = strip(rest, Strip::left, nullptr);
    out += shorter.size() < rest.size() ? std::string_view(" ") : first;
    rest = shorter.size() < rest.size() ? shorter : rest.substr(first.size());
  }
  return out;
}

Value truncate_filter(Session&, const Value& value, const Parameters& in) {
  const Text text = to_text(value);
  const Text end = in[2] ? in.text(2) : Text("...");
  const std::int64_t length = in.integer(0, 255), leeway = in.integer(3, 5),
                     kept = length - code_points(end.bytes());
  if (kept < 0) refuse("truncate: the length must be at least that of the end");
  if (code_points(text.bytes()) <= length + leeway) return text;
  Text out = text.slice(0, byte_of_character(text.bytes(), static_cast<std::size_t>(kept)));
  if (const std::size_t space = out.bytes().rfind(' ');
      !in.flag(1, false) && space != std::string::npos)
    out.cut(space);
  out.append(end);
  return out;
}

std::string url_quoted(std::string_view text, bool in_query) {
  std::string out;
  for (const char c : text) {
    const bool plain = std::isalnum(static_cast<unsigned char>(c)) != 0 ||
                       std::string_view("_.-~").find(c) != std::string_view::npos ||
                       (c == '/' && !in_query);
    if (c == ' ' && in_query)
      out += '+';
    else
      out += plain ? std::string(1, c) : fmt::format("%{:02X}", static_cast<unsigned char>(c));
  }
  return out;
}

Value urlencode_filter(Session&, const Value& value, const Parameters&) {
  if (value.text() || !(value.list() || value.dict()))
    return to_text(value).mapped([](std::string_view s) { return url_quoted(s, false); });
  std::string out;
  const auto add = [&](const Value& key, const Value& each) {
    out += (out.empty() ? "" : "&") + url_quoted(to_text(key).bytes(), true) + '=' +
           url_quoted(to_text(each).bytes(), true);
  };
  if (value.dict())
    for (const auto& [key, each] : value.dict()->items()) add(key, each);
  else
    for (const Value& pair : elements(value)) add(item_of(pair, 0), item_of(pair, 1));
  return out;
}

/// The runs of letters, digits and _.
Value wordcount_filter(Session&, const Value& value, const Parameters&) {
  static const CharacterSet letters = *characters_with("L"), numbers = *characters_with("N");
  std::int64_t count = 0;
  bool inside = false;
  const Text text = to_text(value);
  for (std::string_view rest = text.bytes(); !rest.empty();) {
    const std::string_view first = first_character(rest);
    const char32_t c = code_point(first);
    const bool word = c == '_' || holds(letters, c) || holds(numbers, c);
    count += word && !inside ? 1 : 0;
    inside = word;
    rest.remove_prefix(first.size());
  }
  return count;
}

Value safe_filter(Session&, const Value& value, const Parameters&) { return to_text(value); }

Value string_filter(Session&, const Value& value, const Parameters&) { return to_text(value); }

constexpr Function kTextFilters[] = {
    {"capitalize", {}, by_method<kCapitalize>},
    {"center", {"width"}, center_filter},
    {"e", {}, escape_filter},
    {"escape", {}, escape_filter},
    {"forceescape", {}, escape_filter},
    {"format", {"*"}, format_filter},
    {"indent", {"width", "first", "blank"}, indent_filter},
    {"lower", {}, by_method<kLower>},
    {"replace", {"old", "new", "count"}, by_method<kReplace>},
    {"safe", {}, safe_filter},
    {"string", {}, string_filter},
    {"striptags", {}, striptags_filter},
    {"title", {}, title_filter},
    {"tojson", {"ensure_ascii", "indent", "separators", "sort_keys"}, tojson_filter},
    {"trim", {"chars"}, by_method<kStrip>},
    {"truncate", {"length", "killwords", "end", "leeway"}, truncate_filter},
    {"upper", {}, by_method<kUpper>},
    {"urlencode", {}, urlencode_filter},
    {"wordcount", {}, wordcount_filter},
};

}  // namespace

const Function* find_text_filter(std::string_view name) {
  return find_function(kTextFilters, name);
}

}  // namespace axonn::jinja
