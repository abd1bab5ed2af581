#pragma once

#include <string>
#include <utility>
#include <vector>

#include <sys/types.h>

namespace axonn::testing_support {

/// Why tests under mpirun are skipped; empty where they are not.
std::string no_mpirun();

/// Seconds: longer than any run here takes on a busy machine; what takes longer hangs.
constexpr double kPatience = 300;

/// What the program did.
struct Finished {
  int code = -1;  ///< exit code; 128 + signal if one ended it; -1: it had to be ended
  std::string out, err;

  /// The lines of err that begin with "error:".
  std::vector<std::string> errors() const;
};

struct ProgramOptions {
  int ranks = 0;                                                      ///< above 0: under mpirun
  std::vector<std::pair<std::string, std::string>> environment = {};  ///< beside this process's
};

/// The real program in a process of its own; ended with this object.
class Program {
 public:
  explicit Program(const std::vector<std::string>& arguments, const ProgramOptions& options = {});
  ~Program();
  Program(const Program&) = delete;
  Program& operator=(const Program&) = delete;

  /// Whether its standard output held `text` within this time.
  bool prints(const std::string& text, double seconds = kPatience);

  /// The process that was started: mpirun's if there are ranks.
  pid_t pid() const { return child_; }
  /// A rank's under mpirun. Errors: it does not run.
  pid_t pid_of_rank(int rank) const;

  /// Waits for its end.
  Finished finish(double seconds = kPatience);

 private:
  std::string folder_;  // with what it prints
  pid_t child_ = -1;
};

Finished run_program(const std::vector<std::string>& arguments, const ProgramOptions& options = {});

}  // namespace axonn::testing_support
