#include "axonn/comm/mpi/mpi_control.h"

#include <algorithm>

#include "axonn/base/clock.h"
#include "axonn/comm/mpi/mpi_messages.h"

namespace axonn {

namespace {

/// Time limit for answers. A progress thread answers within its longest sleep (20 ms), but later on
/// a busy machine.
constexpr double kAnswerSeconds = 2;

template <std::size_t N>
void put_text(std::array<char, N>& to, const std::string& text) {
  to[text.copy(to.data(), N - 1)] = '\0';
}

}  // namespace

MpiControl::MpiControl(MPI_Comm comm, Heard heard, Answered answered)
    : comm_(comm), heard_(std::move(heard)), answered_(std::move(answered)) {
  check_mpi(MPI_Comm_rank(comm_, &rank_), "MPI_Comm_rank");
  check_mpi(MPI_Comm_size(comm_, &size_), "MPI_Comm_size");
  listen();
}

void MpiControl::note(const MpiChannel& channel, CallId id) {
  started_[channel] = id.sequence;
  last_ = std::move(id);
}

void MpiControl::ask(std::shared_ptr<MpiProbe> probe) {
  const std::int64_t id = next_probe_++;
  Pending& pending = probes_[id];
  pending.probe = std::move(probe);
  pending.deadline = now_seconds() + kAnswerSeconds;
  for (PeerReport& peer : pending.probe->peers) {
    peer.standing = PeerReport::Standing::silent;
    auto query = std::make_unique<Message>();
    query->kind = Kind::query;
    query->probe = id;
    query->channel = pending.probe->channel;
    if (peer.world_rank != rank_) {
      send(std::move(query), peer.world_rank);
    } else {
      peer.standing = PeerReport::Standing::arrived;
      ++pending.answers;
    }
  }
}

void MpiControl::tell_end(const std::string& reason) {
  for (int to = 0; to < size_; ++to) {
    if (to == rank_) continue;
    auto message = std::make_unique<Message>();
    message->kind = Kind::end;
    put_text(message->reason, reason);
    send(std::move(message), to);
  }
}

bool MpiControl::poll() {
  bool any = false;
  for (;;) {
    int come = 0;
    MPI_Status status;
    check_mpi(MPI_Test(&listening_, &come, &status), "MPI_Test");
    if (!come) break;
    any = true;
    receive(status.MPI_SOURCE);
    listen();
  }
  std::erase_if(sends_, [](Sent& sent) {
    int done = 0;
    check_mpi(MPI_Test(&sent.request, &done, MPI_STATUS_IGNORE), "MPI_Test");
    return done != 0;
  });
  finish_probes();
  return any;
}

void MpiControl::close() {
  if (listening_ == MPI_REQUEST_NULL) return;
  check_mpi(MPI_Cancel(&listening_), "MPI_Cancel");
  check_mpi(MPI_Wait(&listening_, MPI_STATUS_IGNORE), "MPI_Wait");
}

void MpiControl::listen() {
  check_mpi(
      MPI_Irecv(&incoming_, sizeof incoming_, MPI_BYTE, MPI_ANY_SOURCE, 0, comm_, &listening_),
      "MPI_Irecv");
}

void MpiControl::send(std::unique_ptr<Message> message, int to) {
  Sent& sent = sends_.emplace_back();
  sent.message = std::move(message);
  check_mpi(MPI_Isend(sent.message.get(), sizeof(Message), MPI_BYTE, to, 0, comm_, &sent.request),
            "MPI_Isend");
}

void MpiControl::receive(int from) {
  switch (incoming_.kind) {
    case Kind::query:
      return answer(incoming_, from);
    case Kind::reply:
      return take(incoming_, from);
    case Kind::end:
      return heard_(from, incoming_.reason.data());
  }
}

void MpiControl::answer(const Message& query, int to) {
  auto reply = std::make_unique<Message>(query);
  reply->kind = Kind::reply;
  reply->returned = returned_;
  const auto at = started_.find(query.channel);
  reply->started = at == started_.end() ? -1 : at->second;
  reply->operation = last_.operation;
  reply->sequence = last_.sequence;
  put_text(reply->group, last_.group);
  put_text(reply->label, last_.label);
  send(std::move(reply), to);
}

void MpiControl::take(const Message& reply, int from) {
  using Standing = PeerReport::Standing;
  const auto at = probes_.find(reply.probe);
  if (at == probes_.end()) return;  // too late
  Pending& pending = at->second;
  const auto peer = std::ranges::find(pending.probe->peers, from, &PeerReport::world_rank);
  if (peer == pending.probe->peers.end()) return;
  peer->last = {reply.operation, reply.label.data(), reply.group.data(), reply.sequence};
  const bool came = reply.started >= pending.probe->sequence;
  const Standing missing = reply.returned ? Standing::returned : Standing::elsewhere;
  peer->standing = came ? Standing::arrived : missing;
  ++pending.answers;
}

void MpiControl::finish_probes() {
  for (auto at = probes_.begin(); at != probes_.end();) {
    const Pending& pending = at->second;
    const bool all = pending.answers == pending.probe->peers.size();
    if (all || now_seconds() >= pending.deadline) {
      answered_(*pending.probe);
      at = probes_.erase(at);
    } else {
      ++at;
    }
  }
}

}  // namespace axonn
