#pragma once

#include <algorithm>
#include <compare>
#include <cstdint>
#include <cstring>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "axonn/ranks/comm/communicator.h"

namespace axonn {

struct Call;

/// One rank's part of a collective on device memory whose ranks are threads (device_threads.h).
class DevicePart {
 public:
  virtual ~DevicePart() = default;
  /// Enqueues the parts of all ranks; `calls` has their calls by party (Channel). Called once, on
  /// the first party's object, after all parties have arrived. If it throws, no device uses the
  /// buffers any more.
  virtual void enqueue_all(std::span<const Call> calls) = 0;
};

/// One rank's call of a collective, with checked arguments, as transports receive it.
///
///   operation       out          inp          peer
///   all_reduce      data (n)     data (n)     -
///   all_gather      (size · n)   (n)          -
///   reduce_scatter  (n)          (size · n)   -
///   broadcast       data (n)     data (n)     root
///   all_to_all      (size · n)   (size · n)   -
///                   (Σ from)     (Σ to)       -
///   send            -            data (n)     to
///   recv            data (n)     -            from
struct Call {
  Operation operation = Operation::barrier;
  ReduceOp op = ReduceOp::sum;
  Buffer out, inp;
  int peer = -1;
  std::string label;
  std::shared_ptr<DevicePart> device = nullptr;  ///< null: the host does the work
  /// Of an all_to_all whose pieces differ: the elements for each rank, and from each; else empty.
  std::vector<std::int64_t> to = {}, from = {};

  bool is_pair() const { return operation == Operation::send || operation == Operation::recv; }
  DType dtype() const { return operation == Operation::send ? inp.dtype : out.dtype; }
  /// Whether it is an all_to_all whose pieces differ.
  bool counted() const { return !to.empty(); }
  /// n of the table: the elements that one rank gives to, or gets from, another. Not of counted().
  std::int64_t count(int size) const;
  /// The piece of an all_to_all's inp for a rank, and the piece of its out from a rank.
  Buffer piece_to(int rank, int size) const;
  Buffer piece_from(int rank, int size) const;
  /// Bytes of the larger buffer.
  std::int64_t bytes() const { return std::max(out.bytes(), inp.bytes()); }
};

/// Whether two buffers share no byte.
bool apart(const Buffer& a, const Buffer& b);

/// Describes a call: "all_reduce (sum) of 1024 f32 'block 3 mlp.down'".
std::string describe(const Call& call);
/// Describes a call with its number: "all_reduce (sum) of ... (call 16 of group z)".
std::string describe(const Call& call, std::int64_t sequence, const std::string& group);

/// Whether two ranks' calls match: the same operation, count, type, root and kind of memory, or a
/// send and its recv.
bool agree(const Call& a, const Call& b);

/// The counts of one direction between two ranks of an all_to_all.
struct PairCounts {
  int from = 0, to = 0;  ///< ranks as messages name them
  std::int64_t gives = 0, expects = 0;
};
/// Describes counts that differ: "rank 1 gives 7 elements to rank 3, which expects 5".
std::string describe(const PairCounts& counts);

/// A sequence of calls that match in call order: the collectives of a group, or the messages from
/// one of its ranks to another. Its parties are all ranks of the group, or the sender and the
/// receiver.
struct Channel {
  int from = -1, to = -1;  ///< ranks of the group; -1: its collectives
  auto operator<=>(const Channel&) const = default;

  bool is_pair() const { return from >= 0; }
  /// The index of a rank among the parties.
  int party_of(int rank) const { return !is_pair() ? rank : rank == from ? 0 : 1; }
  /// The members of a group that are the parties.
  std::vector<int> parties_of(const std::vector<int>& members) const {
    return is_pair() ? std::vector{members[from], members[to]} : members;
  }
};

/// The channel of a call that rank `rank` makes.
Channel channel_of(int rank, const Call& call);

/// `count` elements of a buffer from element `begin` on.
inline Buffer part(const Buffer& buffer, std::int64_t begin, std::int64_t count) {
  return {static_cast<char*>(buffer.data) + begin * bytes_of(buffer.dtype), count, buffer.dtype};
}

/// Copies between buffers in host memory of the same count, unless they are the same buffer.
inline void copy(const Buffer& to, const Buffer& from) {
  if (to.data != from.data && to.count > 0) std::memcpy(to.data, from.data, to.bytes());
}

/// A call in messages of a watchdog: its number and its group.
struct CallId {
  Operation operation = Operation::barrier;
  std::string label;
  std::string group;
  std::int64_t sequence = -1;  ///< number of the call in the group, from 0; -1: no call yet
};

/// Describes a call: "all_gather 'block 2 qkv' (call 16 of group z)", or "no collective".
std::string describe(const CallId& id);

/// A rank that waits in a call for another rank (both are ranks of the world).
struct RankWait {
  int rank = 0, awaited = 0;
  CallId call;
};

/// The rank at the end of a chain of waits: it holds all of them up.
struct Culprit {
  enum class State {
    running,   ///< waits in no call
    waiting,   ///< waits for a rank of the chain: they wait for each other
    returned,  ///< has returned from its body without the call
    silent     ///< gave no answer: it is stopped, dead or disconnected
  };
  State state = State::silent;
  std::int64_t progress = -1;  ///< grows with its calls and note_progress(); -1: unknown
  CallId last;                 ///< the call that it started last
};

/// The watchdog's message. `waits` begins with the rank that reports; each rank of it waits for the
/// next one, and the last one for the culprit, which the message names first.
std::string hang_report(std::span<const RankWait> waits, const Culprit& culprit, double seconds);

}  // namespace axonn
