#include "axonn/use/rewards/reward_program.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <ctime>
#include <optional>

#include <fcntl.h>
#include <poll.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include "axonn/foundation/base/check.h"
#include "axonn/foundation/base/clock.h"
#include "axonn/foundation/base/utf8.h"

extern char** environ;

namespace axonn {

namespace {

constexpr std::size_t kMostReply = std::size_t{1} << 20;

/// While it lives, writing to a program that has ended is an error of write() and no signal.
class WithoutPipeSignal {
 public:
  WithoutPipeSignal() {
    sigemptyset(&pipe_);
    sigaddset(&pipe_, SIGPIPE);
    pthread_sigmask(SIG_BLOCK, &pipe_, &before_);
  }
  ~WithoutPipeSignal() {
    const timespec now{};
    while (sigtimedwait(&pipe_, nullptr, &now) > 0) {
    }
    pthread_sigmask(SIG_SETMASK, &before_, nullptr);
  }
  WithoutPipeSignal(const WithoutPipeSignal&) = delete;
  WithoutPipeSignal& operator=(const WithoutPipeSignal&) = delete;

 private:
  sigset_t pipe_{}, before_{};
};

/// Both ends of a pipe, closed in programs that are started.
std::array<int, 2> make_pipe() {
  std::array<int, 2> ends{};
  AXONN_CHECK(pipe2(ends.data(), O_CLOEXEC) == 0,
              "reward program: no pipe: ", std::strerror(errno));
  return ends;
}

}  // namespace

/// A process, and the line that it has.
class RewardProgram::Worker {
 public:
  ~Worker() { stop(); }

  void start(const std::string& command) {
    const std::array<int, 2> in = make_pipe(), out = make_pipe();
    posix_spawn_file_actions_t actions;
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_adddup2(&actions, in[0], STDIN_FILENO);
    posix_spawn_file_actions_adddup2(&actions, out[1], STDOUT_FILENO);
    posix_spawnattr_t attributes;
    posix_spawnattr_init(&attributes);
    sigset_t none, pipe;
    sigemptyset(&none);
    sigemptyset(&pipe);
    sigaddset(&pipe, SIGPIPE);
    posix_spawnattr_setsigmask(&attributes, &none);
    posix_spawnattr_setsigdefault(&attributes, &pipe);
    posix_spawnattr_setpgroup(&attributes, 0);
    posix_spawnattr_setflags(
        &attributes, POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF | POSIX_SPAWN_SETPGROUP);
    std::string shell = "sh", flag = "-c", text = command;
    std::array<char*, 4> arguments{shell.data(), flag.data(), text.data(), nullptr};
    const int error =
        posix_spawn(&process_, "/bin/sh", &actions, &attributes, arguments.data(), environ);
    posix_spawnattr_destroy(&attributes);
    posix_spawn_file_actions_destroy(&actions);
    close(in[0]);
    close(out[1]);
    in_ = in[1];
    out_ = out[0];
    if (error != 0) process_ = -1;
    AXONN_CHECK(error == 0, "reward program: /bin/sh cannot be started: ", std::strerror(error));
    for (const int end : {in_, out_}) fcntl(end, F_SETFL, O_NONBLOCK);
  }

  void stop() {
    if (process_ < 0) return;
    close(in_);
    close(out_);
    kill(-process_, SIGKILL);
    while (waitpid(process_, nullptr, 0) < 0 && errno == EINTR) {
    }
    process_ = -1;
    to_write_.clear();
    read_.clear();
  }

  bool runs() const { return process_ >= 0; }
  bool busy() const { return line_.has_value(); }
  std::size_t line() const { return *line_; }
  double since() const { return since_; }
  int tries() const { return tries_; }
  void give(std::size_t number, std::string_view line, int tries) {
    line_ = number;
    tries_ = tries;
    since_ = now_seconds();
    to_write_ = line;
    to_write_ += '\n';
    read_.clear();
  }
  void forget() { line_.reset(); }

  pollfd wanted_input() const { return {.fd = out_, .events = POLLIN, .revents = 0}; }
  pollfd wanted_output() const {
    return {.fd = to_write_.empty() ? -1 : in_, .events = POLLOUT, .revents = 0};
  }

  /// Writes what there is room for. False if the program has ended.
  bool write_some() {
    if (to_write_.empty()) return true;
    const ssize_t count = write(in_, to_write_.data(), to_write_.size());
    if (count < 0) return errno == EAGAIN || errno == EINTR;
    to_write_.erase(0, static_cast<std::size_t>(count));
    return true;
  }
  /// Reads what is there. False if the program has ended, or writes no end of a line.
  bool read_some() {
    std::array<char, 4096> bytes{};
    const ssize_t count = read(out_, bytes.data(), bytes.size());
    if (count < 0) return errno == EAGAIN || errno == EINTR;
    read_.append(bytes.data(), static_cast<std::size_t>(count));
    return count > 0 && read_.size() < kMostReply;
  }
  /// The reply, if all of it is there.
  std::optional<std::string> reply() {
    const std::size_t end = read_.find('\n');
    if (end == read_.npos) return {};
    std::string line = read_.substr(0, end);
    read_.erase(0, end + 1);
    return line;
  }
  /// Whether it wrote more than one line for a line.
  bool wrote_more() const { return !read_.empty(); }

 private:
  pid_t process_ = -1;
  int in_ = -1, out_ = -1;
  std::optional<std::size_t> line_;
  int tries_ = 0;
  double since_ = 0;
  std::string to_write_, read_;
};

RewardProgram::RewardProgram(Options options) : options_(std::move(options)) {
  for (int i = 0; i < options_.workers; ++i) workers_.push_back(std::make_unique<Worker>());
}

RewardProgram::~RewardProgram() = default;

std::vector<ProgramReply> RewardProgram::ask(const std::vector<std::string>& lines) {
  constexpr int kMostTries = 2, kPollMilliseconds = 50;
  const WithoutPipeSignal guard;
  std::vector<ProgramReply> replies(lines.size());
  std::size_t next = 0, done = 0;
  const auto settle = [&](Worker& worker, ProgramReply reply) {
    replies[worker.line()] = std::move(reply);
    worker.forget();
    ++done;
  };
  const auto restart = [&](Worker& worker, bool again, const std::string& fault) {
    worker.stop();
    if (again && worker.tries() < kMostTries) {
      worker.start(options_.command);
      worker.give(worker.line(), lines[worker.line()], worker.tries() + 1);
    } else {
      settle(worker, {.line = {}, .fault = fault});
    }
  };
  while (done < lines.size()) {
    std::vector<pollfd> wanted;
    for (const auto& worker : workers_) {
      if (!worker->busy() && next < lines.size()) {
        if (!worker->runs()) worker->start(options_.command);
        worker->give(next, lines[next], 1);
        ++next;
      }
      if (!worker->busy()) continue;
      wanted.push_back(worker->wanted_input());
      wanted.push_back(worker->wanted_output());
    }
    poll(wanted.data(), wanted.size(), kPollMilliseconds);
    for (const auto& worker : workers_) {
      if (!worker->busy()) continue;
      const bool writes = worker->write_some(), reads = worker->read_some();
      if (auto line = worker->reply()) {
        const bool more = worker->wrote_more();
        settle(*worker, {.line = std::move(*line)});
        if (more) worker->stop();  // what follows would be taken for the next reply
      } else if (!writes || !reads) {
        restart(*worker, true, "the program ended without a reply, twice");
      } else if (options_.seconds > 0 && now_seconds() - worker->since() > options_.seconds) {
        restart(*worker, false,
                concat("the program gave no reply in ", options_.seconds, " seconds"));
      }
    }
  }
  return replies;
}

}  // namespace axonn
