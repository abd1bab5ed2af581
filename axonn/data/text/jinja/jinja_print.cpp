#include "axonn/data/text/jinja/jinja_print.h"

#include <algorithm>
#include <charconv>
#include <cmath>

#include "axonn/data/text/characters.h"
#include "axonn/foundation/base/check.h"
#include "axonn/foundation/base/utf8.h"

namespace axonn::jinja {

namespace {

/// repr() of a float: "0.1", "1e+16", "inf".
std::string float_text(double value) {
  if (std::isnan(value)) return "nan";
  if (std::isinf(value)) return value > 0 ? "inf" : "-inf";
  char buffer[40];
  const auto end =
      std::to_chars(std::begin(buffer), std::end(buffer), value, std::chars_format::scientific);
  std::string_view shortest(buffer, static_cast<std::size_t>(end.ptr - buffer));
  int exponent = 0;
  const std::size_t e = shortest.find('e');
  const char* digits = shortest.data() + e + 1 + (shortest[e + 1] == '+' ? 1 : 0);
  std::from_chars(digits, end.ptr, exponent);
  // Python writes exponents below -4 and from 16 on.
  if (exponent < -4 || exponent >= 16) return std::string(shortest);
  const auto fixed =
      std::to_chars(std::begin(buffer), std::end(buffer), value, std::chars_format::fixed);
  std::string text(buffer, fixed.ptr);
  return text.find('.') == text.npos ? text + ".0" : text;
}

std::string hex(char32_t c, int digits) {
  std::string out(static_cast<std::size_t>(digits), '0');
  for (auto at = out.rbegin(); at != out.rend(); ++at, c >>= 4) *at = "0123456789abcdef"[c & 15];
  return out;
}

/// The character in repr() of a text that is in these quotes.
void append_repr(std::string_view character, char quote, std::string& out) {
  const char32_t c = code_point(character);
  if (c == static_cast<unsigned char>(quote) || c == '\\')
    (out += '\\') += character;
  else if (c == '\n')
    out += "\\n";
  else if (c == '\r')
    out += "\\r";
  else if (c == '\t')
    out += "\\t";
  else if (is_printable(c))
    out += character;
  else if (c < 0x100)
    out += "\\x" + hex(c, 2);
  else
    out += c < 0x10000 ? "\\u" + hex(c, 4) : "\\U" + hex(c, 8);
}

Text text_repr(const Text& text) {
  const std::string& bytes = text.bytes();
  const bool doubled =
      bytes.find('\'') != bytes.npos && bytes.find('"') == bytes.npos;  // as Python chooses
  const char quote = doubled ? '"' : '\'';
  const std::string_view around(&quote, 1);
  Text out(around);
  out.append(text.mapped([&](std::string_view piece) {
    std::string shown;
    while (!piece.empty()) {
      const std::string_view first = first_character(piece);
      append_repr(first, quote, shown);
      piece.remove_prefix(first.size());
    }
    return shown;
  }));
  out.append(around, {});
  return out;
}

void append_repr(const Value& value, Text& to) {
  if (const Text* text = value.text()) return to.append(text_repr(*text));
  if (value.is_undefined()) return to.append("Undefined", {});
  to.append(to_text(value));
}

void append_list(const List& list, Text& to) {
  to.append(list.is_tuple ? "(" : "[", {});
  for (std::size_t i = 0; i < list.items.size(); ++i) {
    if (i > 0) to.append(", ", {});
    append_repr(list.items[i], to);
  }
  if (list.is_tuple && list.items.size() == 1) to.append(",", {});
  to.append(list.is_tuple ? ")" : "]", {});
}

void append_dict(const Dict& dict, Text& to) {
  to.append("{", {});
  bool first = true;
  for (const auto& [key, value] : dict.items()) {
    if (!first) to.append(", ", {});
    first = false;
    append_repr(key, to);
    to.append(": ", {});
    append_repr(value, to);
  }
  to.append("}", {});
}

std::string json_escaped(std::string_view text, bool ensure_ascii) {
  std::string out;
  while (!text.empty()) {
    const std::string_view first = first_character(text);
    text.remove_prefix(first.size());
    const char32_t c = code_point(first);
    const auto* const named = "\"\"\\\\\nn\rr\tt\bb\ff";
    const std::string_view names(named, 14);
    std::size_t at = first.size() == 1 ? 0 : names.size();
    while (at < names.size() && names[at] != first[0]) at += 2;
    if (at < names.size()) {
      (out += '\\') += names[at + 1];
    } else if (c < 0x20 || (ensure_ascii && c >= 0x7f && c < 0x10000)) {
      out += "\\u" + hex(c, 4);
    } else if (ensure_ascii && c >= 0x10000) {
      out += "\\u" + hex(0xd800 + ((c - 0x10000) >> 10), 4);
      out += "\\u" + hex(0xdc00 + ((c - 0x10000) & 0x3ff), 4);
    } else {
      out += first;
    }
  }
  return out;
}

/// Writes JSON as Python's json.dumps().
class JsonWriter {
 public:
  explicit JsonWriter(const JsonStyle& style) : style_(style) {}

  void write(const Value& value) {
    if (const Text* text = value.text()) return write(*text);
    if (const List* list = value.list()) return write(*list);
    if (const Dict* dict = value.dict()) return write(*dict);
    out_.append(plain(value), {});
  }
  Text take() { return std::move(out_); }

 private:
  void sign(std::string_view characters) { out_.append(characters, {}); }

  static std::string plain(const Value& value) {
    if (value.is_none()) return "null";
    if (const auto* flag = value.as<bool>()) return *flag ? "true" : "false";
    if (const auto* number = value.as<double>()) {
      const std::string text = float_text(*number);
      if (text == "nan") return "NaN";
      return text == "inf" ? "Infinity" : text == "-inf" ? "-Infinity" : text;
    }
    if (value.is_integer() || value.as<LargeInteger>()) return to_text(value).bytes();
    refuse("a ", value.type_name(), " cannot be written as JSON");
  }

  void write(const Text& text) {
    sign("\"");
    out_.append(text.mapped(
        [&](std::string_view piece) { return json_escaped(piece, style_.ensure_ascii); }));
    sign("\"");
  }

  void new_line() {
    if (!style_.has_indent) return;
    sign("\n");
    for (int i = 0; i < level_; ++i) sign(style_.indent);
  }

  /// Writes brackets around what `each(i)` writes for 0 <= i < count.
  template <typename Each>
  void write_all(std::string_view brackets, std::size_t count, const Each& each) {
    sign(brackets.substr(0, 1));
    ++level_;
    for (std::size_t i = 0; i < count; ++i) {
      if (i > 0) sign(style_.item_separator);
      new_line();
      each(i);
    }
    --level_;
    if (count > 0) new_line();
    sign(brackets.substr(1));
  }

  void write(const List& list) {
    write_all("[]", list.items.size(), [&](std::size_t i) { write(list.items[i]); });
  }

  void write(const Dict& dict) {
    std::vector<Dict::Item> items = dict.items();
    if (style_.sort_keys)
      std::ranges::stable_sort(items, [](const Dict::Item& a, const Dict::Item& b) {
        return compare(a.first, b.first) < 0;
      });
    write_all("{}", items.size(), [&](std::size_t i) {
      const Value& key = items[i].first;
      write(key.text() ? *key.text() : Text(plain(key)));
      sign(style_.key_separator);
      write(items[i].second);
    });
  }

  const JsonStyle& style_;
  Text out_;
  int level_ = 0;
};

}  // namespace

Text to_text(const Value& value) {
  if (const Text* text = value.text()) return *text;
  if (value.is_undefined()) return {};
  if (value.is_none()) return Text("None");
  if (const auto* flag = value.as<bool>()) return Text(*flag ? "True" : "False");
  if (const auto* number = value.as<std::int64_t>()) return Text(std::to_string(*number));
  if (const auto* number = value.as<double>()) return Text(float_text(*number));
  if (const auto* number = value.as<LargeInteger>()) return Text(*number->digits);
  Text out;
  if (const List* list = value.list())
    append_list(*list, out);
  else if (const Dict* dict = value.dict())
    append_dict(*dict, out);
  else
    refuse("a ", value.type_name(), " cannot be written as text");
  return out;
}

Text value_repr(const Value& value) {
  Text out;
  append_repr(value, out);
  return out;
}

Text to_json(const Value& value, const JsonStyle& style) {
  JsonWriter writer(style);
  writer.write(value);
  return writer.take();
}

}  // namespace axonn::jinja
