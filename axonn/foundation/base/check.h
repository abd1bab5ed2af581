#pragma once

#include <sstream>
#include <stdexcept>
#include <string>
#include <utility>

namespace axonn {

/// Base class of all exceptions of the library: a violated precondition or a failed library call.
/// what() names the operation, what was got, what was wanted and the remedy; where() is the source
/// line that threw (empty for usage errors).
class Error : public std::runtime_error {
 public:
  explicit Error(const std::string& message, std::string where = {})
      : std::runtime_error(message), where_(std::move(where)) {}
  const std::string& where() const { return where_; }

 private:
  std::string where_;
};

/// A usage error (a wrong key, value, file or grid): the program exits with code 2.
class UsageError : public Error {
 public:
  using Error::Error;
};

/// The world was aborted, usually because another rank failed; what() repeats the reason. Waits and
/// calls throw it after Communicator::abort(). It is not reported: only the rank that failed first
/// reports its error.
class Aborted : public Error {
 public:
  using Error::Error;
};

/// A source location. As a default argument it is the caller's line. (It replaces
/// std::source_location, which clang 14 does not have.)
struct Where {
  const char* file;
  int line;
  static constexpr Where here(const char* file = __builtin_FILE(), int line = __builtin_LINE()) {
    return {file, line};
  }
};

/// Returns the parts as one string, each formatted by operator<<.
template <typename... Parts>
std::string concat(const Parts&... parts) {
  std::ostringstream text;
  (text << ... << parts);
  return text.str();
}

/// Throws Error with the parts as its message.
template <typename... Parts>
[[noreturn]] void fail(Where where, const Parts&... parts) {
  throw Error(concat(parts...), concat(where.file, ':', where.line));
}

/// Throws UsageError with the parts as its message. For errors in the user's input.
template <typename... Parts>
[[noreturn]] void refuse(const Parts&... parts) {
  throw UsageError(concat(parts...));
}

}  // namespace axonn

/// Throws Error with the given parts unless the condition holds. It is a macro, the project's only
/// function-like one, so that the message is built only if the condition is false.
#define AXONN_CHECK(condition, ...)                       \
  do {                                                    \
    if (!(condition)) [[unlikely]]                        \
      ::axonn::fail(::axonn::Where::here(), __VA_ARGS__); \
  } while (false)
