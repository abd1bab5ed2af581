#pragma once

#include <sstream>
#include <stdexcept>
#include <string>
#include <utility>

namespace axonn {

/// The one exception of the library: a broken precondition or a failed library call.
/// what() is "what was asked, what was got, what to do"; where() is the line that threw.
class Error : public std::runtime_error {
 public:
  explicit Error(const std::string& message, std::string where = {})
      : std::runtime_error(message), where_(std::move(where)) {}
  const std::string& where() const { return where_; }

 private:
  std::string where_;
};

/// The command was asked wrongly (a key, a value, a file, a grid): the program exits with 2.
class UsageError : public Error {
 public:
  using Error::Error;
};

/// Another rank failed and ended the group; what() repeats its reason. Thrown by waits and calls
/// after Communicator::abort, so that only the rank that failed first speaks.
class Aborted : public Error {
 public:
  using Error::Error;
};

/// Where a call was written. As a default argument it is the caller's line. (It stands in for
/// std::source_location, which clang 14 does not have.)
struct Where {
  const char* file;
  int line;
  static constexpr Where here(const char* file = __builtin_FILE(), int line = __builtin_LINE()) {
    return {file, line};
  }
};

/// The parts, streamed one after the other.
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

/// Throws UsageError with the parts as its message: for what a user's input caused.
template <typename... Parts>
[[noreturn]] void refuse(const Parts&... parts) {
  throw UsageError(concat(parts...));
}

}  // namespace axonn

/// The project's only function-like macro: it must not build the message unless the condition is
/// false.
#define AXONN_CHECK(condition, ...)                       \
  do {                                                    \
    if (!(condition)) [[unlikely]]                        \
      ::axonn::fail(::axonn::Where::here(), __VA_ARGS__); \
  } while (false)
