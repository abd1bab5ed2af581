#include "axonn/comm/threads/thread_group.h"

#include "axonn/base/check.h"

namespace axonn {

ThreadGroup::ThreadGroup(std::shared_ptr<ThreadWorld> world, std::vector<int> members,
                         std::string name)
    : world_(std::move(world)), members_(std::move(members)), name_(std::move(name)) {
  world_->add(this);
}

ThreadGroup::~ThreadGroup() { world_->remove(this); }

std::shared_ptr<Rendezvous> ThreadGroup::start(int rank, const Call& call, int& party) {
  world_->flag()->check();
  world_->delay();
  const Channel channel = channel_of(rank, call);
  party = channel.party_of(rank);
  std::shared_ptr<Rendezvous> meeting;
  bool last = false;
  {
    const std::lock_guard lock(mutex_);
    Line& line = lines_[channel];
    if (line.parties.empty()) {
      line.parties = channel.parties_of(members_);
      line.started.resize(line.parties.size());
    }
    const std::int64_t sequence = line.started[party]++;
    world_->note(members_[rank], {call.operation, call.label, name_, sequence});
    while (sequence >= line.first + std::ssize(line.open))
      line.open.push_back(std::make_shared<Rendezvous>(world_, line.parties, name_,
                                                       line.first + std::ssize(line.open)));
    meeting = line.open[sequence - line.first];
    last = meeting->arrive(party, call);
    if (last) {  // meetings complete in order, because every party makes its calls in order
      line.open.pop_front();
      ++line.first;
    } else {
      for (int member : line.parties)
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
  if (++child.taken == size) children_.erase(at);
  return group;
}

void ThreadGroup::wake() {
  const std::lock_guard lock(mutex_);
  for (auto& [channel, line] : lines_)
    for (const auto& meeting : line.open) meeting->wake();
}

void ThreadGroup::break_if_missing(int returned) {
  const std::lock_guard lock(mutex_);
  for (auto& [channel, line] : lines_)
    for (const auto& meeting : line.open) meeting->break_if_missing(returned);
}

}  // namespace axonn
