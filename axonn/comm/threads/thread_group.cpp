#include "axonn/comm/threads/thread_group.h"

#include "axonn/base/check.h"

namespace axonn {

ThreadGroup::ThreadGroup(std::shared_ptr<ThreadWorld> world, std::vector<int> members,
                         std::string name)
    : world_(std::move(world)), members_(std::move(members)), name_(std::move(name)) {
  world_->add(this);
}

ThreadGroup::~ThreadGroup() { world_->remove(this); }

ThreadGroup::Channel& ThreadGroup::channel(int rank, const Call& call, int& party) {
  const bool sends = call.operation == Operation::send,
             receives = call.operation == Operation::recv;
  const int from = sends ? rank : call.peer, to = sends ? call.peer : rank;
  const bool pair = sends || receives;
  party = !pair ? rank : sends ? 0 : 1;
  Channel& channel = channels_[pair ? std::pair(from, to) : std::pair(-1, -1)];
  if (channel.parties.empty()) {
    channel.parties = pair ? std::vector{members_[from], members_[to]} : members_;
    channel.started.resize(channel.parties.size());
  }
  return channel;
}

std::shared_ptr<Rendezvous> ThreadGroup::start(int rank, const Call& call, int& party) {
  world_->flag()->check();
  world_->delay();
  std::shared_ptr<Rendezvous> meeting;
  bool last = false;
  {
    const std::lock_guard lock(mutex_);
    Channel& channel = this->channel(rank, call, party);
    const std::int64_t sequence = channel.started[party]++;
    world_->note(members_[rank], {call.operation, call.label, name_, sequence});
    while (sequence >= channel.first + std::ssize(channel.open))
      channel.open.push_back(std::make_shared<Rendezvous>(
          world_, channel.parties, name_, channel.first + std::ssize(channel.open)));
    meeting = channel.open[sequence - channel.first];
    last = meeting->arrive(party, call);
    if (last) {  // meetings complete in order, because every party makes its calls in order
      channel.open.pop_front();
      ++channel.first;
    } else {
      for (int member : channel.parties)
        if (world_->has_returned(member)) meeting->break_if_missing(member);
    }
  }
  if (last) meeting->open();
  return meeting;
}

std::shared_ptr<ThreadGroup> ThreadGroup::child(std::int64_t sequence, std::vector<int> members,
                                                const std::string& name) {
  const std::lock_guard lock(children_mutex_);
  const int size = static_cast<int>(members.size());
  const auto at = children_.try_emplace({sequence, members.front()}).first;
  Child& child = at->second;
  if (!child.group) child.group = std::make_shared<ThreadGroup>(world_, std::move(members), name);
  const std::shared_ptr<ThreadGroup> group = child.group;
  AXONN_CHECK(group->name() == name, "split of group ", name_, ": one rank names the new group ",
              name, ", another ", group->name(), "; the names must be the same");
  if (++child.taken == size) children_.erase(at);
  return group;
}

void ThreadGroup::wake() {
  const std::lock_guard lock(mutex_);
  for (auto& [ends, channel] : channels_)
    for (const auto& meeting : channel.open) meeting->wake();
}

void ThreadGroup::break_if_missing(int returned) {
  const std::lock_guard lock(mutex_);
  for (auto& [ends, channel] : channels_)
    for (const auto& meeting : channel.open) meeting->break_if_missing(returned);
}

}  // namespace axonn
