#pragma once

#include <memory>
#include <streambuf>
#include <string>
#include <string_view>
#include <vector>

namespace axonn {

/// While an object exists, std::cout throws Error, with the cause, if its text cannot be written,
/// and SIGPIPE and SIGXFSZ are ignored, so that such a write is an error and does not end the
/// process. Several threads may write to std::cout. A stream made of std::cout.rdbuf() writes to
/// the same place and does not throw: for text whose loss should not end the work. Control
/// characters of foreign text are made visible (harmless()) in std::cerr, and in std::cout if it
/// goes to a terminal or to a launcher, which may pass it on to one. At most one object may exist
/// at a time.
class StandardOutput {
 public:
  StandardOutput();
  ~StandardOutput();
  StandardOutput(const StandardOutput&) = delete;
  StandardOutput& operator=(const StandardOutput&) = delete;

  /// Writes all text. Throws Error, also for a fault that the file system reports only at the end.
  void finish();

 private:
  std::unique_ptr<std::streambuf> own_, own_errors_;
  std::streambuf *before_, *errors_before_;
};

/// Lines that are longer than `columns` go on in further lines, broken at spaces. These begin below
/// the text behind the line's first gap of two or more spaces, as in a table of names and what they
/// mean, or, if it has none in its first two thirds, below its first character.
std::string broken_lines(std::string_view text, int columns);

/// A help text for standard output: broken_lines() of the terminal's width, and unchanged for
/// programs that read it.
std::string for_terminal(std::string text);

/// Prints each line behind "warning: ", once for all processes of a launcher.
void print_warnings(const std::vector<std::string>& lines);

}  // namespace axonn
