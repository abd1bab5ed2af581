#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <list>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include <mpi.h>

#include "axonn/comm/call.h"
#include "axonn/comm/mpi/mpi_messages.h"
#include "axonn/comm/patience.h"

namespace axonn {

/// A channel of one of the world's groups.
struct MpiChannel {
  int group = 0;  ///< MpiGroup::id
  Channel of;
  auto operator<=>(const MpiChannel&) const = default;
};

/// A call, as all ranks of its channel know it.
struct MpiCall {
  MpiChannel channel;
  std::int64_t sequence = 0;
};

/// Where a rank is, for another one that waits for it in a call.
struct MpiPlace {
  int awaited = -1;  ///< the rank of the world that it waits for; -1: none
  MpiCall in;        ///< the call in which it waits
  bool returned = false;
  std::int64_t progress = 0;  ///< Culprit::progress
  CallId id;                  ///< of `in`; if it does not wait, of its last call
};

/// Follows the chain of waits that begins with a call of this rank: asks one rank after another.
struct MpiProbe {
  MpiCall call;  ///< that the next rank of the chain is asked about
  std::vector<RankWait> waits;
  Culprit culprit;
  bool cut = false;     ///< the chain is longer than a probe follows
  std::int64_t id = 0;  ///< of the question
  int asked = -1;
  double deadline = 0;  ///< for the answer, on the control's clock
  bool done = false;    ///< guarded by the engine's mutex
};

/// The side channel between the progress threads of all ranks, for probes and for the end of the
/// world. Used by the progress thread only.
///
/// A rank has one question at a time to another one, and asks at most kMostHops ranks in a probe.
/// So messages grow in proportion to the ranks, and a rank that cannot answer buffers at most one
/// short message of each other rank.
class MpiControl {
 public:
  struct Handlers {
    /// Called when another rank has ended the world.
    std::function<void(int rank, const std::string& reason)> heard;
    /// Called when a probe has found the culprit, or a rank that does not answer in time.
    std::function<void(MpiProbe&)> found;
    /// This rank's place, for another one that waits for it in a call.
    std::function<MpiPlace(const MpiCall&)> place;
  };

  MpiControl(MPI_Comm comm, Handlers handlers) : comm_(comm), handlers_(std::move(handlers)) {
    check_mpi(MPI_Comm_rank(comm_, &rank_), "MPI_Comm_rank");
    check_mpi(MPI_Comm_size(comm_, &size_), "MPI_Comm_size");
    listen();
  }

  /// Begins a probe; it replaces an earlier one.
  void ask(std::shared_ptr<MpiProbe> probe) {
    probe_ = std::move(probe);
    follow(rank_, handlers_.place(probe_->call));
  }

  void tell_end(const std::string& reason) {
    Message message{.kind = Kind::end};
    put_text(message.text, reason);
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
      if (incoming_.kind == Kind::question)
        answer(incoming_, status.MPI_SOURCE);
      else if (incoming_.kind == Kind::answer)
        take(incoming_, status.MPI_SOURCE);
      else
        handlers_.heard(status.MPI_SOURCE, incoming_.text.data());
      listen();
    }
    std::erase_if(sends_, [](Sent& sent) {
      int done = 0;
      check_mpi(MPI_Test(&sent.request, &done, MPI_STATUS_IGNORE), "MPI_Test");
      return done != 0;
    });
    const double now = clock_.now();  // at every poll, because long pauses do not count
    if (probe_ && now >= probe_->deadline) found();
    return any;
  }

  /// Whether a probe or a message is in flight, so that poll() should be called soon.
  bool busy() const { return !sends_.empty() || probe_; }
  /// Must be called before MPI is finalised.
  void close() {
    if (listening_ == MPI_REQUEST_NULL) return;
    check_mpi(MPI_Cancel(&listening_), "MPI_Cancel");
    check_mpi(MPI_Wait(&listening_, MPI_STATUS_IGNORE), "MPI_Wait");
  }

 private:
  /// Time limit for answers. A progress thread answers within its longest sleep (20 ms), but later
  /// on a busy machine.
  static constexpr double kAnswerSeconds = 2, kLongestPause = 0.1;

  /// A chain through a tree of ranks has some dozens of waits. At the end of a longer one, another
  /// rank, nearer to the culprit, finds it.
  static constexpr std::size_t kMostHops = 64;

  enum class Kind : std::int32_t { question, answer, end };
  struct Message {
    Kind kind = Kind::question;
    std::int32_t awaited = -1, returned = 0;
    Operation operation = Operation::barrier;
    std::int64_t probe = 0, progress = 0, last = -1;  // last: CallId::sequence
    MpiCall call = {};  // of a question: what it is about; of an answer: MpiPlace::in
    std::array<char, 64> group = {};
    std::array<char, 2048> text = {};  // CallId::label, or the reason of the end; sent up to its 0
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
    const auto bytes =
        offsetof(Message, text) + std::char_traits<char>::length(message.text.data()) + 1;
    check_mpi(
        MPI_Isend(&sent.message, static_cast<int>(bytes), MPI_BYTE, to, 0, comm_, &sent.request),
        "MPI_Isend");
  }

  void answer(const Message& question, int to) {
    const MpiPlace place = handlers_.place(question.call);
    Message message{.kind = Kind::answer,
                    .awaited = place.awaited,
                    .returned = place.returned ? 1 : 0,
                    .operation = place.id.operation,
                    .probe = question.probe,
                    .progress = place.progress,
                    .last = place.id.sequence,
                    .call = place.in};
    put_text(message.group, place.id.group);
    put_text(message.text, place.id.label);
    send(message, to);
  }

  void take(const Message& reply, int from) {
    unanswered_.erase(from);
    if (!probe_ || reply.probe != probe_->id || from != probe_->asked) return;  // too late
    follow(from, {.awaited = reply.awaited,
                  .in = reply.call,
                  .returned = reply.returned != 0,
                  .progress = reply.progress,
                  .id = {reply.operation, reply.text.data(), reply.group.data(), reply.last}});
  }

  /// Continues the probe with the place of the last rank of its chain.
  void follow(int rank, const MpiPlace& place) {
    MpiProbe& probe = *probe_;
    probe.culprit = {place.returned ? Culprit::State::returned : Culprit::State::running,
                     place.progress, place.id};
    if (place.awaited < 0) return found();
    const auto seen = [&](int of) { return std::ranges::count(probe.waits, of, &RankWait::rank); };
    probe.waits.push_back({rank, place.awaited, place.id});
    probe.culprit.state = Culprit::State::waiting;
    probe.cut = probe.waits.size() >= kMostHops;
    if (probe.cut || seen(place.awaited) > 0) return found();
    probe.call = place.in;
    probe.culprit = {};  // silent, unless it answers
    probe.asked = place.awaited;
    probe.id = next_id_++;
    probe.deadline = clock_.now() + kAnswerSeconds;
    if (unanswered_.insert(probe.asked).second)
      send({.kind = Kind::question, .probe = probe.id, .call = probe.call}, probe.asked);
  }

  void found() { handlers_.found(*std::exchange(probe_, nullptr)); }

  RunningClock clock_{kLongestPause};
  MPI_Comm comm_;
  int rank_ = 0, size_ = 1;
  Handlers handlers_;
  Message incoming_;
  MPI_Request listening_ = MPI_REQUEST_NULL;
  std::list<Sent> sends_;
  std::shared_ptr<MpiProbe> probe_;
  std::int64_t next_id_ = 0;
  std::set<int> unanswered_;  // ranks that have not answered a question
};

}  // namespace axonn
