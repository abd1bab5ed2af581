#pragma once

#include <string>
#include <vector>

#include <sys/types.h>

namespace axonn {

/// Ranks of the test program under mpirun: a process group that ends with this object.
class Launched {
 public:
  Launched(int ranks, const std::vector<std::string>& arguments);
  ~Launched();
  Launched(const Launched&) = delete;
  Launched& operator=(const Launched&) = delete;

  /// Reads what the ranks print until it holds `text` `times` times. False after `seconds`.
  bool read_until(const std::string& text, int times, double seconds);

  /// Reads until mpirun ends: its exit code, 128 + signal if one killed it, -1 after `seconds`.
  int finish(double seconds);

  /// All that the ranks have printed, on stdout and stderr.
  const std::string& output() const { return output_; }

  /// Of the rank that printed "pid RANK PID".
  pid_t pid_of(int rank) const;

 private:
  bool read_some(double seconds);
  pid_t child_ = -1;
  int pipe_ = -1;
  std::string output_;
};

/// How often `text` is in `whole`.
int count_of(const std::string& text, const std::string& whole);

}  // namespace axonn
