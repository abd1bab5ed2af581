#pragma once

#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "axonn/comm/call.h"
#include "axonn/comm/peer_work.h"
#include "axonn/tensor/device.h"

namespace axonn {

/// One collective on the devices of several ranks: what each brings, and what comes of it. Of its
/// group alone.
struct PeerMeeting {
  std::vector<int> parties;  ///< ranks of the group
  std::vector<Call> calls;   ///< by party
  std::vector<std::shared_ptr<const Event>> ready;
  std::vector<char> arrived;
  bool broken = false;                ///< a rank has gone: nothing may be started any more
  std::shared_ptr<const Event> done;  ///< behind all parts; null until they are on their streams
};

/// What the ranks of a group, which are threads, share of their devices.
class PeerGroup {
 public:
  PeerGroup(int size, std::string name) : name_(std::move(name)), members_(size) {}

  /// Before the first call of any rank.
  void join(int rank, std::shared_ptr<PeerKernels> kernels, std::unique_ptr<Stream> stream);
  /// The rank makes no call any more; gives its stream back.
  std::unique_ptr<Stream> leave(int rank);

  /// Rank `rank` makes its next call; ready: after which its buffers may be used. The last to come
  /// starts the work, unless a rank has gone. Errors: Error where calls do not match.
  std::shared_ptr<PeerMeeting> arrive(int rank, const Call& call,
                                      std::shared_ptr<const Event> ready);

  /// The event behind all parts; null if not all have arrived, or a rank has gone.
  std::shared_ptr<const Event> done_of(const PeerMeeting& meeting);
  /// A rank cannot wait for a meeting any more: it is never started, or it was and this is its end.
  std::shared_ptr<const Event> forsake(PeerMeeting& meeting);

 private:
  struct Member {
    std::shared_ptr<PeerKernels> kernels;
    std::unique_ptr<Stream> stream;  // null once the rank has left
  };
  /// Calls among the same parties: the whole group, or a sender and a receiver.
  struct Channel {
    std::vector<std::int64_t> started;  // by party
    std::int64_t first = 0;             // sequence of open.front()
    std::deque<std::shared_ptr<PeerMeeting>> open;
  };

  std::shared_ptr<PeerMeeting> new_meeting(const Call& call, int rank) const;
  void start(PeerMeeting& meeting);

  const std::string name_;
  std::mutex mutex_;
  std::vector<Member> members_;
  std::map<std::pair<int, int>, Channel> channels_;  // (-1, -1): the group's; else (from, to)
};

}  // namespace axonn
