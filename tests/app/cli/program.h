#pragma once

#include <string>
#include <utility>
#include <vector>

#include <sys/types.h>

namespace axonn::testing_support {

/// Why tests under mpirun are skipped; empty if they are not.
std::string no_mpirun();

/// Timeout in seconds: longer than any run takes on a busy machine, so a longer one hangs.
constexpr double kPatience = 300;

/// The result of running the program.
struct Finished {
  int code = -1;  ///< exit code; 128 + signal if a signal ended it; -1: killed at the timeout
  std::string out, err;

  /// The lines of err that begin with "error:".
  std::vector<std::string> errors() const;
  /// The lines of err that do not show the progress of slow work, as on a slow machine.
  std::vector<std::string> complaints() const;
};

struct ProgramOptions {
  int ranks = 0;                          ///< above 0: runs under mpirun
  std::vector<std::string> wrapper = {};  ///< a command that runs the program, on every rank
  std::vector<std::pair<std::string, std::string>> environment = {};  ///< added to this process's
};

/// Runs the real program in a process. The destructor kills it.
class Program {
 public:
  explicit Program(const std::vector<std::string>& arguments, const ProgramOptions& options = {});
  ~Program();
  Program(const Program&) = delete;
  Program& operator=(const Program&) = delete;

  /// Waits until its standard output contains `text`. Returns false after the timeout.
  bool prints(const std::string& text, double seconds = kPatience);

  /// The process that was started: mpirun if there are ranks.
  pid_t pid() const { return child_; }
  /// The process of a rank under mpirun. Throws if the rank does not run.
  pid_t pid_of_rank(int rank) const;

  /// Waits for the program to end; kills it after the timeout.
  Finished finish(double seconds = kPatience);

 private:
  std::string folder_;  // holds its output
  pid_t child_ = -1;
};

Finished run_program(const std::vector<std::string>& arguments, const ProgramOptions& options = {});

}  // namespace axonn::testing_support
