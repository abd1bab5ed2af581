#include "axonn/data/text/jinja/jinja_value.h"

#include <algorithm>
#include <optional>

#include "axonn/foundation/base/check.h"
#include "axonn/foundation/base/utf8.h"

namespace axonn::jinja {

namespace {

constexpr std::size_t kFewKeys = 16;  // up to here, comparing all keys is fast

int deeper(int depth) {
  if (depth >= Value::kMostDepth) refuse("values nest deeper than ", Value::kMostDepth);
  return depth + 1;
}

double as_double(const Value& value) {
  if (const auto* number = value.as<double>()) return *number;
  if (const auto* flag = value.as<bool>()) return *flag ? 1 : 0;
  return static_cast<double>(*value.as<std::int64_t>());
}

/// The weight of what holds `value` besides what weighs `weight`.
std::size_t heavier(std::size_t weight, const Value& value) {
  constexpr std::size_t kElement = 32, kMost = std::size_t{1} << 60;
  return std::min(weight + kElement + value.weight(), kMost);
}

std::optional<std::int64_t> as_integer(const Value& value) {
  if (const auto* flag = value.as<bool>()) return *flag ? 1 : 0;
  if (const auto* number = value.as<std::int64_t>()) return *number;
  return {};
}

}  // namespace

Value::Value(List list) {
  for (const Value& item : list.items) {
    if (item.space() || item.callable())
      refuse("a list cannot hold a ", item.type_name(), "; only data can be in lists");
    list.depth = std::max(list.depth, deeper(item.depth()));
    list.weight = heavier(list.weight, item);
  }
  held_ = std::make_shared<const List>(std::move(list));
}

Value::Value(Dict dict) : held_(std::make_shared<const Dict>(std::move(dict))) {}

Value Value::undefined(std::string why) {
  Value value;
  value.held_ = Undefined{std::make_shared<const std::string>(std::move(why))};
  return value;
}

bool Value::truth() const {
  if (const auto* flag = as<bool>()) return *flag;
  if (const auto* number = as<std::int64_t>()) return *number != 0;
  if (const auto* number = as<double>()) return *number != 0;
  if (const Text* t = text()) return !t->empty();
  if (const List* l = list()) return !l->items.empty();
  if (const Dict* d = dict()) return d->size() > 0;
  return !is_undefined() && !is_none();
}

std::string_view Value::type_name() const {
  constexpr std::string_view kNames[] = {
      "undefined value",    "None",    "bool", "int", "float", "str", "list", "dict", "namespace",
      "int beyond 64 bits", "function"};
  if (const List* l = list(); l && l->is_tuple) return "tuple";
  return kNames[held_.index()];
}

int Value::depth() const {
  if (const List* l = list()) return l->depth;
  if (const Dict* d = dict()) return d->depth();
  return 0;
}

std::size_t Value::cost() const {
  if (const Text* t = text()) return t->cost();
  if (const List* l = list()) return l->items.size() * 32;
  return dict() ? dict()->size() * 64 : 0;
}

std::size_t Value::weight() const {
  if (const List* l = list()) return l->weight;
  return dict() ? dict()->weight() : cost();
}

std::size_t Dict::index_of(const Value& key) const {
  const Text* text = key.text();
  if (text && !texts_.empty()) {
    const auto found = texts_.find(text->bytes());
    return found == texts_.end() ? items_.size() : found->second;
  }
  const auto found = std::ranges::find_if(items_, [&](const Item& item) {
    if (text) return item.first.text() && item.first.text()->bytes() == text->bytes();
    return equal(item.first, key);
  });
  return static_cast<std::size_t>(found - items_.begin());
}

const Value* Dict::find(std::string_view key) const {
  if (!texts_.empty()) {
    const auto found = texts_.find(key);
    return found == texts_.end() ? nullptr : &items_[found->second].second;
  }
  for (const Item& item : items_)
    if (const Text* text = item.first.text(); text && text->bytes() == key) return &item.second;
  return nullptr;
}

const Value* Dict::find_key(const Value& key) const {
  if (const Text* text = key.text()) return find(std::string_view(text->bytes()));
  const std::size_t index = index_of(key);
  return index < items_.size() ? &items_[index].second : nullptr;
}

void Dict::set(Value key, Value value) {
  if (key.list() ? !key.list()->is_tuple : key.dict() || key.space() || key.is_undefined())
    refuse("a ", key.type_name(), " cannot be a key");
  if (value.space() || value.callable())
    refuse("a ", value.type_name(), " cannot be stored; only data can");
  depth_ = std::max({depth_, deeper(value.depth()), deeper(key.depth())});
  weight_ = heavier(heavier(weight_, key), value);
  const std::size_t index = index_of(key);
  if (index < items_.size()) {
    items_[index].second = std::move(value);
    return;
  }
  if (key.text() && (!texts_.empty() || items_.size() == kFewKeys)) {
    if (texts_.empty())
      for (std::size_t i = 0; i < items_.size(); ++i)
        if (const Text* text = items_[i].first.text()) texts_.emplace(text->bytes(), i);
    texts_.emplace(key.text()->bytes(), index);
  }
  items_.emplace_back(std::move(key), std::move(value));
}

bool equal(const Value& left, const Value& right) {
  if (const auto* a = left.as<LargeInteger>(), *b = right.as<LargeInteger>(); a && b)
    return *a->digits == *b->digits;
  if (left.is_number() && right.is_number()) {
    const auto i = as_integer(left), j = as_integer(right);
    return i && j ? *i == *j : as_double(left) == as_double(right);
  }
  if (const Text* a = left.text(), *b = right.text(); a && b) return a->bytes() == b->bytes();
  if (const List* a = left.list(), *b = right.list(); a && b)
    return a->is_tuple == b->is_tuple && std::ranges::equal(a->items, b->items, equal);
  if (const Dict* a = left.dict(), *b = right.dict(); a && b)
    return a->size() == b->size() && std::ranges::all_of(a->items(), [&](const Dict::Item& item) {
             const Value* other = b->find_key(item.first);
             return other && equal(item.second, *other);
           });
  if (left.space() || right.space()) return left.space() == right.space();
  if (left.callable() || right.callable()) return left.callable() == right.callable();
  return (left.is_none() && right.is_none()) || (left.is_undefined() && right.is_undefined());
}

int compare(const Value& left, const Value& right) {
  if (left.is_number() && right.is_number()) {
    if (const auto i = as_integer(left), j = as_integer(right); i && j)
      return *i < *j ? -1 : *i > *j;
    const double a = as_double(left), b = as_double(right);
    return a < b ? -1 : a > b;
  }
  // The order of bytes in UTF-8 is that of characters.
  if (const Text* a = left.text(), *b = right.text(); a && b) return a->bytes().compare(b->bytes());
  if (const List* a = left.list(), *b = right.list(); a && b && a->is_tuple == b->is_tuple) {
    const auto [i, j] = std::ranges::mismatch(a->items, b->items, equal);
    if (i != a->items.end() && j != b->items.end()) return compare(*i, *j);
    return i != a->items.end() ? 1 : j != b->items.end() ? -1 : 0;
  }
  for (const Value* value : {&left, &right})
    if (const auto* undefined = value->as<Undefined>(); undefined && undefined->why)
      refuse(*undefined->why);
  refuse("a ", left.type_name(), " and a ", right.type_name(), " have no order");
}

bool contains(const Value& container, const Value& item) {
  if (const Text* text = container.text()) {
    if (!item.text()) refuse("'in <string>' requires a string, not a ", item.type_name());
    return text->bytes().find(item.text()->bytes()) != std::string::npos;
  }
  if (const Dict* dict = container.dict()) return dict->find_key(item) != nullptr;
  if (const List* list = container.list())
    return std::ranges::any_of(list->items, [&](const Value& each) { return equal(each, item); });
  if (container.is_undefined()) return false;
  refuse("a ", container.type_name(), " is not iterable");
}

std::vector<Value> elements(const Value& value) {
  if (const List* list = value.list()) return list->items;
  std::vector<Value> out;
  if (const Dict* dict = value.dict()) {
    for (const Dict::Item& item : dict->items()) out.push_back(item.first);
  } else if (const Text* text = value.text()) {
    if (text->size() > kMostElements)
      refuse("a text of more than ", kMostElements, " bytes cannot be cut into characters");
    text->for_pieces([&](std::string_view piece, Origin origin) {
      while (!piece.empty()) {
        const std::string_view first = first_character(piece);
        out.emplace_back(Text(first, origin));
        piece.remove_prefix(first.size());
      }
    });
  } else if (!value.is_undefined()) {
    refuse("a ", value.type_name(), " is not iterable");
  }
  return out;
}

}  // namespace axonn::jinja
