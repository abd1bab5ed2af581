#include "axonn/comm/threads/thread_world.h"

#include <chrono>
#include <thread>

#include "axonn/base/random.h"
#include "axonn/comm/threads/thread_group.h"

namespace axonn {

std::shared_ptr<ThreadWorld> ThreadWorld::create(int ranks, const ThreadsOptions& options) {
  const auto world = std::make_shared<ThreadWorld>(ranks, options);
  world->flag_ = std::make_shared<AbortFlag>([weak = std::weak_ptr(world)] {
    if (const auto alive = weak.lock()) alive->wake_all();
  });
  return world;
}

void ThreadWorld::add(ThreadGroup* group) {
  const std::lock_guard lock(mutex_);
  groups_.push_back(group);
}

void ThreadWorld::remove(ThreadGroup* group) {
  const std::lock_guard lock(mutex_);
  std::erase(groups_, group);
}

void ThreadWorld::note(int rank, CallId id) {
  RankState& state = states_[rank];
  const std::lock_guard lock(state.mutex);
  state.last = std::move(id);
}

void ThreadWorld::note_returned(int rank) {
  states_[rank].returned = true;
  any_returned_ = true;
  if (*flag_) return;  // the world has ended, and waits throw Aborted anyway
  const std::lock_guard lock(mutex_);
  for (ThreadGroup* group : groups_) group->break_if_missing(rank);
}

bool ThreadWorld::has_returned(int rank) const { return any_returned_ && states_[rank].returned; }

CallId ThreadWorld::last_call(int rank) const {
  const RankState& state = states_[rank];
  const std::lock_guard lock(state.mutex);
  return state.last;
}

void ThreadWorld::delay() {
  if (options_.max_delay_us <= 0) return;
  const Random random(options_.delay_seed, "delay");
  const std::uint64_t us = random.below(delays_++, options_.max_delay_us + 1);
  std::this_thread::sleep_for(std::chrono::microseconds(us));
}

void ThreadWorld::wake_all() {
  const std::lock_guard lock(mutex_);
  for (ThreadGroup* group : groups_) group->wake();
}

}  // namespace axonn
