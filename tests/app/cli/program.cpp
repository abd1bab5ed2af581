#include "tests/app/cli/program.h"

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <regex>
#include <sstream>
#include <string_view>
#include <thread>

#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include "axonn/foundation/base/check.h"
#include "axonn/foundation/base/clock.h"

#include "tests/support/build_paths.h"
#include "tests/support/temporary_path.h"

namespace axonn::testing_support {

namespace {

namespace fs = std::filesystem;

void sleep_a_little() { std::this_thread::sleep_for(std::chrono::milliseconds(5)); }

std::vector<std::string> command_line(const std::vector<std::string>& arguments,
                                      const ProgramOptions& options) {
  std::vector<std::string> words;
  if (options.ranks > 0) words = {test::mpirun(), "-np", std::to_string(options.ranks)};
  words.insert(words.end(), options.wrapper.begin(), options.wrapper.end());
  words.push_back(test::program());
  words.insert(words.end(), arguments.begin(), arguments.end());
  return words;
}

int open_new(const std::string& path) {
  const int file = ::open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
  AXONN_CHECK(file >= 0, "cannot create ", path);
  return file;
}

/// 0 if there is no such process.
pid_t parent_of(pid_t pid) {
  std::istringstream stat(test::slurp(concat("/proc/", pid, "/stat")));
  std::string id, program, state;
  pid_t parent = 0;
  stat >> id >> program >> state >> parent;
  return parent;
}

/// The lines of a text for which wanted(line).
std::vector<std::string> lines_of(const std::string& text, const auto& wanted) {
  std::vector<std::string> found;
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);)
    if (wanted(line)) found.push_back(line);
  return found;
}

}  // namespace

std::string no_mpirun() { return test::mpirun().empty() ? "built without MPI" : ""; }

std::vector<std::string> Finished::errors() const {
  return lines_of(err, [](const std::string& line) { return line.starts_with("error:"); });
}

std::vector<std::string> Finished::complaints() const {
  static const std::regex kProgress(
      "[a-z ]+: [0-9.,]+[A-Za-z]*( of [0-9.,]+[A-Za-z]*)?( [a-z ]+)?( \\([0-9]+%\\))?"
      "(, [0-9.,]+[A-Za-z]*/s(, [^,]+ left)?)?");
  return lines_of(err, [](const std::string& line) { return !std::regex_match(line, kProgress); });
}

Program::Program(const std::vector<std::string>& arguments, const ProgramOptions& options)
    : folder_(testing::TempDir() + "axonn-program-XXXXXX") {
  AXONN_CHECK(::mkdtemp(folder_.data()) != nullptr, "cannot create ", folder_);
  std::vector<std::string> words = command_line(arguments, options);
  std::vector<char*> argv;
  for (std::string& word : words) argv.push_back(word.data());
  argv.push_back(nullptr);
  const int out = open_new(folder_ + "/out"), err = open_new(folder_ + "/err");
  child_ = ::fork();
  AXONN_CHECK(child_ >= 0, "fork failed");
  if (child_ == 0) {
    ::setpgid(0, 0);
    ::dup2(out, STDOUT_FILENO);
    ::dup2(err, STDERR_FILENO);
    for (const auto& [name, value] : options.environment) ::setenv(name.c_str(), value.c_str(), 1);
    ::execv(argv[0], argv.data());
    ::_exit(127);
  }
  ::close(out);
  ::close(err);
}

Program::~Program() {
  if (child_ > 0) {
    ::kill(-child_, SIGKILL);
    ::waitpid(child_, nullptr, 0);
  }
  std::error_code ignored;
  fs::remove_all(folder_, ignored);
}

bool Program::prints(const std::string& text, double seconds) {
  for (const double end = now_seconds() + seconds; now_seconds() < end; sleep_a_little())
    if (test::slurp(folder_ + "/out").find(text) != std::string::npos) return true;
  return false;
}

pid_t Program::pid_of_rank(int rank) const {
  for (const auto& entry : fs::directory_iterator("/proc")) {
    const std::string name = entry.path().filename();
    if (name.find_first_not_of("0123456789") != name.npos) continue;
    const std::string environment = test::slurp("/proc/" + name + "/environ");
    const auto is_rank = [&](const char* variable) {
      return environment.find('\0' + concat(variable, '=', rank) + '\0') != environment.npos;
    };
    if (!is_rank("OMPI_COMM_WORLD_RANK") && !is_rank("PMI_RANK")) continue;  // Open MPI, MPICH
    const pid_t pid = std::stoi(name), parent = parent_of(pid);
    if (parent == child_ || parent_of(parent) == child_) return pid;  // MPICH has a process between
  }
  fail(Where::here(), "rank ", rank, " is not running");
}

Finished Program::finish(double seconds) {
  Finished result;
  int status = 0;
  const double end = now_seconds() + seconds;
  while (::waitpid(child_, &status, WNOHANG) == 0) {
    if (now_seconds() > end) {
      ::kill(-child_, SIGKILL);
      ::waitpid(child_, &status, 0);
      status = -1;
      break;
    }
    sleep_a_little();
  }
  child_ = -1;
  if (status != -1) result.code = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  result.out = test::slurp(folder_ + "/out");
  result.err = test::slurp(folder_ + "/err");
  return result;
}

Finished run_program(const std::vector<std::string>& arguments, const ProgramOptions& options) {
  return Program(arguments, options).finish();
}

}  // namespace axonn::testing_support
