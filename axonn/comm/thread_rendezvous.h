#pragma once

#include <condition_variable>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "axonn/comm/call.h"
#include "axonn/comm/pieces.h"
#include "axonn/comm/thread_world.h"

namespace axonn {

/// One collective (or one send and its recv): where its parties meet. Whoever waits for it when all
/// have come does its work, piece by piece, together with others who wait.
class Rendezvous {
 public:
  /// parties: the world ranks that take part.
  Rendezvous(std::shared_ptr<ThreadWorld> world, std::vector<int> parties, std::string group,
             std::int64_t sequence);

  /// Throws Error if the call does not match those of the others; true for the last to come.
  bool arrive(int party, const Call& call);
  /// After the last arrival: does the work at once if it is small, else wakes sleepers for it.
  void open();

  /// Errors: Error (mismatch, a party that has returned, the watchdog), Aborted.
  void wait(int party);
  bool done();

  /// Makes waiters look at the world again; `returned`: a world rank that will not come.
  void wake();
  void break_if_missing(int returned);

 private:
  using Lock = std::unique_lock<std::mutex>;
  std::string name(const Call& call) const;
  bool finished() const { return open_ && next_ == pieces_.count() && active_ == 0; }
  void help(Lock& lock);
  [[noreturn]] void report_hang(Lock& lock, int party);

  const std::shared_ptr<ThreadWorld> world_;
  const std::vector<int> parties_;
  const std::string group_;
  const std::int64_t sequence_;

  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<Call> calls_;
  std::vector<char> arrived_;
  int arrivals_ = 0;
  bool open_ = false;
  std::string broken_;
  Pieces pieces_;
  std::int64_t next_ = 0;  // the next piece to claim
  int active_ = 0;         // pieces claimed and not finished
};

}  // namespace axonn
