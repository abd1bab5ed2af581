#pragma once

#include <memory>
#include <string>
#include <vector>

namespace axonn {

/// What a program said of a line: a line of its own, or why there is none.
struct ProgramReply {
  std::string line;
  std::string fault = {};  ///< empty: there is a line
};

/// A command of the user's that reads lines and writes one for each, in their order; several of it
/// run at once. It is started when it is first asked, in a group of processes of its own, and its
/// errors go to the terminal. One that dies is started again and gets the line once more; one that
/// takes longer than the time is killed. Both cost at most that line its reply.
class RewardProgram {
 public:
  struct Options {
    std::string command;  ///< of /bin/sh
    int workers = 1;
    double seconds = 60;  ///< for a line; 0: any time
  };

  explicit RewardProgram(Options options);
  /// Ends the programs.
  ~RewardProgram();
  RewardProgram(const RewardProgram&) = delete;
  RewardProgram& operator=(const RewardProgram&) = delete;

  /// The replies to lines, which have no line ends. Throws Error if no process can be started.
  std::vector<ProgramReply> ask(const std::vector<std::string>& lines);

 private:
  class Worker;
  Options options_;
  std::vector<std::unique_ptr<Worker>> workers_;
};

}  // namespace axonn
