#include "axonn/data/text/jinja/jinja_operators.h"

#include <algorithm>
#include <cmath>

#include "axonn/data/text/jinja/jinja_call.h"
#include "axonn/data/text/jinja/jinja_format.h"
#include "axonn/data/text/jinja/jinja_methods.h"
#include "axonn/data/text/jinja/jinja_print.h"
#include "axonn/foundation/base/check.h"
#include "axonn/foundation/base/utf8.h"

namespace axonn::jinja {

namespace {

[[noreturn]] void no_operator(std::string_view op, const Value& left, const Value& right) {
  for (const Value* value : {&left, &right})
    if (const auto* undefined = value->as<Undefined>())
      refuse(undefined->why ? *undefined->why : "an operand is undefined");
  refuse("'", op, "' is not defined for ", left.type_name(), " and ", right.type_name());
}

double real(const Value& value) {
  if (const auto* number = value.as<double>()) return *number;
  return static_cast<double>(need_integer(value, "arithmetic"));
}

Value power(std::int64_t base, std::int64_t exponent) {
  if (exponent < 0) {
    if (base == 0) refuse("0 to a negative power");
    return std::pow(static_cast<double>(base), static_cast<double>(exponent));
  }
  if (base == 0 || base == 1) return exponent == 0 ? 1 : base;
  if (base == -1) return exponent % 2 == 0 ? 1 : -1;
  std::int64_t result = 1;
  for (; exponent > 0; --exponent)
    if (__builtin_mul_overflow(result, base, &result))
      refuse("the result of '**' is beyond 64 bits");
  return result;
}

Value integer_arithmetic(std::string_view op, std::int64_t a, std::int64_t b) {
  std::int64_t result = 0;
  if (op == "+"   ? __builtin_add_overflow(a, b, &result)
      : op == "-" ? __builtin_sub_overflow(a, b, &result)
                  : op == "*" && __builtin_mul_overflow(a, b, &result))
    refuse("the result of '", op, "' is beyond 64 bits");
  if (op == "+" || op == "-" || op == "*") return result;
  if (op == "**") return power(a, b);
  if (b == 0) refuse("division by zero");
  if (op == "/") return static_cast<double>(a) / static_cast<double>(b);
  if (b == -1) return op == "%" ? Value(0) : integer_arithmetic("-", 0, a);
  const std::int64_t rest = a % b, moved = rest != 0 && (rest < 0) != (b < 0) ? 1 : 0;
  if (op == "%") return rest + moved * b;
  return a / b - moved;  // rounds down, as Python does
}

Value real_arithmetic(std::string_view op, double a, double b) {
  if (op == "+") return a + b;
  if (op == "-") return a - b;
  if (op == "*") return a * b;
  if (op == "**") return std::pow(a, b);
  if (b == 0) refuse("division by zero");
  if (op == "/") return a / b;
  double rest = std::fmod(a, b);
  if (rest != 0 && (rest < 0) != (b < 0)) rest += b;
  if (op == "%") return rest;
  return std::floor((a - rest) / b + 0.5);
}

/// A text or list `times` times.
Value repeated(const Value& value, std::int64_t times) {
  const auto count = static_cast<std::size_t>(std::max<std::int64_t>(times, 0));
  if (value.cost() > 0 && count > Text::kMostCost / value.cost())
    refuse("'*' makes a ", value.type_name(), " of more than ", Text::kMostCost >> 20U, " MiB");
  Text text;
  List list{.is_tuple = value.list() && value.list()->is_tuple};
  for (std::size_t i = 0; i < count && value.cost() > 0; ++i) {
    if (value.text())
      text.append(*value.text());
    else
      list.items.insert(list.items.end(), value.list()->items.begin(), value.list()->items.end());
  }
  return value.text() ? Value(std::move(text)) : Value(std::move(list));
}

struct SliceRange {
  std::int64_t begin, count, step;
};

SliceRange slice_range(std::int64_t size, const Value& begin, const Value& end, const Value& step) {
  const std::int64_t by = step.is_none() ? 1 : need_integer(step, "a slice");
  if (by == 0) refuse("the step of a slice is 0");
  const auto bound = [&](const Value& value, std::int64_t otherwise) {
    if (value.is_none()) return otherwise;
    std::int64_t at = need_integer(value, "a slice");
    if (at < 0) at += at >= -size ? size : -at - 1;  // below the start: -1
    return by > 0 ? std::clamp<std::int64_t>(at, 0, size) : std::min(at, size - 1);
  };
  const std::int64_t from = bound(begin, by > 0 ? 0 : size - 1),
                     to = bound(end, by > 0 ? size : -1);
  const std::int64_t span = by > 0 ? to - from : from - to;
  if (span <= 0) return {from, 0, by};
  const std::uint64_t stride =
      by > 0 ? static_cast<std::uint64_t>(by) : -static_cast<std::uint64_t>(by);
  return {from, static_cast<std::int64_t>((static_cast<std::uint64_t>(span) - 1) / stride + 1), by};
}

}  // namespace

Value arithmetic(std::string_view op, const Value& left, const Value& right) {
  if (left.is_number() && right.is_number()) {
    if (left.as<double>() || right.as<double>())
      return real_arithmetic(op, real(left), real(right));
    return integer_arithmetic(op, need_integer(left, op), need_integer(right, op));
  }
  const auto is_sequence = [](const Value& value) { return value.text() || value.list(); };
  if (op == "*" && is_sequence(left) && right.is_integer())
    return repeated(left, need_integer(right, op));
  if (op == "*" && is_sequence(right) && left.is_integer())
    return repeated(right, need_integer(left, op));
  if (op == "%" && left.text()) return percent_format(*left.text(), right);
  const List *a = left.list(), *b = right.list();
  if (op == "+" && left.text() && right.text()) {
    Text out = *left.text();
    out.append(*right.text());
    return out;
  }
  if (op == "+" && a && b && a->is_tuple == b->is_tuple) {
    List out{.items = a->items, .is_tuple = a->is_tuple};
    out.items.insert(out.items.end(), b->items.begin(), b->items.end());
    return out;
  }
  no_operator(op, left, right);
}

Value negated(const Value& value) {
  if (const auto* number = value.as<double>()) return -*number;
  return integer_arithmetic("-", 0, need_integer(value, "'-'"));
}

Value item_of(const Value& value, const Value& key) {
  if (const auto* undefined = value.as<Undefined>())
    refuse(undefined->why ? *undefined->why : "an undefined value has no items");
  const auto none = [&] {
    return Value::undefined(concat("a ", value.type_name(), " has no item ",
                                   key.text() || key.is_number() ? to_text(key).bytes() : "of that",
                                   ""));
  };
  if (const Dict* dict = value.dict()) {
    if (const Value* found = dict->find_key(key)) return *found;
    return key.text() ? member_of(value, key.text()->bytes()) : none();
  }
  if (key.text()) return member_of(value, key.text()->bytes());
  if (!key.as<std::int64_t>() && !key.as<bool>()) return none();
  std::int64_t index = need_integer(key, "an index");
  if (const List* list = value.list()) {
    const auto size = std::ssize(list->items);
    if (index < 0) index += size;
    return index >= 0 && index < size ? list->items[static_cast<std::size_t>(index)] : none();
  }
  if (const Text* text = value.text()) {
    const auto size = code_points(text->bytes());
    if (index < 0) index += size;
    if (index < 0 || index >= size) return none();
    const std::size_t at = byte_of_character(text->bytes(), static_cast<std::size_t>(index));
    return text->slice(first_character(std::string_view(text->bytes()).substr(at)));
  }
  return none();
}

Value slice_of(const Value& value, const Value& begin, const Value& end, const Value& step) {
  if (const Text* text = value.text(); text && (step.is_none() || equal(step, 1))) {
    const auto size = code_points(text->bytes());
    const SliceRange range = slice_range(size, begin, end, step);
    const std::size_t from =
        byte_of_character(text->bytes(), static_cast<std::size_t>(range.begin));
    const std::string_view rest = std::string_view(text->bytes()).substr(from);
    return text->slice(from, from + byte_of_character(rest, static_cast<std::size_t>(range.count)));
  }
  if (!value.text() && !value.list()) {
    if (value.is_undefined()) need_text(value, "a slice");
    return Value::undefined(concat("a ", value.type_name(), " cannot be sliced"));
  }
  const std::vector<Value> all = elements(value);
  const SliceRange range = slice_range(std::ssize(all), begin, end, step);
  List out{.is_tuple = value.list() && value.list()->is_tuple};
  for (std::int64_t i = 0; i < range.count; ++i)
    out.items.push_back(all[static_cast<std::size_t>(range.begin + i * range.step)]);
  if (value.list()) return out;
  Text joined;
  for (const Value& c : out.items) joined.append(*c.text());
  return joined;
}

}  // namespace axonn::jinja
