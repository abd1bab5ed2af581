#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "axonn/ranks/comm/call.h"
#include "axonn/ranks/comm/collective_cost.h"
#include "axonn/ranks/comm/hosts.h"
#include "axonn/ranks/comm/mpi/mpi_messages.h"

namespace axonn {

/// A group of ranks of the MPI world.
struct MpiGroup {
  int id = 0;                ///< differs between groups that have two or more ranks in common
  int rank = 0;              ///< this process's rank in the group
  std::vector<int> members;  ///< the members' world ranks
  std::string name;
  Hosts hosts = {};  ///< of the members
  CollectivePolicy policy = {};
  int size() const { return static_cast<int>(members.size()); }
};

/// Route::ahead of a collective in which a rank gets messages from `senders` others: as
/// much as reaches its next poll at the rate of a fast TCP link, but of all ranks together no more
/// than a few segments of a sum.
inline std::int64_t ahead_of(int senders) {
  return std::clamp<std::int64_t>((16 << 20) / senders, 64 << 10, 1 << 20);
}

/// One segment of a sum is summed while the others keep the network busy until the next poll.
inline constexpr std::size_t kSegmentsInFlight = 4;
/// Elements of a segment of a rank's part.
std::int64_t segment_elements(int size, DType dtype);

/// Message tags of a group: up to kSlots collectives may be in flight, each in a slot with kPhases
/// tags. One more slot is for send and recv.
inline constexpr int kSlots = 32, kPhases = 3, kTagsPerGroup = (kSlots + 1) * kPhases;

/// One rank's part in one collective: messages and sums, which advance() carries out step by step.
///
/// Data moves by pairwise exchange (flat), in two levels (mpi_two_level.cpp) or in log2(size)
/// rounds (mpi_recursive.cpp), as MpiGroup::policy chooses. reduce() of axonn/ranks/comm/reduce.h
/// computes every sum from the ranks' values. Bytes that a rank sends in a flat collective, where n
/// is the bytes of a rank's part:
///
///   all_gather, reduce_scatter, all_to_all   (size - 1) · n
///   all_reduce                               2 · (size - 1) / size · n; small: (size - 1) · n
///   broadcast                                at most 2 · n; small: the root (size - 1) · n
///   barrier                                  log2(size) empty messages
///
/// In each collective, every rank also sends its call to the next rank of the group, which compares
/// it with its own; if the pieces of an all_to_all differ, to all ranks, each with its count.
///
/// A call is done only when every rank to which this rank has sent anything has begun the same
/// call. So what a late rank has to keep for this one is bounded: MpiGroup::ahead() bytes for each
/// large call in flight, and all of the small ones.
class MpiAlgorithm {
 public:
  static std::unique_ptr<MpiAlgorithm> create(MpiContext& context, const MpiGroup& group,
                                              const Call& call, std::int64_t sequence);
  MpiAlgorithm(MpiContext& context, const MpiGroup& group, const Call& call, std::int64_t sequence);
  virtual ~MpiAlgorithm() = default;
  MpiAlgorithm(const MpiAlgorithm&) = delete;
  MpiAlgorithm& operator=(const MpiAlgorithm&) = delete;

  /// Posts the first messages.
  void begin();
  /// Continues as far as the messages that have arrived allow. Returns true when done. Throws Error
  /// if the calls of two ranks do not match, or if MPI fails.
  bool advance();
  /// The rank of the world that it waits for; -1 if it waits for none.
  int awaited() const;

 protected:
  /// Posts the first messages of the collective.
  virtual void start() = 0;
  /// Continues the collective. Returns true when done, and is not called again.
  virtual bool step() { return messages_.advance(context_); }
  /// Implements awaited() for the messages of the collective.
  virtual int awaits() const { return messages_.awaited(); }

  int size() const { return group_.size(); }
  int rank() const { return group_.rank; }
  int before(int distance) const { return (rank() + size() - distance) % size(); }
  int after(int distance) const { return (rank() + distance) % size(); }
  /// Sends buffers as one message. It needs no confirmation if this rank also waits for a message
  /// of the receiver.
  void send(Messages& messages, std::span<const Buffer> data, int to, int phase,
            Transfer transfer = Transfer::send) {
    messages.post(context_, transfer, data,
                  {group_.members[to], tag_ + phase, ahead(), group_.policy.checksums});
  }
  void recv(Messages& messages, std::span<const Buffer> data, int from, int phase) {
    send(messages, data, from, phase, Transfer::receive);
  }
  void send(Messages& messages, const Buffer& data, int to, int phase,
            Transfer transfer = Transfer::send) {
    send(messages, std::span(&data, 1), to, phase, transfer);
  }
  void recv(Messages& messages, const Buffer& data, int from, int phase) {
    recv(messages, std::span(&data, 1), from, phase);
  }
  /// Route::ahead of its messages; the same on all ranks.
  virtual std::int64_t ahead() const { return ahead_of(size()); }
  /// Receives theirs(r) from, and sends mine(r) to, every other rank r.
  template <typename Theirs, typename Mine>
  void exchange(Messages& messages, int phase, const Theirs& theirs, const Mine& mine) {
    for (int i = 1; i < size(); ++i) recv(messages, theirs(before(i)), before(i), phase);
    for (int i = 1; i < size(); ++i) send(messages, mine(after(i)), after(i), phase);
  }

  MpiContext& context_;
  const MpiGroup& group_;
  const Call call_;
  Messages messages_;

 private:
  /// A call as it is sent. The buffers' addresses have no meaning for the receiver.
  struct Header {
    Operation operation;
    ReduceOp op;
    Buffer out, inp;
    int peer;
    CollectiveMethod method;
    std::int64_t gives;  ///< elements for the receiver, if the pieces differ; else -1
    char label[79];
  };
  /// A rank that this one exchanges headers with.
  struct HeaderPeer {
    int rank = 0;
    Messages messages = {};
    Header header = {};
    bool checked = false;
  };
  bool check_headers();
  void check_header(const HeaderPeer& sender) const;

  const std::int64_t sequence_;
  const int tag_;
  const Header mine_;
  std::vector<HeaderPeer> headers_to_, headers_from_;
  bool data_done_ = false;
  std::string failure_;
  double failed_at_ = 0;
};

/// An all_gather, reduce_scatter or all_reduce in two levels.
std::unique_ptr<MpiAlgorithm> make_two_level(MpiContext& context, const MpiGroup& group,
                                             const Call& call, std::int64_t sequence);
/// An all_gather, reduce_scatter, all_reduce or broadcast in about log2(size) rounds.
std::unique_ptr<MpiAlgorithm> make_recursive(MpiContext& context, const MpiGroup& group,
                                             const Call& call, std::int64_t sequence);

}  // namespace axonn
