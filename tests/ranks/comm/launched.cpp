#include "tests/ranks/comm/launched.h"

#include <thread>

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include "axonn/foundation/base/check.h"
#include "axonn/foundation/base/clock.h"

#include "tests/support/build_paths.h"

namespace axonn {

Launched::Launched(int ranks, const std::vector<std::string>& arguments,
                   const std::map<std::string, std::string>& environment) {
  std::vector<std::string> words = {test::mpirun(), "-np", std::to_string(ranks),
                                    test::build_folder() + "/tests/ranks/comm/comm_mpi_program"};
  words.insert(words.end(), arguments.begin(), arguments.end());
  std::vector<char*> argv;
  for (std::string& word : words) argv.push_back(word.data());
  argv.push_back(nullptr);
  int ends[2];
  AXONN_CHECK(pipe2(ends, O_CLOEXEC) == 0, "pipe failed");
  child_ = fork();
  AXONN_CHECK(child_ >= 0, "fork failed");
  if (child_ == 0) {
    setpgid(0, 0);
    dup2(ends[1], STDOUT_FILENO);
    dup2(ends[1], STDERR_FILENO);
    for (const auto& [name, value] : environment) setenv(name.c_str(), value.c_str(), 1);
    execv(argv[0], argv.data());
    _exit(127);
  }
  close(ends[1]);
  pipe_ = ends[0];
}

Launched::~Launched() {
  if (child_ > 0) {
    kill(-child_, SIGKILL);
    waitpid(child_, nullptr, 0);
  }
  close(pipe_);
}

bool Launched::read_until(const std::string& text, int times, double seconds) {
  const double end = now_seconds() + seconds;
  while (count_of(text, output_) < times)
    if (!read_some(end - now_seconds())) return false;
  return true;
}

int Launched::finish(double seconds) {
  const double end = now_seconds() + seconds;
  while (read_some(end - now_seconds())) {
  }
  int status = 0;
  while (waitpid(child_, &status, WNOHANG) == 0) {
    if (now_seconds() > end) return -1;
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  child_ = -1;
  return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

pid_t Launched::pid_of(int rank) const {
  const std::string key = concat("pid ", rank, ' ');
  const auto at = output_.find(key);
  AXONN_CHECK(at != std::string::npos, "rank ", rank, " has not printed its pid");
  return std::stoi(output_.substr(at + key.size()));
}

// Returns false at the end of the output, or if nothing arrives in time.
bool Launched::read_some(double seconds) {
  pollfd ready{pipe_, POLLIN, 0};
  if (seconds <= 0 || poll(&ready, 1, static_cast<int>(seconds * 1000)) <= 0) return false;
  char text[4096];
  const ssize_t n = read(pipe_, text, sizeof text);
  if (n > 0) output_.append(text, n);
  return n > 0;
}

int count_of(const std::string& text, const std::string& whole) {
  int count = 0;
  for (auto at = whole.find(text); at != std::string::npos; at = whole.find(text, at + 1)) ++count;
  return count;
}

}  // namespace axonn
