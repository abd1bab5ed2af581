#pragma once

#include <array>
#include <functional>
#include <list>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include <mpi.h>

#include "axonn/comm/watch.h"

namespace axonn {

/// A channel of one of the world's groups.
struct MpiChannel {
  int group = 0;  ///< MpiGroup::id
  Channel of;
  auto operator<=>(const MpiChannel&) const = default;
};

/// Asks the members of a group whether they have started a collective, and what they started last.
struct MpiProbe {
  MpiChannel channel;
  std::int64_t sequence = 0;
  std::vector<PeerReport> peers;  ///< the caller sets world_rank; the rest is the answer
  bool done = false;              ///< guarded by the engine's mutex
};

/// The side channel between the progress threads of all ranks, for probes of a collective and for
/// the end of the world. Used by the progress thread only.
class MpiControl {
 public:
  /// Called when another rank has ended the world.
  using Heard = std::function<void(int rank, const std::string& reason)>;
  /// Called when all answers to a probe are in, or the time limit has passed.
  using Answered = std::function<void(MpiProbe&)>;

  MpiControl(MPI_Comm comm, Heard heard, Answered answered);

  /// Records a call that this rank starts.
  void note(const MpiChannel& channel, CallId id);
  void note_returned() { returned_ = true; }

  void ask(std::shared_ptr<MpiProbe> probe);
  void tell_end(const std::string& reason);

  /// Handles the messages that have arrived. Returns true if there were any.
  bool poll();
  /// Whether a probe or a message is in flight, so that poll() should be called soon.
  bool busy() const { return !sends_.empty() || !probes_.empty(); }
  /// Must be called before MPI is finalised.
  void close();

 private:
  enum class Kind : std::int32_t { query, reply, end };
  struct Message {
    Kind kind;
    std::int32_t returned;
    std::int64_t probe;
    MpiChannel channel;
    std::int64_t started;  // sequence of the last call that was started on the channel; -1: none
    Operation operation;
    std::int64_t sequence;
    std::array<char, 64> group;
    std::array<char, 88> label;
    std::array<char, 2048> reason;
  };
  struct Sent {
    MPI_Request request = MPI_REQUEST_NULL;
    std::unique_ptr<Message> message;
  };
  struct Pending {
    std::shared_ptr<MpiProbe> probe;
    std::size_t answers = 0;
    double deadline = 0;
  };

  void listen();
  void send(std::unique_ptr<Message> message, int to);
  void receive(int from);
  void answer(const Message& query, int to);
  void take(const Message& reply, int from);
  void finish_probes();

  MPI_Comm comm_;
  int rank_ = 0, size_ = 1;
  Heard heard_;
  Answered answered_;
  Message incoming_{};
  MPI_Request listening_ = MPI_REQUEST_NULL;
  std::list<Sent> sends_;
  std::map<std::int64_t, Pending> probes_;
  std::int64_t next_probe_ = 0;
  std::map<MpiChannel, std::int64_t> started_;
  CallId last_;
  bool returned_ = false;
};

}  // namespace axonn
