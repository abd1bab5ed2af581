#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <list>
#include <memory>
#include <string>
#include <utility>

#include <mpi.h>

#include "axonn/ranks/comm/mpi/mpi_messages.h"
#include "axonn/ranks/comm/mpi/mpi_prober.h"

namespace axonn {

/// The side channel between the progress threads of all ranks, for probes, for what ranks tell the
/// watchdogs of devices, and for the end of the world. Used by the progress thread only.
class MpiControl {
 public:
  struct Handlers {
    /// Called when another rank has ended the world.
    std::function<void(int rank, const std::string& reason)> heard;
    /// Called when rank 0 has left its body after the end of the world.
    std::function<void()> left;
    /// See MpiProber.
    std::function<void(MpiProbe&)> found;
    std::function<MpiRankState(const MpiCall&)> state;
  };

  MpiControl(MPI_Comm comm, Handlers handlers)
      : comm_(comm),
        handlers_(std::move(handlers)),
        prober_(rank_of(comm), {.send = [this](const MpiNote& note, int to) { send(note, to); },
                                .found = handlers_.found,
                                .state = handlers_.state}) {
    check_mpi(MPI_Comm_size(comm_, &size_), "MPI_Comm_size");
    listen();
  }

  /// Begins a probe; it replaces an earlier one.
  void ask(std::shared_ptr<MpiProbe> probe) { prober_.ask(std::move(probe)); }

  void tell_end(const std::string& reason) {
    MpiNote note{.kind = MpiNote::Kind::end};
    MpiNote::put(note.text, reason);
    for (int to = 0; to < size_; ++to)
      if (to != rank_) send(note, to);
  }

  /// From rank 0 to the rank that ends the job.
  void tell_left(int to) { send({.kind = MpiNote::Kind::left}, to); }

  /// Handles the messages that have arrived. Returns true if there were any.
  bool poll() {
    bool any = false;
    for (;;) {
      int come = 0;
      MPI_Status status;
      check_mpi(MPI_Test(&listening_, &come, &status), "MPI_Test");
      if (!come) break;
      any = true;
      take(incoming_, status.MPI_SOURCE);
      listen();
    }
    std::erase_if(sends_, [](Sent& sent) {
      int done = 0;
      check_mpi(MPI_Test(&sent.request, &done, MPI_STATUS_IGNORE), "MPI_Test");
      return done != 0;
    });
    prober_.check_deadline();
    return any;
  }

  /// Tells rank 0 how often this rank has noted progress so far, if it is more than before or if
  /// `asks`; rank 0 answers with the sum over all ranks. Returns the sum as last heard, and sends
  /// nothing before the last answer has come. To be called now and then.
  std::int64_t share_noted(std::int64_t mine, bool asks) {
    if (shares_noted_ || (mine == told_noted_ && !asks)) return noted_;
    const std::int64_t more = mine - std::exchange(told_noted_, mine);
    if (rank_ == 0) return noted_ += more;
    shares_noted_ = true;
    send({.kind = MpiNote::Kind::noted, .progress = more}, 0);
    return noted_;
  }

  /// Whether a probe or a message is in flight, so that poll() should be called soon.
  bool busy() const { return !sends_.empty() || prober_.busy(); }
  /// Must be called before MPI is finalised.
  void close() {
    if (listening_ == MPI_REQUEST_NULL) return;
    check_mpi(MPI_Cancel(&listening_), "MPI_Cancel");
    check_mpi(MPI_Wait(&listening_, MPI_STATUS_IGNORE), "MPI_Wait");
  }

 private:
  struct Sent {
    MpiNote note;
    MPI_Request request = MPI_REQUEST_NULL;
  };

  static int rank_of(MPI_Comm comm) {
    int rank = 0;
    check_mpi(MPI_Comm_rank(comm, &rank), "MPI_Comm_rank");
    return rank;
  }

  void listen() {
    check_mpi(
        MPI_Irecv(&incoming_, sizeof incoming_, MPI_BYTE, MPI_ANY_SOURCE, 0, comm_, &listening_),
        "MPI_Irecv");
  }

  void send(const MpiNote& note, int to) {
    Sent& sent = sends_.emplace_back();
    sent.note = note;
    const auto bytes =
        offsetof(MpiNote, text) + std::char_traits<char>::length(note.text.data()) + 1;
    check_mpi(MPI_Isend(&sent.note, static_cast<int>(bytes), MPI_BYTE, to, 0, comm_, &sent.request),
              "MPI_Isend");
  }

  void take(const MpiNote& note, int from) {
    using Kind = MpiNote::Kind;
    switch (note.kind) {
      case Kind::question:
      case Kind::answer:
        return prober_.take(note, from);
      case Kind::end:
        return handlers_.heard(from, note.text.data());
      case Kind::left:
        return handlers_.left();
      case Kind::noted:
        noted_ += note.progress;
        return send({.kind = Kind::all_noted, .progress = noted_}, from);
      case Kind::all_noted:
        noted_ = note.progress;
        shares_noted_ = false;
    }
  }

  MPI_Comm comm_;
  int rank_ = rank_of(comm_), size_ = 1;
  Handlers handlers_;
  MpiProber prober_;
  MpiNote incoming_;
  MPI_Request listening_ = MPI_REQUEST_NULL;
  std::list<Sent> sends_;
  std::int64_t told_noted_ = 0, noted_ = 0;  // noted_: of all ranks, as far as is known here
  bool shares_noted_ = false;                // until the answer
};

}  // namespace axonn
