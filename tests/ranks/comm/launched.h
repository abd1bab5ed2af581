#pragma once

#include <map>
#include <string>
#include <vector>

#include <sys/types.h>

namespace axonn {

/// The ranks of the test program under mpirun, as a process group that the destructor kills.
class Launched {
 public:
  Launched(int ranks, const std::vector<std::string>& arguments,
           const std::map<std::string, std::string>& environment = {});
  ~Launched();
  Launched(const Launched&) = delete;
  Launched& operator=(const Launched&) = delete;

  /// Reads the ranks' output until `text` has occurred `times` times. Returns false after
  /// `seconds`.
  bool read_until(const std::string& text, int times, double seconds);

  /// Reads until mpirun ends. Returns its exit code, 128 + signal if a signal killed it, or -1
  /// after `seconds`.
  int finish(double seconds);

  /// The output of all ranks so far, on stdout and stderr.
  const std::string& output() const { return output_; }

  /// The process id of a rank, which must have printed "pid RANK PID".
  pid_t pid_of(int rank) const;

 private:
  bool read_some(double seconds);
  pid_t child_ = -1;
  int pipe_ = -1;
  std::string output_;
};

/// The number of occurrences of `text` in `whole`.
int count_of(const std::string& text, const std::string& whole);

}  // namespace axonn
