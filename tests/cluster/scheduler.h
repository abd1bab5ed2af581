#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <functional>
#include <limits>
#include <memory>
#include <vector>

#include <pthread.h>

#include "tests/cluster/draws.h"

namespace axonn::cluster {

inline constexpr std::int64_t kNever = std::numeric_limits<std::int64_t>::max();

/// A moment at which another thread may go on.
struct Moment {
  std::int64_t nanoseconds = 0;  // virtual
  int thread = 0, rank = -1;
  std::array<char, 104> what{};
};

/// What a job tells while it runs, in memory that it shares with the process that started it: its
/// end may come at any moment.
struct Account {
  static constexpr int kMoments = 64, kNotes = 400;
  std::int64_t points = 0, file_calls = 0, messages = 0, switches = 0;
  int altered_from = -1;         // the rank whose message was cut, torn or lost
  std::int64_t nanoseconds = 0;  // virtual, since the start
  std::uint64_t schedule = 0;    // a hash of who went on at each point
  std::int64_t moments = 0;
  std::array<Moment, kMoments> last{};  // a ring
  int notes = 0;
  std::array<std::array<char, 200>, kNotes> note{};  // what the simulation did

  [[gnu::format(printf, 2, 3)]] void add_note(const char* format, ...);
};

struct ScheduleOptions {
  std::uint64_t seed = 0;
  double switches = 0.2;    ///< share of the points at which another thread may go on
  bool priorities = false;  ///< the thread of the highest priority goes on, drawn for each thread
  std::int64_t step_ns = 1'000;  ///< virtual time that passes from point to point
  double lost_wakes = 0;         ///< a planted fault: share of the notifications that do nothing
};

/// Runs the threads of this process one at a time, in an order that a seed fixes, in virtual time.
///
/// The time stands still but for `step_ns` at each point, until all threads wait; then it jumps to
/// the earliest deadline. If none has one, the process ends with kDeadlock, and the account says
/// what each thread waits for; or with kFrozen if only ranks are left that are held back for ever,
/// or if others wait for what only threads share. It ends with kEndless after kMostSeconds. A
/// thread is of the rank of the thread that started it; those that the first thread starts are of
/// the ranks 0, 1, ...
class Scheduler {
 public:
  static constexpr int kDeadlock = 90, kFrozen = 91, kEndless = 92;
  static constexpr double kMostSeconds = 1'000;  // virtual
  static constexpr const char* kOnAtomic = "an atomic";

  Scheduler(const ScheduleOptions& options, Account& account);

  /// The scheduler of the calling thread; null if there is none.
  static Scheduler* of_this_thread();
  /// Makes the calling thread the first one.
  void adopt();

  /// Called at each point on the thread that runs; may call hold_back() and end the process.
  std::function<void()> at_point;

  /// Another thread may go on here.
  void point(const char* what);
  /// Waits until wake(object), or until the deadline: then false.
  bool wait(const void* object, const char* what, std::int64_t deadline = kNever);
  void wake(const void* object, bool all);
  /// A notification of a condition, which a planted fault may lose.
  void notify(const void* condition, bool all);

  std::int64_t now_ns() { return account_.nanoseconds += kReading; }
  /// Of this rank no thread goes on before then. With kNever those that hold a lock still do, as
  /// only threads of one process share locks.
  void hold_back(int rank, std::int64_t until);
  int rank() const;
  void took_lock(int count);

  int create(pthread_t* id, const pthread_attr_t* attributes, void* (*start)(void*),
             void* argument);
  int join(pthread_t id, void** result);

 private:
  static constexpr std::int64_t kReading = 50;  // nanoseconds; so a loop on a clock ends
  static constexpr int kMostRanks = 64;

  enum class State { ready, waiting, finished };
  struct Thread {
    Scheduler* scheduler = nullptr;
    int number = 0, rank = -1, locks = 0, rounds = 0;
    std::int64_t priority = 0;
    pthread_t id{};
    State state = State::ready;
    const void* object = nullptr;
    std::array<char, 104> what{};
    std::int64_t deadline = kNever;
    bool woken = false;
    std::atomic<std::uint32_t> may_run = 0;
    void* (*start)(void*) = nullptr;
    void* argument = nullptr;
  };

  static Thread*& self();
  static void* run(void* thread);
  static void ended(void* thread);
  bool held_back(const Thread& thread) const;
  std::int64_t ready_at(const Thread& thread) const;
  Thread& choose();
  void give_way(bool ends);
  void record(const char* what);
  [[noreturn]] void end(int code, const char* why);
  [[noreturn]] void report_deadlock();

  ScheduleOptions options_;
  Account& account_;
  Draws draws_;
  pthread_key_t end_key_{};
  std::vector<std::unique_ptr<Thread>> threads_;
  int started_by_first_ = 0;
  std::array<std::int64_t, kMostRanks> held_until_{};
};

/// The functions of the C library in whose place interposed.cpp's stand.
long real_futex(std::atomic<std::uint32_t>* word, int operation, std::uint32_t value);
int real_pthread_create(pthread_t* id, const pthread_attr_t* attributes, void* (*start)(void*),
                        void* argument);
int real_pthread_join(pthread_t id, void** result);

}  // namespace axonn::cluster
