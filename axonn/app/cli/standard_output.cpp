#include "axonn/app/cli/standard_output.h"

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <iostream>
#include <mutex>
#include <string>
#include <utility>

#include <fcntl.h>
#include <poll.h>
#include <unistd.h>

#include "axonn/foundation/base/check.h"
#include "axonn/foundation/base/files.h"
#include "axonn/foundation/base/log.h"
#include "axonn/foundation/base/utf8.h"
#include "axonn/ranks/comm/launcher.h"
#include "axonn/run/load/launch.h"

namespace axonn {

namespace {

/// Text on its way to a standard stream.
class StandardStream : public std::streambuf {
 public:
  StandardStream(int descriptor, const char* name, bool shows_controls)
      : descriptor_(descriptor), name_(name), shows_controls_(shows_controls) {}

 protected:
  std::streamsize xsputn(const char* text, std::streamsize count) override {
    constexpr std::size_t kMostWaiting = 1 << 16;  // longer writes are no faster
    const std::scoped_lock lock(mutex_);
    waiting_.append(text, static_cast<std::size_t>(count));
    if (waiting_.size() > kMostWaiting) write();
    return count;
  }
  int overflow(int character) override {
    const char one = static_cast<char>(character);
    if (character != traits_type::eof()) xsputn(&one, 1);
    return traits_type::not_eof(character);
  }
  int sync() override {
    const std::scoped_lock lock(mutex_);
    write();
    return 0;
  }

 private:
  void write() {
    std::string text = std::exchange(waiting_, {});  // is not tried twice
    if (shows_controls_) {
      const std::size_t whole = text.size() - incomplete_utf8_suffix(text);
      waiting_ = text.substr(whole);
      text = harmless(std::string_view(text).substr(0, whole));
    }
    for (std::string_view rest = text; !rest.empty();) {
      const ssize_t put = ::write(descriptor_, rest.data(), rest.size());
      if (put < 0 && errno == EINTR) continue;
      if (put < 0 && errno == EAGAIN) {  // another program made the terminal or pipe non-blocking
        pollfd ready{.fd = descriptor_, .events = POLLOUT, .revents = 0};
        ::poll(&ready, 1, -1);
        continue;
      }
      AXONN_CHECK(put > 0, "cannot write to ", name_, ": ", cause_and_remedy(errno));
      rest.remove_prefix(static_cast<std::size_t>(put));
    }
  }

  const int descriptor_;
  const char* const name_;
  const bool shows_controls_;
  std::mutex mutex_;
  std::string waiting_;
};

/// Opens the standard streams that are closed, in a way that makes their use an error. Otherwise
/// the next file that is opened would have their number, and messages would be written into it.
void open_closed_streams() {
  for (const int stream : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO})
    if (::fcntl(stream, F_GETFD) < 0)
      ::open("/dev/null", stream == STDIN_FILENO ? O_WRONLY : O_RDONLY);
}

}  // namespace

StandardOutput::StandardOutput()
    : own_(std::make_unique<StandardStream>(STDOUT_FILENO, "standard output",
                                            ::isatty(STDOUT_FILENO) == 1 || under_launcher())),
      own_errors_(std::make_unique<StandardStream>(STDERR_FILENO, "standard error", true)) {
  open_closed_streams();
  for (const int signal : {SIGPIPE, SIGXFSZ}) std::signal(signal, SIG_IGN);
  before_ = std::cout.flush().rdbuf(own_.get());
  errors_before_ = std::cerr.rdbuf(own_errors_.get());
  std::cout.exceptions(std::ios::badbit);
}

StandardOutput::~StandardOutput() {
  std::cout.exceptions(std::ios::goodbit);
  std::cout.rdbuf(before_);
  std::cerr.rdbuf(errors_before_);
}

void StandardOutput::finish() {
  std::cout.clear();
  std::cout.flush();
  // Network file systems report a full disk or quota only when a file is closed.
  const int copy = ::dup(STDOUT_FILENO);
  AXONN_CHECK(copy < 0 || ::close(copy) == 0,
              "cannot write to standard output: ", cause_and_remedy(errno));
}

std::string broken_lines(std::string_view text, int columns) {
  const auto most = static_cast<std::size_t>(std::max(columns, 20));
  std::string out;
  while (!text.empty()) {
    const std::size_t end = std::min(text.find('\n'), text.size());
    std::string_view line = text.substr(0, end);
    text.remove_prefix(std::min(end + 1, text.size()));
    const std::size_t first = std::min(line.find_first_not_of(' '), line.size()),
                      meaning = line.find_first_not_of(' ', line.find("  ", first)),
                      column = meaning <= most * 2 / 3 ? meaning : first;
    for (std::string indent; line.size() + indent.size() > most; indent.assign(column, ' ')) {
      const std::size_t room = most - indent.size(), begin = indent.empty() ? column : 0;
      std::size_t space = line.rfind(' ', room);
      if (space == line.npos || space <= begin) space = line.find(' ', std::max(room, begin + 1));
      if (space == line.npos) break;
      out.append(line.substr(0, space)).append("\n").append(column, ' ');
      line.remove_prefix(space + 1);
    }
    out.append(line).append("\n");
  }
  return out;
}

std::string for_terminal(std::string text) {
  return ::isatty(STDOUT_FILENO) == 1 ? broken_lines(text, terminal_columns()) : text;
}

void print_warnings(const std::vector<std::string>& lines) {
  if (!speaks_for_all()) return;
  for (const std::string& line : lines) std::cerr << "warning: " << line << '\n';
}

}  // namespace axonn
