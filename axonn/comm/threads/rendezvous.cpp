#include "axonn/comm/threads/rendezvous.h"

#include <algorithm>
#include <chrono>

#include "axonn/base/clock.h"

namespace axonn {

namespace {

/// A collective that touches fewer bytes is done by the last rank to arrive, which is cheaper than
/// waking another rank.
constexpr std::int64_t kSmallBytes = 64 << 10;

}  // namespace

Rendezvous::Rendezvous(std::shared_ptr<ThreadWorld> world, std::vector<int> parties,
                       std::string group, std::int64_t sequence)
    : world_(std::move(world)),
      parties_(std::move(parties)),
      group_(std::move(group)),
      sequence_(sequence),
      calls_(parties_.size()),
      arrived_(parties_.size()) {}

bool Rendezvous::arrive(int party, const Call& call) {
  const Lock lock(mutex_);
  if (!broken_.empty()) throw Error(broken_);
  const auto first = std::ranges::find(arrived_, 1) - arrived_.begin();
  if (arrivals_ > 0 && !agree(calls_[first], call)) {
    broken_ = concat(describe(call, sequence_, group_), " on rank ", parties_[party],
                     " does not match ", describe(calls_[first]), " on rank ", parties_[first],
                     "; all ranks of a group must make the same calls in the same order");
    changed_.notify_all();
    throw Error(broken_);
  }
  calls_[party] = call;
  arrived_[party] = 1;
  return ++arrivals_ == static_cast<int>(parties_.size());
}

void Rendezvous::open() {
  Lock lock(mutex_);
  if (*world_->flag()) return changed_.notify_all();
  if (const auto& device = calls_.front().device) {
    try {
      device->enqueue_all(calls_);
    } catch (const std::exception& error) {
      broken_ = concat(describe(calls_.front(), sequence_, group_), ": ", error.what());
      changed_.notify_all();
      throw Error(broken_);
    }
  } else {
    pieces_ = Pieces(calls_);
  }
  open_ = true;
  if (pieces_.bytes() < kSmallBytes) return help(lock);
  for (std::int64_t i = 0; i < std::min<std::int64_t>(pieces_.count(), parties_.size()); ++i)
    changed_.notify_one();
}

void Rendezvous::wait(int party) {
  const auto deadline =
      std::chrono::steady_clock::now() + duration_of(world_->options().timeout_seconds);
  Lock lock(mutex_);
  while (!finished()) {
    if (*world_->flag() || !broken_.empty()) {
      changed_.wait(lock, [&] { return active_ == 0; });  // others may still write to our buffers
      changed_.notify_all();
      world_->flag()->check();
      throw Error(broken_);
    }
    if (open_ && next_ < pieces_.count())
      help(lock);
    else if (open_)
      changed_.wait(lock);
    else if (changed_.wait_until(lock, deadline) == std::cv_status::timeout && !open_)
      report_hang(lock, party);
  }
}

bool Rendezvous::done() {
  Lock lock(mutex_);
  if (open_) help(lock);
  return finished() || (active_ == 0 && (*world_->flag() || !broken_.empty()));
}

void Rendezvous::wake() {
  const Lock lock(mutex_);
  changed_.notify_all();
}

void Rendezvous::break_if_missing(int returned) {
  const Lock lock(mutex_);
  const auto party = std::ranges::find(parties_, returned) - parties_.begin();
  if (party == std::ssize(parties_) || arrived_[party] || arrivals_ == 0 || !broken_.empty())
    return;
  const auto first = std::ranges::find(arrived_, 1) - arrived_.begin();
  broken_ = concat(describe(calls_[first], sequence_, group_), ", started by rank ",
                   parties_[first], ", cannot finish: rank ", returned,
                   " has returned without it, after ", describe(world_->last_call(returned)));
  changed_.notify_all();
}

// Claims and runs pieces until none is left. Releases the lock while it runs one.
void Rendezvous::help(Lock& lock) {
  while (next_ < pieces_.count() && !*world_->flag() && broken_.empty()) {
    const std::int64_t piece = next_++;
    ++active_;
    lock.unlock();
    pieces_.run(piece);
    world_->delay();
    lock.lock();
    --active_;
  }
  if (active_ == 0) changed_.notify_all();
}

// Ends the world. The caller checks again whether the work has begun: the missing rank may have
// arrived before the world's end.
void Rendezvous::report_hang(Lock& lock, int party) {
  using Standing = PeerReport::Standing;
  std::vector<PeerReport> peers;
  for (std::size_t i = 0; i < parties_.size(); ++i) {
    const int rank = parties_[i];
    const Standing missing = world_->has_returned(rank) ? Standing::returned : Standing::elsewhere;
    peers.push_back({rank, arrived_[i] ? Standing::arrived : missing, world_->last_call(rank)});
  }
  const std::string reason = concat("rank ", parties_[party], ": ",
                                    hang_report(describe(calls_[party], sequence_, group_),
                                                world_->options().timeout_seconds, peers));
  lock.unlock();
  const auto& on_hang = world_->options().on_hang;
  if (world_->flag()->set(reason) && on_hang) on_hang(reason);
  lock.lock();
}

}  // namespace axonn
