#pragma once

#include <condition_variable>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "axonn/comm/call.h"
#include "axonn/comm/pieces.h"
#include "axonn/comm/threads/thread_world.h"

namespace axonn {

/// The meeting of the parties of one collective, or of one send and its recv. When all parties have
/// arrived, the last one enqueues its work on the ranks' devices; or, on host memory, those that
/// wait for it share its work, piece by piece.
class Rendezvous {
 public:
  /// `parties` has the world ranks that take part.
  Rendezvous(std::shared_ptr<ThreadWorld> world, std::vector<int> parties, std::string group,
             std::int64_t sequence);

  /// Returns true for the last party to arrive. Throws Error if the call does not match the others.
  bool arrive(int party, const Call& call);
  /// Called after the last arrival: does small work at once, or wakes waiting threads for it. Does
  /// nothing if the waits fail.
  void open();

  /// Returns when the host's work is done, which for device memory is when all is enqueued. Throws
  /// Error (calls that do not match, a party that has returned) or Aborted (also after a timeout);
  /// then nothing uses the party's buffers any more, or will.
  void wait(int party);
  bool done();

  /// Makes waiting threads check the abort flag again.
  void wake();
  /// Makes the waits fail if world rank `returned` is a party and has not arrived.
  void break_if_missing(int returned);

 private:
  using Lock = std::unique_lock<std::mutex>;
  bool finished() const { return open_ && next_ == pieces_.count() && active_ == 0; }
  void help(Lock& lock);
  void report_hang(Lock& lock, int party);

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
  int active_ = 0;         // number of pieces that are being run
};

}  // namespace axonn
