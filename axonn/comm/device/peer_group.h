#pragma once

#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "axonn/comm/call.h"
#include "axonn/comm/device/peer_work.h"
#include "axonn/tensor/device.h"

namespace axonn {

/// One collective on the devices of several ranks: the parties' calls and events. Only its group
/// accesses it.
struct PeerMeeting {
  std::vector<int> parties;  ///< ranks of the group
  std::vector<Call> calls;   ///< by party
  std::vector<std::shared_ptr<const Event>> ready;
  std::vector<char> arrived;
  bool broken = false;                ///< a rank has left, so the work must not be started
  std::shared_ptr<const Event> done;  ///< recorded after all parts; null until they are enqueued
};

/// State shared by the ranks of a group, which are threads: their streams, kernels and meetings.
class PeerGroup {
 public:
  PeerGroup(int size, std::string name) : name_(std::move(name)), members_(size) {}

  /// Adds a rank. All ranks must join before the first call.
  void join(int rank, std::shared_ptr<PeerKernels> kernels, std::unique_ptr<Stream> stream);
  /// Removes a rank, which makes no more calls. Returns its stream.
  std::unique_ptr<Stream> leave(int rank);

  /// Rank `rank` makes its next call. Its buffers may be used after the event `ready`. The last
  /// rank to arrive starts the work, unless a rank has left. Throws Error if calls do not match.
  std::shared_ptr<PeerMeeting> arrive(int rank, const Call& call,
                                      std::shared_ptr<const Event> ready);

  /// The event after all parts; null if not all ranks have arrived, or one has left.
  std::shared_ptr<const Event> done_of(const PeerMeeting& meeting);
  /// Called by a rank that cannot wait for the meeting. Returns the event after all parts if the
  /// work was started. Otherwise prevents it from starting and returns null.
  std::shared_ptr<const Event> forsake(PeerMeeting& meeting);

 private:
  struct Member {
    std::shared_ptr<PeerKernels> kernels;
    std::unique_ptr<Stream> stream;  // null once the rank has left
  };
  /// The calls between the same parties: the whole group, or a sender and a receiver.
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
