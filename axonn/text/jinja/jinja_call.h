#pragma once

#include <cstdint>
#include <initializer_list>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "axonn/text/jinja/jinja_value.h"

namespace axonn::jinja {

/// What a call passes.
struct Arguments {
  std::vector<Value> positional = {};
  std::vector<std::pair<std::string, Value>> named = {};
};

/// The arguments of a function by the place of their parameter.
class Parameters {
 public:
  /// Throws UsageError if there are more arguments than names, or for an unknown name.
  Parameters(std::string_view function, const Arguments& arguments,
             std::initializer_list<std::string_view> names);

  /// nullptr if the argument is not given.
  const Value* operator[](std::size_t i) const { return found_[i]; }
  const Value& need(std::size_t i) const;

  // The argument, or the second one if it is not given. Throws if it has another type.
  bool flag(std::size_t i, bool otherwise) const;
  std::int64_t integer(std::size_t i, std::int64_t otherwise) const;
  std::string string(std::size_t i, std::string_view otherwise) const;

 private:
  std::string_view function_;
  std::vector<std::string_view> names_;
  std::vector<const Value*> found_;
};

/// The running renderer, as filters and methods see it: its limits, and calls back into it.
class Session {
 public:
  virtual ~Session() = default;
  /// Counts work. Throws UsageError beyond the limit of the rendering.
  virtual void charge(std::size_t bytes) = 0;
  /// Applies a filter or a test by name, as map('upper') and select('odd') do.
  virtual Value filter(std::string_view name, const Value& value, const Arguments& arguments) = 0;
  virtual bool test(std::string_view name, const Value& value, const Arguments& arguments) = 0;
  /// The time that strftime_now() shows, by the format of strftime.
  virtual std::string time(const std::string& format) = 0;
};

/// A function as a value: a macro, a method of a value, a function of the environment, `loop`.
class Callable {
 public:
  virtual ~Callable() = default;
  virtual Value call(Session& session, const Arguments& arguments) const = 0;
  virtual Value member(std::string_view name) const;
};

/// value.name and value['name'] as the sandbox of Jinja evaluates them: undefined if there is none.
Value member_of(const Value& value, std::string_view name);
Value item_of(const Value& value, const Value& key);
/// value[begin:end:step]; bounds that are None are left out.
Value slice_of(const Value& value, const Value& begin, const Value& end, const Value& step);
/// Whether some value has a method of this name that is implemented.
bool is_method(std::string_view name);

using FilterFunction = Value (*)(Session&, const Value&, const Arguments&);
using TestFunction = bool (*)(Session&, const Value&, const Arguments&);
/// nullptr if there is none.
FilterFunction find_filter(std::string_view name);
TestFunction find_test(std::string_view name);

/// The functions of the environment: "range", "namespace", "raise_exception" and so on.
std::vector<std::pair<std::string_view, Value>> global_functions();

/// The text of a value that must be one; throws with the name of the function.
const Text& need_text(const Value& value, std::string_view function);
std::int64_t need_integer(const Value& value, std::string_view function);

// Operators.
Value add(Session& session, const Value& left, const Value& right);
/// One of - * / // % **.
Value arithmetic(Session& session, std::string_view op, const Value& left, const Value& right);
Value negated(const Value& value);

/// The message of raise_exception(), which is the template's own refusal.
class RaisedException : public UsageError {
 public:
  using UsageError::UsageError;
};

}  // namespace axonn::jinja
