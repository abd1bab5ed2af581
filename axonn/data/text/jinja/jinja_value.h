#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <variant>
#include <vector>

#include "axonn/data/text/jinja/jinja_text.h"

namespace axonn::jinja {

class Value;
class Callable;
struct List;
class Dict;

/// The value of a name or member that does not exist. It prints as nothing, and using it in another
/// way throws.
struct Undefined {
  std::shared_ptr<const std::string> why;  ///< "'x' is undefined"
};
struct None {};
/// An integer beyond 64 bits, which data may have, as its digits. Templates can only write it.
struct LargeInteger {
  std::shared_ptr<const std::string> digits;
};
/// namespace(): the one kind of value that a template can change.
using NamespacePtr = std::shared_ptr<Dict>;
using ListPtr = std::shared_ptr<const List>;
using DictPtr = std::shared_ptr<const Dict>;
using TextPtr = std::shared_ptr<const Text>;
using CallablePtr = std::shared_ptr<const Callable>;

/// A namespace is told from a dict by its type.
struct Namespace {
  NamespacePtr members;
};

/// A Python value as Jinja templates see it. Cheap to copy; immutable but for namespaces.
class Value {
 public:
  Value() : held_(Undefined{}) {}
  Value(None) : held_(None{}) {}
  Value(bool value) : held_(value) {}
  Value(int value) : held_(std::int64_t{value}) {}
  Value(std::int64_t value) : held_(value) {}
  Value(std::size_t value) : held_(static_cast<std::int64_t>(value)) {}
  Value(double value) : held_(value) {}
  Value(Text text) : held_(std::make_shared<const Text>(std::move(text))) {}
  Value(TextPtr text) : held_(std::move(text)) {}
  Value(std::string_view text) : Value(Text(text)) {}
  Value(const std::string& text) : Value(Text(text)) {}
  Value(const char* text) : Value(Text(text)) {}
  /// Throws UsageError if values nest deeper than kMostDepth.
  Value(List list);
  Value(Dict dict);
  Value(ListPtr list) : held_(std::move(list)) {}
  Value(DictPtr dict) : held_(std::move(dict)) {}
  Value(Namespace space) : held_(std::move(space)) {}
  Value(LargeInteger number) : held_(std::move(number)) {}
  Value(CallablePtr callable) : held_(std::move(callable)) {}

  /// Published data nests 20 deep at most.
  static constexpr int kMostDepth = 100;

  static Value undefined(std::string why);

  bool is_undefined() const { return is<Undefined>(); }
  bool is_none() const { return is<None>(); }
  bool is_text() const { return is<TextPtr>(); }
  bool is_integer() const { return is<std::int64_t>() || is<bool>(); }
  bool is_number() const { return is_integer() || is<double>(); }

  /// The value if it has this type, else nullptr.
  template <typename T>
  const T* as() const {
    return std::get_if<T>(&held_);
  }
  const Text* text() const { return is_text() ? as<TextPtr>()->get() : nullptr; }
  const List* list() const { return is<ListPtr>() ? as<ListPtr>()->get() : nullptr; }
  const Dict* dict() const { return is<DictPtr>() ? as<DictPtr>()->get() : nullptr; }
  Dict* space() const { return is<Namespace>() ? as<Namespace>()->members.get() : nullptr; }
  const Callable* callable() const {
    return is<CallablePtr>() ? as<CallablePtr>()->get() : nullptr;
  }

  bool truth() const;
  /// Python's name of the type, for messages: "str".
  std::string_view type_name() const;
  /// How deep it nests: 0 for a value that holds no others.
  int depth() const;
  /// About the memory of its own text, or of its elements without what they hold.
  std::size_t cost() const;
  /// The same with what they hold, as often as it appears: bounds the time of going over it.
  std::size_t weight() const;

 private:
  template <typename T>
  bool is() const {
    return std::holds_alternative<T>(held_);
  }

  std::variant<Undefined, None, bool, std::int64_t, double, TextPtr, ListPtr, DictPtr, Namespace,
               LargeInteger, CallablePtr>
      held_;
};

/// A list, or a tuple, which prints differently and equals no list.
struct List {
  std::vector<Value> items;
  bool is_tuple = false;
  int depth = 0;           ///< set by Value
  std::size_t weight = 0;  ///< the same
};

/// Keys and values in the order in which keys were first set.
class Dict {
 public:
  using Item = std::pair<Value, Value>;

  const std::vector<Item>& items() const { return items_; }
  std::size_t size() const { return items_.size(); }
  void set(Value key, Value value);
  /// nullptr if there is none.
  const Value* find(std::string_view key) const;
  const Value* find_key(const Value& key) const;
  int depth() const { return depth_; }
  std::size_t weight() const { return weight_; }

 private:
  std::size_t index_of(const Value& key) const;

  std::vector<Item> items_;
  std::unordered_map<std::string_view, std::size_t> texts_;  // the text keys, if there are many
  int depth_ = 0;
  std::size_t weight_ = 0;
};

bool equal(const Value& left, const Value& right);
/// Negative, 0 or positive. Throws for types that have no order.
int compare(const Value& left, const Value& right);
/// Whether `container` holds the item: an element, a key, a part of a text.
bool contains(const Value& container, const Value& item);
/// The most elements that a text is cut into.
inline constexpr std::size_t kMostElements = 1'000'000;
/// The elements of a list, the keys of a dict, the characters of a text; none if undefined. Throws
/// if it is not iterable, and for a text of more than kMostElements bytes.
std::vector<Value> elements(const Value& value);

}  // namespace axonn::jinja
