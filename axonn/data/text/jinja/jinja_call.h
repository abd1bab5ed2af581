#pragma once

#include <array>
#include <cstdint>
#include <ctime>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "axonn/data/text/jinja/jinja_value.h"
#include "axonn/foundation/base/check.h"

namespace axonn::jinja {

/// The arguments of a call.
struct Arguments {
  std::vector<Value> positional = {};
  std::vector<std::pair<std::string, Value>> named = {};
};

/// The running renderer, as functions see it.
struct Session {
  const std::tm* now;  ///< that strftime_now() shows, or nullptr
  std::int64_t most_steps;
  std::int64_t steps = 0;

  /// Counts a step, and another one for every 16 bytes that an operation reads or makes. Throws
  /// UsageError beyond most_steps. So both the time and the memory of a rendering are bounded.
  void charge(std::size_t bytes = 0);
};

class Parameters;

/// A filter, a method, or a function of the environment. `self`: the value that is filtered, or
/// whose method it is.
struct Function {
  std::string_view name;
  std::array<std::string_view, 4> parameters;  ///< the names; {"*"}: any arguments
  Value (*run)(Session&, const Value& self, const Parameters&);
};

/// nullptr if there is none.
const Function* find_function(std::span<const Function> functions, std::string_view name);

Value call_function(const Function& function, Session& session, const Value& self,
                    const Arguments& arguments);

/// The arguments of a function by the index of their parameter.
class Parameters {
 public:
  /// Throws UsageError if there are more arguments than parameters, or for an unknown name.
  Parameters(const Function& function, const Arguments& arguments);

  std::string_view function() const { return function_.name; }
  const Arguments& all() const { return arguments_; }
  /// nullptr if the argument is not given.
  const Value* operator[](std::size_t i) const { return found_[i]; }
  /// nullptr if it is not given, or None.
  const Value* some(std::size_t i) const;
  const Value& need(std::size_t i) const;

  // The argument, or the second one if it is not given. Throws if it has another type.
  bool flag(std::size_t i, bool otherwise) const;
  std::int64_t integer(std::size_t i, std::int64_t otherwise) const;
  const Text& text(std::size_t i) const;  ///< must be given

 private:
  const Function& function_;
  const Arguments& arguments_;
  std::array<const Value*, 4> found_{};
};

/// A function as a value: a macro, a method of a value, a function of the environment, `loop`.
class Callable {
 public:
  virtual ~Callable() = default;
  virtual Value call(Session& session, const Arguments& arguments) const = 0;
  virtual Value member(std::string_view name) const;
};

/// The text of a value that must be one; throws with the name of the function.
const Text& need_text(const Value& value, std::string_view function);
std::int64_t need_integer(const Value& value, std::string_view function);

/// The message of raise_exception(), which is the template's own refusal.
class RaisedException : public UsageError {
 public:
  using UsageError::UsageError;
};

}  // namespace axonn::jinja
