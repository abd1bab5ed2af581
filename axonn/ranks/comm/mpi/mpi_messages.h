#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <span>
#include <vector>

#include <mpi.h>

#include "axonn/foundation/base/check.h"
#include "axonn/ranks/comm/communicator.h"

namespace axonn {

/// Configures Open MPI to send whole parts over TCP without a handshake with the receiver, unless
/// the user has set OMPI_MCA_btl_tcp_eager_limit and related variables. Call it before MPI is
/// initialised. The receiver's answer would queue behind the data that it sends at the same time,
/// so two ranks that exchange data would send one after the other, at half the link's bandwidth.
/// Other networks are not affected.
void prepare_mpi();

/// Throws Error with MPI's error message unless the call succeeded.
void check_mpi(int status, const char* call);

/// Staging memory for received messages, reused by later collectives.
class StagingPool {
 public:
  struct GiveBack {
    StagingPool* pool = nullptr;
    std::int64_t bytes = 0;
    void operator()(char* data) const noexcept;
  };
  /// Memory that returns to the pool, which must outlive it.
  using Block = std::unique_ptr<char[], GiveBack>;
  /// Returns a block of at least this many bytes.
  Block take(std::int64_t bytes);

 private:
  std::multimap<std::int64_t, std::unique_ptr<char[]>> free_;  // by bytes
};

class Messages;

/// State shared by all MPI collectives of a process. Used by the progress thread only.
struct MpiContext {
  MPI_Comm comm = MPI_COMM_NULL;
  StagingPool staging;
  std::int64_t completions = 0;  ///< messages sent or received so far; grows with any progress
  std::int64_t rounds = 0;       ///< begun so far in collectives of several rounds
  std::set<Messages*> posted;    ///< those that have been posted and still exist
  /// MpiOptions::on_arrival.
  std::function<void(std::span<char> bytes)> on_arrival = {};
};

/// The bytes of a message that has a checksum are not those that were sent. Not a mismatch of
/// calls.
class AlteredMessage : public Error {
 public:
  using Error::Error;
};

/// Between whom messages go, and under which tag.
struct Route {
  int peer = 0;  ///< rank of the world
  int tag = 0;
  /// Bytes of a message that are sent before its receiver is known to have begun to receive it;
  /// the same on both ends.
  std::int64_t ahead = 0;
  bool checked = false;  ///< a message has checksums of its parts behind it; the same on both ends
};

enum class Transfer {
  receive,
  send,
  send_confirmed  ///< done only after the receiver has begun to receive it
};

/// Messages in flight between this rank and others. Messages with the same tag between two ranks
/// arrive in the order in which they are posted; a message longer than Route::ahead must be the
/// last. Cheap to move. Buffers must exist until advance() returns true.
///
/// A message travels in parts. A receiver that comes late has to keep the parts that arrive before
/// it, at most Route::ahead bytes of each message: the rest follows when the first part has been
/// matched, which takes one answer, and all parts are expected by then.
class Messages {
 public:
  Messages() = default;
  Messages(Messages&& other) noexcept { *this = std::move(other); }
  Messages& operator=(Messages&& other) noexcept;
  ~Messages();

  /// Sends the buffers to another rank, or receives them from one, as one message: the receiver's
  /// buffers may be cut differently.
  void post(MpiContext& context, Transfer transfer, std::span<const Buffer> data,
            const Route& route);

  /// Whether all messages are done. Throws Error if a message does not have the expected length,
  /// and AlteredMessage.
  bool advance(MpiContext& context);

  /// Gives up receiving messages that no other rank has begun to send. Messages begun still arrive.
  void cancel_receives();
  /// Whether MPI uses none of the buffers any more. Ignores errors.
  bool let_go();

  /// The rank of the world whose message is missing, or, if there is none, one that has not taken
  /// a message; -1 if all are done. As of the last advance().
  int awaited() const;

 private:
  struct Part {
    std::vector<Buffer> blocks;  // of bytes
    int bytes, peer, tag;
    bool receives;
    StagingPool::Block packed = {};
    std::size_t held_begin = 0, held_end = 0;  // parts that are sent when this one is done
  };
  /// The checksums of parts [first, end), one after another.
  std::vector<std::uint64_t> sums(std::size_t first, std::size_t end) const;
  void compare(MpiContext& context);
  /// Posts the part. A confirmed one is done only after it has been matched.
  void begin(MpiContext& context, std::size_t part, bool confirmed);

  MpiContext* context_ = nullptr;  // once posted
  std::vector<MPI_Request> requests_;
  std::vector<Part> parts_;
  struct Checked {
    std::size_t first, end;  // parts of a message; the next one has their checksums
  };
  std::vector<Checked> checked_;  // messages to receive
  std::size_t pending_ = 0;
  std::vector<int> indices_;
  std::vector<MPI_Status> statuses_;
};

}  // namespace axonn
