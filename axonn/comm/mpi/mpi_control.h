#pragma once

#include <algorithm>
#include <array>
#include <functional>
#include <list>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include <mpi.h>

#include "axonn/base/clock.h"
#include "axonn/comm/call.h"
#include "axonn/comm/mpi/mpi_messages.h"

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
  std::size_t answers = 0;
  double deadline = 0;  ///< for answers
  bool done = false;    ///< guarded by the engine's mutex
};

/// The side channel between the progress threads of all ranks, for probes of a collective and for
/// the end of the world. Used by the progress thread only.
class MpiControl {
 public:
  /// Called when another rank has ended the world.
  using Heard = std::function<void(int rank, const std::string& reason)>;
  /// Called when all answers to a probe are in, or the time limit has passed.
  using Answered = std::function<void(MpiProbe&)>;

  MpiControl(MPI_Comm comm, Heard heard, Answered answered)
      : comm_(comm), heard_(std::move(heard)), answered_(std::move(answered)) {
    check_mpi(MPI_Comm_rank(comm_, &rank_), "MPI_Comm_rank");
    check_mpi(MPI_Comm_size(comm_, &size_), "MPI_Comm_size");
    listen();
  }

  /// Records a call that this rank starts.
  void note(const MpiChannel& channel, CallId id) {
    started_[channel] = id.sequence;
    last_ = std::move(id);
  }

  void note_returned() { returned_ = true; }

  void ask(std::shared_ptr<MpiProbe> probe) {
    const std::int64_t id = next_probe_++;
    probe->deadline = now_seconds() + kAnswerSeconds;
    for (PeerReport& peer : probe->peers) {
      if (peer.world_rank != rank_) {
        send({.kind = Kind::query, .probe = id, .channel = probe->channel}, peer.world_rank);
      } else {
        peer.standing = Standing::arrived;
        ++probe->answers;
      }
    }
    probes_[id] = std::move(probe);
  }

  void tell_end(const std::string& reason) {
    Message message{.kind = Kind::end};
    put_text(message.reason, reason);
    for (int to = 0; to < size_; ++to)
      if (to != rank_) send(message, to);
  }

  /// Handles the messages that have arrived. Returns true if there were any.
  bool poll() {
    bool any = false;
    for (;;) {
      int come = 0;
      MPI_Status status;
      check_mpi(MPI_Test(&listening_, &come, &status), "MPI_Test");
      if (!come) break;
      any = true;
      if (incoming_.kind == Kind::query)
        answer(incoming_, status.MPI_SOURCE);
      else if (incoming_.kind == Kind::reply)
        take(incoming_, status.MPI_SOURCE);
      else
        heard_(status.MPI_SOURCE, incoming_.reason.data());
      listen();
    }
    std::erase_if(sends_, [](Sent& sent) {
      int done = 0;
      check_mpi(MPI_Test(&sent.request, &done, MPI_STATUS_IGNORE), "MPI_Test");
      return done != 0;
    });
    std::erase_if(probes_, [&](const auto& entry) {
      MpiProbe& probe = *entry.second;
      if (probe.answers < probe.peers.size() && now_seconds() < probe.deadline) return false;
      answered_(probe);
      return true;
    });
    return any;
  }

  /// Whether a probe or a message is in flight, so that poll() should be called soon.
  bool busy() const { return !sends_.empty() || !probes_.empty(); }
  /// Must be called before MPI is finalised.
  void close() {
    if (listening_ == MPI_REQUEST_NULL) return;
    check_mpi(MPI_Cancel(&listening_), "MPI_Cancel");
    check_mpi(MPI_Wait(&listening_, MPI_STATUS_IGNORE), "MPI_Wait");
  }

 private:
  /// Time limit for answers. A progress thread answers within its longest sleep (20 ms), but later
  /// on a busy machine.
  static constexpr double kAnswerSeconds = 2;

  enum class Kind : std::int32_t { query, reply, end };
  struct Message {
    Kind kind = Kind::query;
    std::int32_t returned = 0;
    std::int64_t probe = 0;
    MpiChannel channel = {};
    std::int64_t started = -1;  // sequence of the last call that was started on the channel
    Operation operation = Operation::barrier;
    std::int64_t sequence = -1;
    std::array<char, 64> group = {};
    std::array<char, 88> label = {};
    std::array<char, 2048> reason = {};
  };
  struct Sent {
    Message message;
    MPI_Request request = MPI_REQUEST_NULL;
  };
  template <std::size_t N>
  static void put_text(std::array<char, N>& to, const std::string& text) {
    to[text.copy(to.data(), N - 1)] = '\0';
  }

  void listen() {
    check_mpi(
        MPI_Irecv(&incoming_, sizeof incoming_, MPI_BYTE, MPI_ANY_SOURCE, 0, comm_, &listening_),
        "MPI_Irecv");
  }

  void send(const Message& message, int to) {
    Sent& sent = sends_.emplace_back();
    sent.message = message;
    check_mpi(MPI_Isend(&sent.message, sizeof(Message), MPI_BYTE, to, 0, comm_, &sent.request),
              "MPI_Isend");
  }

  void answer(const Message& query, int to) {
    Message reply = query;
    reply.kind = Kind::reply;
    reply.returned = returned_;
    if (const auto at = started_.find(query.channel); at != started_.end())
      reply.started = at->second;
    reply.operation = last_.operation;
    reply.sequence = last_.sequence;
    put_text(reply.group, last_.group);
    put_text(reply.label, last_.label);
    send(reply, to);
  }

  void take(const Message& reply, int from) {
    const auto at = probes_.find(reply.probe);
    if (at == probes_.end()) return;  // too late
    MpiProbe& probe = *at->second;
    const auto peer = std::ranges::find(probe.peers, from, &PeerReport::world_rank);
    if (peer == probe.peers.end()) return;
    peer->last = {reply.operation, reply.label.data(), reply.group.data(), reply.sequence};
    const Standing missing = reply.returned ? Standing::returned : Standing::elsewhere;
    peer->standing = reply.started >= probe.sequence ? Standing::arrived : missing;
    ++probe.answers;
  }

  MPI_Comm comm_;
  int rank_ = 0, size_ = 1;
  Heard heard_;
  Answered answered_;
  Message incoming_;
  MPI_Request listening_ = MPI_REQUEST_NULL;
  std::list<Sent> sends_;
  std::map<std::int64_t, std::shared_ptr<MpiProbe>> probes_;
  std::int64_t next_probe_ = 0;
  std::map<MpiChannel, std::int64_t> started_;
  CallId last_;
  bool returned_ = false;
};

}  // namespace axonn
