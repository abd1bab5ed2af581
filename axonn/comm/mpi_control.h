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

/// A sequence of collectives: of a group (from and to are -1), or from one of its ranks to another.
struct MpiChannel {
  int group = 0, from = -1, to = -1;
  auto operator<=>(const MpiChannel&) const = default;
};

/// A question to the members of a group: have you started this collective, and where are you?
struct MpiProbe {
  MpiChannel channel;
  std::int64_t sequence = 0;
  std::vector<PeerReport> peers;  ///< world_rank is given, the rest is the answer
  bool done = false;              ///< guarded by the engine's mutex
};

/// The side channel between the progress threads of all ranks: status of a collective, and the end
/// of the world. Used by the progress thread alone.
class MpiControl {
 public:
  /// Hears of the end of the world from another rank.
  using Heard = std::function<void(int rank, const std::string& reason)>;
  /// Called when a probe is done.
  using Answered = std::function<void(MpiProbe&)>;

  MpiControl(MPI_Comm comm, Heard heard, Answered answered);

  /// Notes what this rank starts.
  void note(const MpiChannel& channel, Place place);
  void note_returned() { returned_ = true; }

  void ask(std::shared_ptr<MpiProbe> probe);
  void tell_end(const std::string& reason);

  /// Answers, and takes answers; true if anything came.
  bool poll();
  /// Whether a question or a message is under way, so that poll() should be called soon.
  bool busy() const { return !sends_.empty() || !probes_.empty(); }
  /// Before MPI is finalised.
  void close();

 private:
  enum class Kind : std::int32_t { query, reply, end };
  struct Message {
    Kind kind;
    std::int32_t returned;
    std::int64_t probe;
    MpiChannel channel;
    std::int64_t started;  // sequence of the channel's call that was started last; -1: none
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
  Place last_;
  bool returned_ = false;
};

}  // namespace axonn
