// The functions of the C library by which the program starts threads, waits and asks the time, in
// place of the library's own; those for files are in interposed_files.cpp. A program's definition
// of a name wins over that of a shared library, also for calls from libstdc++ and from other
// libraries, so the code under test is compiled as ever: std::thread, std::mutex,
// std::condition_variable, the clocks of std::chrono, std::ofstream and std::filesystem come here.
// On a thread of the simulation (simulation.h) each of them is a point at which the scheduler may
// let another thread go on, times are virtual, and a call that changes a file below the simulated
// folder may fail, and is noted for a loss of power. Other threads, and the simulation itself while
// it serves a call, get the library's functions.
#include <cerrno>
#include <cstdarg>
#include <random>
#include <set>

#include <dlfcn.h>
#include <linux/futex.h>
#include <pthread.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

#include "tests/cluster/simulation.h"

namespace axonn::cluster {

Simulation& simulation() {
  static Simulation one;
  return one;
}

Scheduler* scheduler() { return Serving::now() ? nullptr : Scheduler::of_this_thread(); }

bool& Serving::now() {
  thread_local bool serving = false;
  return serving;
}

namespace {

// Functions with attributes or several declarations, as they are called here.
using Lock = int(pthread_mutex_t*);
using Wait = int(pthread_cond_t*, pthread_mutex_t*);
using Signal = int(pthread_cond_t*);
using Wide = int(pthread_rwlock_t*);

std::int64_t in_ns(const timespec& time) {
  return std::int64_t{1'000'000'000} * time.tv_sec + time.tv_nsec;
}
timespec in_timespec(std::int64_t ns) {
  return {.tv_sec = ns / 1'000'000'000, .tv_nsec = ns % 1'000'000'000};
}

/// A time of one of the clocks as one of the simulation; and the reverse.
std::int64_t offset_of(clockid_t clock) {
  return clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE ? simulation().wall_clock_ns : 0;
}
bool is_virtual(clockid_t clock) {
  return clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE || clock == CLOCK_MONOTONIC ||
         clock == CLOCK_MONOTONIC_COARSE || clock == CLOCK_MONOTONIC_RAW || clock == CLOCK_BOOTTIME;
}

void lock_in(Scheduler& s, pthread_mutex_t* mutex) {
  while (pthread_mutex_trylock(mutex) == EBUSY) s.wait(mutex, "a mutex");
}

int wait_in(Scheduler& s, pthread_cond_t* condition, pthread_mutex_t* mutex,
            std::int64_t deadline) {
  static const auto unlock = next<Lock>("pthread_mutex_unlock");
  unlock(mutex);
  s.took_lock(-1);
  s.wake(mutex, /*all=*/true);
  const bool woken = s.wait(condition, "a condition", deadline);
  lock_in(s, mutex);
  return woken ? 0 : ETIMEDOUT;
}

/// Behind an attempt to release a lock, which gave this fault.
int unlocked(const void* lock, int fault) {
  Scheduler* const s = scheduler();
  if (!s || fault != 0) return fault;
  s->took_lock(-1);
  s->wake(lock, /*all=*/true);
  s->point("an unlock");
  return 0;
}

/// Takes a lock of one writer or several readers.
int lock_wide(pthread_rwlock_t* lock, Wide* real, Wide* attempt) {
  Scheduler* const s = scheduler();
  if (!s) return real(lock);
  s->point("a lock");
  while (attempt(lock) == EBUSY) s->wait(lock, "a lock of readers and writers");
  s->took_lock(1);
  return 0;
}

void sleep_in(Scheduler& s, std::int64_t ns) { s.wait(nullptr, "a sleep", s.now_ns() + ns); }

}  // namespace

long real_futex(std::atomic<std::uint32_t>* word, int operation, std::uint32_t value) {
  static const auto real = next<long(long, ...)>("syscall");
  return real(SYS_futex, word, operation, value, nullptr, nullptr, 0);
}
int real_pthread_create(pthread_t* id, const pthread_attr_t* attributes, void* (*start)(void*),
                        void* argument) {
  static const auto real =
      next<int(pthread_t*, const pthread_attr_t*, void* (*)(void*), void*)>("pthread_create");
  return real(id, attributes, start, argument);
}
int real_pthread_join(pthread_t id, void** result) {
  static const auto real = next<int(pthread_t, void**)>("pthread_join");
  return real(id, result);
}

}  // namespace axonn::cluster

using namespace axonn::cluster;

unsigned std::random_device::_M_getval() {
  if (Scheduler::of_this_thread()) return static_cast<unsigned>(simulation().random->bits());
  unsigned value = 0;
  static_cast<void>(!getentropy(&value, sizeof value));
  return value;
}

extern "C" {

int pthread_create(pthread_t* id, const pthread_attr_t* attributes, void* (*start)(void*),
                   void* argument) noexcept {
  if (Scheduler* const s = scheduler()) return s->create(id, attributes, start, argument);
  return real_pthread_create(id, attributes, start, argument);
}

int pthread_join(pthread_t id, void** result) {
  if (Scheduler* const s = scheduler()) return s->join(id, result);
  return real_pthread_join(id, result);
}

int pthread_mutex_trylock(pthread_mutex_t* mutex) noexcept {
  static const auto real = next<Lock>("pthread_mutex_trylock");
  const int fault = real(mutex);
  Scheduler* const s = scheduler();
  if (s && fault == 0) s->took_lock(1);
  return fault;
}

int pthread_mutex_lock(pthread_mutex_t* mutex) noexcept {
  static const auto real = next<Lock>("pthread_mutex_lock");
  Scheduler* const s = scheduler();
  if (!s) return real(mutex);
  s->point("a lock");
  lock_in(*s, mutex);
  return 0;
}

int pthread_mutex_unlock(pthread_mutex_t* mutex) noexcept {
  static const auto real = next<Lock>("pthread_mutex_unlock");
  return unlocked(mutex, real(mutex));
}

int pthread_rwlock_wrlock(pthread_rwlock_t* lock) noexcept {
  static const auto real = next<Wide>("pthread_rwlock_wrlock"),
                    attempt = next<Wide>("pthread_rwlock_trywrlock");
  return lock_wide(lock, real, attempt);
}

int pthread_rwlock_rdlock(pthread_rwlock_t* lock) noexcept {
  static const auto real = next<Wide>("pthread_rwlock_rdlock"),
                    attempt = next<Wide>("pthread_rwlock_tryrdlock");
  return lock_wide(lock, real, attempt);
}

int pthread_rwlock_unlock(pthread_rwlock_t* lock) noexcept {
  static const auto real = next<Wide>("pthread_rwlock_unlock");
  return unlocked(lock, real(lock));
}

int pthread_once(pthread_once_t* once, void (*start)()) {
  static const auto real = next<int(pthread_once_t*, void (*)())>("pthread_once");
  Scheduler* const s = scheduler();
  if (!s) return real(once, start);
  static std::set<pthread_once_t*> running;
  while (running.contains(once)) s->wait(once, "a call_once");
  struct Running {
    Running(Scheduler& in, pthread_once_t* of) : s(in), once(of) {
      running.insert(once);
      s.took_lock(1);
    }
    ~Running() {
      running.erase(once);
      s.took_lock(-1);
      s.wake(once, /*all=*/true);
    }
    Scheduler& s;
    pthread_once_t* once;
  } const guard(*s, once);
  return real(once, start);
}

// Guards of static variables are locks of their function. A static variable here would need one.
int __cxa_guard_acquire(long long* guard) {
  static int (*real)(long long*) = nullptr;
  if (!real) real = next<int(long long*)>("__cxa_guard_acquire");
  const int taken = real(guard);
  if (Scheduler* const s = scheduler(); s && taken) s->took_lock(1);
  return taken;
}
void __cxa_guard_release(long long* guard) {
  static void (*real)(long long*) = nullptr;
  if (!real) real = next<void(long long*)>("__cxa_guard_release");
  real(guard);
  if (Scheduler* const s = scheduler()) s->took_lock(-1);
}
void __cxa_guard_abort(long long* guard) {
  static void (*real)(long long*) = nullptr;
  if (!real) real = next<void(long long*)>("__cxa_guard_abort");
  real(guard);
  if (Scheduler* const s = scheduler()) s->took_lock(-1);
}

int pthread_cond_wait(pthread_cond_t* condition, pthread_mutex_t* mutex) {
  static const auto real = next<Wait>("pthread_cond_wait");
  if (Scheduler* const s = scheduler()) return wait_in(*s, condition, mutex, kNever);
  return real(condition, mutex);
}

int pthread_cond_clockwait(pthread_cond_t* condition, pthread_mutex_t* mutex, clockid_t clock,
                           const timespec* until) {
  static const auto real = next<int(pthread_cond_t*, pthread_mutex_t*, clockid_t, const timespec*)>(
      "pthread_cond_clockwait");
  if (Scheduler* const s = scheduler())
    return wait_in(*s, condition, mutex, in_ns(*until) - offset_of(clock));
  return real(condition, mutex, clock, until);
}

int pthread_cond_timedwait(pthread_cond_t* condition, pthread_mutex_t* mutex,
                           const timespec* until) {
  static const auto real =
      next<int(pthread_cond_t*, pthread_mutex_t*, const timespec*)>("pthread_cond_timedwait");
  if (Scheduler* const s = scheduler())
    return wait_in(*s, condition, mutex, in_ns(*until) - offset_of(CLOCK_REALTIME));
  return real(condition, mutex, until);
}

int pthread_cond_signal(pthread_cond_t* condition) noexcept {
  static const auto real = next<Signal>("pthread_cond_signal");
  Scheduler* const s = scheduler();
  if (!s) return real(condition);
  s->notify(condition, /*all=*/false);
  return 0;
}

int pthread_cond_broadcast(pthread_cond_t* condition) noexcept {
  static const auto real = next<Signal>("pthread_cond_broadcast");
  Scheduler* const s = scheduler();
  if (!s) return real(condition);
  s->notify(condition, /*all=*/true);
  return 0;
}

/// Of these only futexes are simulated: std::atomic's wait, and guards of static variables.
long syscall(long number, ...) noexcept {
  static const auto real = next<long(long, ...)>("syscall");
  long a[6];
  va_list arguments;
  va_start(arguments, number);
  for (long& one : a) one = va_arg(arguments, long);
  va_end(arguments);
  Scheduler* const s = scheduler();
  if (!s || number != SYS_futex) return real(number, a[0], a[1], a[2], a[3], a[4], a[5]);
  const int operation = static_cast<int>(a[1]) & FUTEX_CMD_MASK;
  const auto* const word = reinterpret_cast<std::atomic<int>*>(a[0]);
  if (operation == FUTEX_WAKE) {
    s->wake(word, /*all=*/true);
    return 1;
  }
  if (*word != static_cast<int>(a[2])) {
    errno = EAGAIN;
    return -1;
  }
  const auto* const time = reinterpret_cast<const timespec*>(a[3]);
  std::int64_t until = kNever;
  if (time) until = in_ns(*time) + (operation == FUTEX_WAIT ? s->now_ns() : 0);
  if (s->wait(word, Scheduler::kOnAtomic, until)) return 0;
  errno = ETIMEDOUT;
  return -1;
}

int clock_gettime(clockid_t clock, timespec* time) noexcept {
  static const auto real = next<int(clockid_t, timespec*)>("clock_gettime");
  Scheduler* const s = scheduler();
  if (!s || !is_virtual(clock)) return real(clock, time);
  *time = in_timespec(s->now_ns() + offset_of(clock));
  return 0;
}

int gettimeofday(timeval* time, void* zone) noexcept {
  static const auto real = next<int(timeval*, void*)>("gettimeofday");
  Scheduler* const s = scheduler();
  if (!s) return real(time, zone);
  const timespec now = in_timespec(s->now_ns() + offset_of(CLOCK_REALTIME));
  *time = {.tv_sec = now.tv_sec, .tv_usec = now.tv_nsec / 1'000};
  return 0;
}

time_t time(time_t* out) noexcept {
  timespec now;
  clock_gettime(CLOCK_REALTIME, &now);
  if (out) *out = now.tv_sec;
  return now.tv_sec;
}

int nanosleep(const timespec* time, timespec* rest) {
  static const auto real = next<int(const timespec*, timespec*)>("nanosleep");
  Scheduler* const s = scheduler();
  if (!s) return real(time, rest);
  sleep_in(*s, in_ns(*time));
  return 0;
}

int clock_nanosleep(clockid_t clock, int flags, const timespec* time, timespec* rest) {
  static const auto real = next<int(clockid_t, int, const timespec*, timespec*)>("clock_nanosleep");
  Scheduler* const s = scheduler();
  if (!s) return real(clock, flags, time, rest);
  const bool absolute = (flags & TIMER_ABSTIME) != 0;
  sleep_in(*s, in_ns(*time) - (absolute ? s->now_ns() + offset_of(clock) : 0));
  return 0;
}

int sched_yield() noexcept {
  static const auto real = next<int()>("sched_yield");
  Scheduler* const s = scheduler();
  if (!s) return real();
  s->point("a yield");
  return 0;
}

}  // extern "C"
