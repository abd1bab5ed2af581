#include "axonn/comm/device/peer_group.h"

#include <algorithm>
#include <numeric>

#include "axonn/base/check.h"

namespace axonn {

void PeerGroup::join(int rank, std::shared_ptr<PeerKernels> kernels,
                     std::unique_ptr<Stream> stream) {
  const std::lock_guard lock(mutex_);
  members_[rank] = {std::move(kernels), std::move(stream)};
}

std::unique_ptr<Stream> PeerGroup::leave(int rank) {
  const std::lock_guard lock(mutex_);
  return std::move(members_[rank].stream);
}

std::shared_ptr<PeerMeeting> PeerGroup::new_meeting(const Call& call, int rank) const {
  auto meeting = std::make_shared<PeerMeeting>();
  if (call.operation == Operation::send) {
    meeting->parties = {rank, call.peer};
  } else if (call.operation == Operation::recv) {
    meeting->parties = {call.peer, rank};
  } else {
    meeting->parties.resize(members_.size());
    std::iota(meeting->parties.begin(), meeting->parties.end(), 0);
  }
  meeting->calls.resize(meeting->parties.size());
  meeting->ready.resize(meeting->parties.size());
  meeting->arrived.resize(meeting->parties.size());
  return meeting;
}

std::shared_ptr<PeerMeeting> PeerGroup::arrive(int rank, const Call& call,
                                               std::shared_ptr<const Event> ready) {
  const std::lock_guard lock(mutex_);
  const bool sends = call.operation == Operation::send,
             pair = sends || call.operation == Operation::recv;
  Channel& channel = channels_[!pair   ? std::pair(-1, -1)
                               : sends ? std::pair(rank, call.peer)
                                       : std::pair(call.peer, rank)];
  const int party = !pair ? rank : sends ? 0 : 1;
  channel.started.resize(pair ? 2 : members_.size());
  const std::int64_t sequence = channel.started[party]++;
  while (sequence >= channel.first + std::ssize(channel.open))
    channel.open.push_back(new_meeting(call, rank));
  const std::shared_ptr<PeerMeeting> meeting = channel.open[sequence - channel.first];

  const auto first = std::ranges::find(meeting->arrived, 1) - meeting->arrived.begin();
  if (first < std::ssize(meeting->arrived) && !agree(meeting->calls[first], call))
    throw Error(concat(describe(call), " on rank ", rank, " of group ", name_, " does not match ",
                       describe(meeting->calls[first]), " on rank ", meeting->parties[first],
                       "; all ranks of a group must make the same calls in the same order"));
  meeting->calls[party] = call;
  meeting->ready[party] = std::move(ready);
  meeting->arrived[party] = 1;
  if (std::ranges::count(meeting->arrived, 1) == std::ssize(meeting->arrived)) {
    channel.open.pop_front();
    ++channel.first;
    start(*meeting);
  }
  return meeting;
}

void PeerGroup::start(PeerMeeting& meeting) {
  const auto gone = [&](int rank) { return members_[rank].stream == nullptr; };
  meeting.broken = meeting.broken || std::ranges::any_of(meeting.parties, gone);
  if (meeting.broken) return;
  // One rank's stream waits for all events, and the others wait for that stream. This takes about
  // three waits per rank, instead of one per pair of ranks.
  Member& gathers = members_[meeting.parties.back()];
  std::shared_ptr<const Event> all_ready;
  gathers.kernels->on_device([&] {
    for (const auto& ready : meeting.ready) gathers.stream->wait(*ready);
    all_ready = gathers.stream->record();
  });
  std::vector<std::shared_ptr<const Event>> parts;
  for (std::size_t party = 0; party < meeting.parties.size(); ++party) {
    const PeerWork work = part_of(meeting.calls, static_cast<int>(party));
    if (work.empty()) continue;
    Member& member = members_[meeting.parties[party]];
    member.kernels->on_device([&] {
      member.stream->wait(*all_ready);
      member.kernels->enqueue(*member.stream, work);
      parts.push_back(member.stream->record());
    });
  }
  gathers.kernels->on_device([&] {
    for (const auto& part : parts) gathers.stream->wait(*part);
    meeting.done = gathers.stream->record();
  });
  meeting.ready.clear();
}

std::shared_ptr<const Event> PeerGroup::done_of(const PeerMeeting& meeting) {
  const std::lock_guard lock(mutex_);
  return meeting.done;
}

std::shared_ptr<const Event> PeerGroup::forsake(PeerMeeting& meeting) {
  const std::lock_guard lock(mutex_);
  if (!meeting.done) meeting.broken = true;
  return meeting.done;
}

}  // namespace axonn
