#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "axonn/compute/tensor/device.h"
#include "axonn/compute/tensor/dtype.h"

namespace axonn {

class Trace;
struct Call;
struct CallChecks;
struct CollectivePolicy;

/// `count` elements in host or device memory. It does not own them.
struct Buffer {
  void* data = nullptr;
  std::int64_t count = 0;
  DType dtype = DType::f32;

  std::int64_t bytes() const { return count * bytes_of(dtype); }
};

/// A span of host values as a Buffer.
template <typename T>
Buffer buffer(std::span<T> values) {
  return {const_cast<std::remove_const_t<T>*>(values.data()),
          static_cast<std::int64_t>(values.size()), dtype_of<std::remove_const_t<T>>};
}

/// How many elements a rank gives to, and gets from, each rank of a group, in rank order.
struct ExchangeCounts {
  std::span<const std::int64_t> to, from;  ///< (size)
};

enum class ReduceOp { sum, max, min };

enum class Operation : std::uint8_t {
  all_reduce,
  all_gather,
  reduce_scatter,
  broadcast,
  all_to_all,
  send,
  recv,
  barrier
};

inline constexpr int kOperations = 8;

std::string_view name_of(Operation operation);

/// Statistics of one rank's calls on a group. The wait time is the communication that compute did
/// not hide.
struct CommStats {
  /// By Operation: the time that Work::wait() held up the host, or on a GPU its compute stream.
  /// Waits that a GPU has not come to yet are missing.
  std::array<double, kOperations> waited_seconds_by{};
  std::int64_t bytes = 0;  ///< of each call's larger buffer
  std::int64_t calls = 0;
};

class WaitLog;

/// A fixed, ordered group of ranks that exchange buffers.
///
/// All ranks of a group must call the same collectives in the same order with the same counts and
/// types, except for an all_to_all with counts. A collective starts at once and returns a Work. Its
/// buffers must exist, and must not be changed, until that Work is done. A group of one rank is
/// legal everywhere and free, so callers never test size() == 1. Counts are elements. Buffers must
/// not overlap, except in place as allowed below.
///
/// Sums follow a tree over the ranks (reduce.h), in f32 for f32 and bf16 (one rounding at the end),
/// so all transports but NCCL (nccl.h) give the same bits, on one host and on several. With every
/// transport all ranks get the same result.
///
/// `label` names the caller (a layer) for the watchdog and the trace; it is copied.
///
/// Throws Error with the operation, its label and the group: at once for wrong arguments; as soon
/// as detected if the calls of two ranks do not match, if a rank has returned, or if a rank hangs
/// (note_progress()). After abort(), all pending and later calls and waits throw Aborted with the
/// reason.
///
/// A transport derives from it and implements start(), split_off() and abort(). The public
/// functions check the arguments and keep the statistics.
class Communicator {
 public:
  virtual ~Communicator() = default;
  Communicator(const Communicator&) = delete;
  Communicator& operator=(const Communicator&) = delete;

  int rank() const { return rank_; }
  int size() const { return size_; }

  /// Whether collectives on device memory run on the device's streams without the host, so that
  /// Device::capture() can capture them. Ask the world: a group of one rank may say true although
  /// the world says false.
  virtual bool on_streams() const { return false; }

  /// data[i] becomes the sum (max, min) over ranks of data[i].
  Work all_reduce(Buffer data, std::string_view label = {}, ReduceOp op = ReduceOp::sum);

  /// out (size · n) becomes the ranks' inp (n) in rank order. inp may be piece rank() of out.
  Work all_gather(Buffer out, Buffer inp, std::string_view label = {});

  /// out (n) becomes piece rank() of the sum over ranks of inp (size · n). out may be piece rank()
  /// of inp; the rest of inp is left as it is.
  Work reduce_scatter(Buffer out, Buffer inp, std::string_view label = {});

  /// data becomes root's data.
  Work broadcast(Buffer data, int root, std::string_view label = {});

  /// Piece r of out becomes piece rank() of rank r's inp; both are (size · n), and may be the same.
  Work all_to_all(Buffer out, Buffer inp, std::string_view label = {});

  /// all_to_all() of pieces of any size: piece r of out, counts.from[r] elements, becomes the
  /// piece of rank r's inp for this rank. Pieces lie one after another and fill their buffer. Out
  /// and inp must not overlap. Counts may be 0, also all of them. counts.to[r] must be
  /// counts.from[rank()] on rank r: threads and MPI throw Error with both ranks and both counts if
  /// it is not. The call copies the counts. A rank without elements takes part on device memory,
  /// as the others, unless it passes an address on the host.
  Work all_to_all(Buffer out, Buffer inp, const ExchangeCounts& counts,
                  std::string_view label = {});

  /// Point to point within the group. Sends and receives of a pair match in call order.
  Work send(Buffer data, int to, std::string_view label = {});
  Work recv(Buffer data, int from, std::string_view label = {});

  /// Returns when every rank has called it.
  void barrier(std::string_view label = {});

  /// Whether all ranks are threads of this process.
  virtual bool in_one_process() const { return size() == 1; }

  /// Ranks with the same color form a new group, ordered by their rank here. Throws Error if they
  /// give it different names. Collective.
  std::unique_ptr<Communicator> split(int color, std::string name);

  /// Ends the whole world: every pending and later Work of every group throws Aborted. The first
  /// reason wins. Never throws.
  virtual void abort(const std::string& reason) noexcept = 0;

  /// Why the world has ended; empty while it runs. Thread-safe.
  virtual std::string end_reason() const { return {}; }

  /// Like abort(), but for a watchdog whose rank did not return after abort(), and may never
  /// return. If ranks are threads of one process, it also calls ThreadsOptions::on_hang.
  /// Thread-safe.
  virtual void give_up(const std::string& reason) noexcept { abort(reason); }

  /// Tells the watchdogs that this rank makes progress, while it works for long and the others wait
  /// for it: a rank hangs if it waits in no call, has started none and has noted no progress for
  /// the timeout. Cheap; thread-safe.
  virtual void note_progress() noexcept {}

  /// A number that grows while any rank of the world notes progress, for watchdogs that do not see
  /// which rank holds a collective up. It may be some seconds old: a call also asks for its update.
  /// Cheap; thread-safe; not collective.
  virtual std::int64_t noted_progress() noexcept { return 0; }

  /// Sets how this group, and groups split from it later, move data (collective_cost.h); it must be
  /// the same on all ranks. Transports with one method, such as threads, ignore it. Changes no sum
  /// but NCCL's. Collective.
  void set_policy(const CollectivePolicy& policy);
  const CollectivePolicy& policy() const { return *policy_; }

  const CommStats& stats() const;

  /// CPU time so far of the transport's progress thread on this rank, for all groups; 0 if it has
  /// no such thread.
  virtual double progress_seconds() const { return 0; }

  /// Records collectives and waits of this group, and of groups split from it later, in `trace`,
  /// which must outlive them. Null stops recording.
  void set_trace(Trace* trace) { trace_ = trace; }

  /// Adds checks to each call of the world and of all groups split from it, while they exist.
  void add_checks(std::weak_ptr<CallChecks> checks) { checks_->push_back(std::move(checks)); }

 protected:
  Communicator(std::string name, int rank, int size);

  /// Starts a call whose arguments have been checked. Returns null if it is done already.
  virtual std::shared_ptr<Work::State> start(Call call) = 0;
  /// Starts a call, whose arguments have been checked, on another group of as many ranks.
  static std::shared_ptr<Work::State> start_on(Communicator& group, Call call);

  /// Called by set_policy().
  virtual void policy_changed() {}

  /// Implements split().
  virtual std::unique_ptr<Communicator> split_off(int color, std::string name) = 0;

  /// The group that this rank joins in a split.
  struct Part {
    std::vector<int> members;  ///< ranks of this group, ascending
    int rank = 0;              ///< this rank's index among them
    int largest_number = 0;    ///< among the numbers of all ranks of this group
  };
  /// Finds the ranks with this rank's color, by an all_gather. Every rank gives a number, too.
  /// Throws Error on all ranks if two ranks give the same part different names. Collective.
  Part agree_on_part(int color, const std::string& name, int number = 0);

  /// The name of the group, for messages.
  const std::string& name() const { return name_; }
  /// Whether the group's calls are recorded in a trace now.
  bool traced() const;
  /// Begins a message about a call: "all_reduce (sum) of 8 f32 'norm' on group z".
  std::string about(const Call& call) const;

 private:
  Work begin(Call call);
  using Checks = std::vector<std::weak_ptr<CallChecks>>;
  std::shared_ptr<Work::State> begin_checked(Call call, const Checks& checks);
  /// Throws if the arguments are wrong.
  void check(const Call& call) const;
  void check_exchange(const Call& call) const;
  /// Throws unless `whole` consists of size() pieces like `piece`, and `piece` is apart from it or
  /// is its piece rank().
  void check_pieces(const Call& call, const Buffer& whole, const Buffer& piece) const;
  /// Throws if out and inp overlap, unless `is` begins where `may`, the place allowed for it, does.
  void check_overlap(const Call& call, const Buffer& may, const Buffer& is) const;

  std::string name_;
  int rank_, size_;
  Trace* trace_ = nullptr;
  std::shared_ptr<Checks> checks_ = std::make_shared<Checks>();
  std::shared_ptr<const CollectivePolicy> policy_;
  std::shared_ptr<WaitLog> waits_;  // shared with Works, which may outlive the group
};

}  // namespace axonn
