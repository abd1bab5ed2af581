#include "tests/cluster/scheduler.h"

#include <algorithm>
#include <cstdarg>
#include <cstdio>
#include <string_view>

#include <limits.h>
#include <linux/futex.h>
#include <unistd.h>

namespace axonn::cluster {

namespace {

template <std::size_t N>
void copy_text(std::array<char, N>& to, const char* from) {
  std::snprintf(to.data(), N, "%s", from);
}

std::uint64_t mixed(std::uint64_t hash, std::uint64_t value) {
  hash ^= value + 0x9e3779b97f4a7c15 + (hash << 6) + (hash >> 2);
  return hash * 0xbf58476d1ce4e5b9;
}

}  // namespace

void Account::add_note(const char* format, ...) {
  if (notes == kNotes) return;
  va_list arguments;
  va_start(arguments, format);
  auto& text = note[notes++];
  const int begin = std::snprintf(text.data(), text.size(),
                                  "%.6f s, point %lld: ", 1e-9 * static_cast<double>(nanoseconds),
                                  static_cast<long long>(points));
  std::vsnprintf(text.data() + begin, text.size() - begin, format, arguments);
  va_end(arguments);
}

Scheduler::Scheduler(const ScheduleOptions& options, Account& account)
    : options_(options), account_(account), draws_(options.seed) {
  pthread_key_create(&end_key_, &Scheduler::ended);
  // Sets the function's static variable, whose guard a thread that only starts would hold for real.
  std::atomic<std::uint32_t> nobody = 0;
  real_futex(&nobody, FUTEX_WAKE_PRIVATE, 1);
}

Scheduler::Thread*& Scheduler::self() {
  thread_local Thread* thread = nullptr;
  return thread;
}

Scheduler* Scheduler::of_this_thread() {
  const Thread* const thread = self();
  return thread ? thread->scheduler : nullptr;
}

int Scheduler::rank() const { return self()->rank; }

void Scheduler::took_lock(int count) { self()->locks += count; }

void Scheduler::adopt() {
  auto& thread = threads_.emplace_back(std::make_unique<Thread>());
  thread->scheduler = this;
  thread->priority = draws_.below(1 << 30);
  self() = thread.get();
}

void Scheduler::hold_back(int rank, std::int64_t until) { held_until_.at(rank) = until; }

bool Scheduler::held_back(const Thread& thread) const {
  if (thread.rank < 0) return false;
  const std::int64_t until = held_until_[thread.rank];
  if (until == kNever) return thread.locks == 0;
  return until > account_.nanoseconds;
}

/// The time at which the thread can go on; kNever: it waits for another one.
std::int64_t Scheduler::ready_at(const Thread& thread) const {
  if (thread.state == State::finished) return kNever;
  std::int64_t at = thread.state == State::ready ? 0 : thread.deadline;
  if (at != kNever && held_back(thread)) at = std::max(at, held_until_[thread.rank]);
  return at;
}

void Scheduler::record(const char* what) {
  const Thread& thread = *self();
  Moment& moment = account_.last[account_.moments++ % Account::kMoments];
  moment.nanoseconds = account_.nanoseconds;
  moment.thread = thread.number;
  moment.rank = thread.rank;
  copy_text(moment.what, what);
}

void Scheduler::point(const char* what) {
  ++account_.points;
  account_.nanoseconds += options_.step_ns;
  record(what);
  if (at_point) at_point();
  give_way(/*ends=*/false);
}

bool Scheduler::wait(const void* object, const char* what, std::int64_t deadline) {
  Thread& thread = *self();
  ++account_.points;
  record(what);
  thread.object = object;
  copy_text(thread.what, what);
  thread.deadline = deadline;
  thread.woken = false;
  thread.state = State::waiting;
  if (at_point) at_point();
  give_way(/*ends=*/false);
  return thread.woken;
}

void Scheduler::wake(const void* object, bool all) {
  std::vector<Thread*> waiting;
  for (const auto& thread : threads_)
    if (thread->state == State::waiting && thread->object == object && object)
      waiting.push_back(thread.get());
  if (waiting.empty()) return;
  if (!all) waiting = {waiting[draws_.below(std::ssize(waiting))]};
  for (Thread* thread : waiting) {
    thread->state = State::ready;
    thread->woken = true;
  }
}

void Scheduler::notify(const void* condition, bool all) {
  if (options_.lost_wakes > 0 && draws_.chance(options_.lost_wakes)) return;
  wake(condition, all);
}

Scheduler::Thread& Scheduler::choose() {
  std::int64_t next = kNever;
  for (const auto& thread : threads_) next = std::min(next, ready_at(*thread));
  if (next == kNever) report_deadlock();
  account_.nanoseconds = std::max(account_.nanoseconds, next);
  if (1e-9 * static_cast<double>(account_.nanoseconds) > kMostSeconds) end(kEndless, "endless");
  std::vector<Thread*> can;
  for (const auto& thread : threads_)
    if (ready_at(*thread) <= account_.nanoseconds) can.push_back(thread.get());
  Thread* const own = self();
  const bool goes_on = std::ranges::find(can, own) != can.end();
  if (options_.priorities) {
    // Now and then the running thread falls behind all others, so that any order may come about.
    if (goes_on && draws_.chance(0.01)) own->priority = -account_.points;
    return **std::ranges::max_element(can, {}, &Thread::priority);
  }
  if (goes_on && own->state == State::ready && !draws_.chance(options_.switches)) return *own;
  return *can[draws_.below(std::ssize(can))];
}

void Scheduler::give_way(bool ends) {
  Thread* const own = self();
  Thread& next = choose();
  next.state = State::ready;
  account_.schedule = mixed(account_.schedule, next.number);
  if (&next == own) return;
  account_.schedule = mixed(account_.schedule, account_.points);
  ++account_.switches;
  if (ends) self() = nullptr;
  next.may_run = 1;
  real_futex(&next.may_run, FUTEX_WAKE_PRIVATE, 1);
  if (ends) return;
  while (own->may_run == 0) real_futex(&own->may_run, FUTEX_WAIT_PRIVATE, 0);
  own->may_run = 0;
}

/// Ends the process, and says what its threads wait for.
void Scheduler::end(int code, const char* why) {
  for (const auto& thread : threads_)
    if (thread->state != State::finished)
      account_.add_note("%s: thread %d of rank %d, with %d locks, waits for %s%s", why,
                        thread->number, thread->rank, thread->locks, thread->what.data(),
                        held_back(*thread) ? ", frozen" : "");
  _exit(code);
}

void Scheduler::report_deadlock() {
  const auto frozen = [&](const auto& thread) { return held_back(*thread); };
  const auto gone = [&](const auto& thread) {
    return thread->state == State::finished || thread->rank < 0 || frozen(thread);
  };
  if (std::ranges::all_of(threads_, gone)) end(kFrozen, "only a frozen rank is left");
  // oneDNN's cache lets threads wait for the one that creates what they share.
  const auto on_atomic = [](const auto& thread) {
    return thread->state == State::waiting && std::string_view(thread->what.data()) == kOnAtomic;
  };
  if (std::ranges::any_of(threads_, frozen) && std::ranges::any_of(threads_, on_atomic))
    end(kFrozen, "a frozen rank has what only threads share");
  end(kDeadlock, "deadlock");
}

/// The body of each thread but the first.
void* Scheduler::run(void* given) {
  auto* const thread = static_cast<Thread*>(given);
  while (thread->may_run == 0) real_futex(&thread->may_run, FUTEX_WAIT_PRIVATE, 0);
  thread->may_run = 0;
  self() = thread;
  pthread_setspecific(thread->scheduler->end_key_, thread);
  return thread->start(thread->argument);
}

/// Called on a thread behind the destructors of its thread_local objects, in several rounds, of
/// which the last one is behind those of other libraries, too.
void Scheduler::ended(void* given) {
  auto* const thread = static_cast<Thread*>(given);
  Scheduler& scheduler = *thread->scheduler;
  if (++thread->rounds < PTHREAD_DESTRUCTOR_ITERATIONS) {
    pthread_setspecific(scheduler.end_key_, thread);
    return;
  }
  thread->state = State::finished;
  scheduler.wake(thread, /*all=*/true);
  ++scheduler.account_.points;
  scheduler.record("the end");
  scheduler.give_way(/*ends=*/true);
}

int Scheduler::create(pthread_t* id, const pthread_attr_t* attributes, void* (*start)(void*),
                      void* argument) {
  point("the start of a thread");
  auto& thread = threads_.emplace_back(std::make_unique<Thread>());
  thread->scheduler = this;
  thread->number = static_cast<int>(threads_.size()) - 1;
  thread->rank = self()->number == 0 ? started_by_first_++ : self()->rank;
  thread->priority = draws_.below(1 << 30);
  thread->start = start;
  thread->argument = argument;
  const int fault = real_pthread_create(&thread->id, attributes, &Scheduler::run, thread.get());
  *id = thread->id;
  if (fault != 0) thread->state = State::finished;
  return fault;
}

int Scheduler::join(pthread_t id, void** result) {
  point("join");
  // The newest of that name: the system gives names of threads again.
  const auto found = std::ranges::find_if(threads_.rbegin(), threads_.rend(), [&](auto& thread) {
    return thread->number > 0 && pthread_equal(thread->id, id);
  });
  if (Thread* const thread = found == threads_.rend() ? nullptr : found->get())
    while (thread->state != State::finished) wait(thread, "a thread's end");
  return real_pthread_join(id, result);
}

}  // namespace axonn::cluster
