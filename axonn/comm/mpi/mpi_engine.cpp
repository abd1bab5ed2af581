#include "axonn/comm/mpi/mpi_engine.h"

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <ctime>

#include <pthread.h>
#include <sched.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "axonn/base/clock.h"
#include "axonn/base/random.h"

namespace axonn {

namespace {

/// Range of the sleep between polls: from the duration of a short message up to one that costs the
/// compute threads little. (Eight ranks on two cores: 1 ms costs 8 % of the cores, 50 us 34 %.)
constexpr double kShortestSleep = 20e-6, kLongestSleep = 1e-3;
/// Sleep while nothing is in flight; limits how late another rank's probe is answered.
constexpr double kIdleSleep = 20e-3;
/// Wait time after which the group is first probed: a rank may have returned without this
/// collective.
constexpr double kFirstProbeSeconds = 5;
/// How long a failed rank listens for other ranks that failed at the same time, while these unwind.
constexpr double kGraceSeconds = 0.5;
/// How long a rank waits to be killed before it ends the job itself.
constexpr double kPatienceSeconds = 10;

/// A collective of more than kLarge bytes is large. Up to kLargeAtOnce large ones of a group are in
/// flight: one keeps the link busy while another sums or waits for its last messages.
constexpr std::int64_t kLarge = 64 << 10;
constexpr int kLargeAtOnce = 2;

bool is_large(const Call& call) { return call.bytes() > kLarge; }

/// Linux's struct sched_attr in its first version. The C library lacks it and its system calls.
struct SchedulerAttributes {
  std::uint32_t size, policy;
  std::uint64_t flags;
  std::int32_t nice;
  std::uint32_t priority;
  std::uint64_t runtime, deadline, period;  // ns
};

/// Makes the scheduler wake this thread without delay although compute threads keep all cores busy.
/// Since 6.12, Linux lets a thread request shorter time slices without privileges. Before 6.6, it
/// wakes sleepers at once anyway. Between these versions, or if this fails, a poll may be some
/// milliseconds late.
void ask_for_short_turns() {
  constexpr std::uint64_t kTurn = 100'000;  // ns
  SchedulerAttributes attributes{};
  if (syscall(SYS_sched_getattr, 0, &attributes, sizeof attributes, 0) != 0) return;
  if (attributes.policy != SCHED_OTHER) return;
  attributes.runtime = kTurn;
  syscall(SYS_sched_setattr, 0, &attributes, 0);
}

}  // namespace

void MpiTask::wait() { engine.wait(*this); }

bool MpiTask::done() { return engine.done(*this); }

MpiEngine::MpiEngine(const MpiOptions& options)
    : options_(options),
      flag_(std::make_shared<AbortFlag>([this] { for_progress_.notify_all(); })),
      admission_(kSlots, kLargeAtOnce) {
  thread_ = std::thread([this] { run(); });
  Lock lock(mutex_);
  for_callers_.wait(lock, [&] { return initialised_; });
}

MpiEngine::~MpiEngine() {
  {
    const Lock lock(mutex_);
    stopping_ = true;
  }
  for_progress_.notify_all();
  thread_.join();
}

std::shared_ptr<MpiTask> MpiEngine::start(std::shared_ptr<const MpiGroup> group, Call call,
                                          std::int64_t sequence) {
  flag_->check();
  auto task = std::make_shared<MpiTask>(*this);
  task->channel = {group->id, channel_of(group->rank, call)};
  task->group = std::move(group);
  task->call = std::move(call);
  task->sequence = sequence;
  {
    const Lock lock(mutex_);
    requests_.push_back(task);
  }
  for_progress_.notify_one();
  return task;
}

void MpiEngine::wait(MpiTask& task) {
  const double begin = now_seconds(), timeout = options_.timeout_seconds;
  double probe_after = std::min(kFirstProbeSeconds, timeout);
  Lock lock(mutex_);
  while (!task.finished) {
    if (quiet_) flag_->check();
    const double left = begin + probe_after - now_seconds();
    if (*flag_) {
      for_callers_.wait(lock, [&] { return quiet_ || task.finished; });
    } else if (left > 0) {
      for_callers_.wait_for(lock, duration_of(left));
    } else {
      watch(lock, task, probe_after);
      probe_after = std::min(2 * probe_after, timeout);
    }
  }
}

bool MpiEngine::done(const MpiTask& task) {
  const Lock lock(mutex_);
  return task.finished || quiet_;
}

double MpiEngine::processor_seconds() {
  clockid_t clock{};
  timespec time{};
  if (pthread_getcpuclockid(thread_.native_handle(), &clock) != 0) return 0;
  if (clock_gettime(clock, &time) != 0) return 0;
  return static_cast<double>(time.tv_sec) + 1e-9 * static_cast<double>(time.tv_nsec);
}

void MpiEngine::watch(Lock& lock, const MpiTask& task, double waited_seconds) {
  using Standing = PeerReport::Standing;
  auto probe = std::make_shared<MpiProbe>();
  probe->channel = task.channel;
  probe->sequence = task.sequence;
  for (const int member : task.channel.of.parties_of(task.group->members))
    probe->peers.push_back({member, {}, {}});
  probes_.push_back(probe);
  for_progress_.notify_one();
  for_callers_.wait(lock, [&] { return probe->done || task.finished || quiet_; });
  if (!probe->done || task.finished) return;
  const bool returned = std::ranges::any_of(
      probe->peers, [](const PeerReport& p) { return p.standing == Standing::returned; });
  if (waited_seconds < options_.timeout_seconds && !returned) return;
  const std::string report = hang_report(
      concat("rank ", rank_, ": ", describe(task.call, task.sequence, task.group->name)),
      waited_seconds, probe->peers);
  lock.unlock();
  abort(report, 1);
  lock.lock();
}

void MpiEngine::note_returned() {
  {
    const Lock lock(mutex_);
    returned_ = true;
  }
  for_progress_.notify_one();
}

void MpiEngine::abort(const std::string& reason, int code) noexcept {
  {
    const Lock lock(mutex_);
    if (!*flag_) exit_code_ = code;
  }
  flag_->set(reason);
}

void MpiEngine::await_end() {
  for (;;) std::this_thread::sleep_for(std::chrono::seconds(1));
}

void MpiEngine::run() {
  ask_for_short_turns();
  try {
    initialise();
    pthread_setname_np(pthread_self(), "axonn-progress");
    loop();
  } catch (const std::exception& error) {
    flag_->set(concat("rank ", rank_, ": ", error.what()));
  }
  if (!control_) {  // MPI failed to initialise
    report_end();
    MPI_Abort(MPI_COMM_WORLD, 1);
  }
  if (*flag_) end_world();
  control_->close();
  active_.clear();
  check_mpi(MPI_Comm_free(&control_comm_), "MPI_Comm_free");
  check_mpi(MPI_Comm_free(&context_.comm), "MPI_Comm_free");
  check_mpi(MPI_Finalize(), "MPI_Finalize");
}

void MpiEngine::initialise() {
  prepare_mpi();
  int provided = 0;
  check_mpi(MPI_Init_thread(nullptr, nullptr, MPI_THREAD_FUNNELED, &provided), "MPI_Init_thread");
  check_mpi(MPI_Comm_dup(MPI_COMM_WORLD, &context_.comm), "MPI_Comm_dup");
  check_mpi(MPI_Comm_dup(MPI_COMM_WORLD, &control_comm_), "MPI_Comm_dup");
  for (MPI_Comm comm : {context_.comm, control_comm_})
    check_mpi(MPI_Comm_set_errhandler(comm, MPI_ERRORS_RETURN), "MPI_Comm_set_errhandler");
  check_mpi(MPI_Comm_rank(MPI_COMM_WORLD, &rank_), "MPI_Comm_rank");
  check_mpi(MPI_Comm_size(MPI_COMM_WORLD, &size_), "MPI_Comm_size");
  int* tags = nullptr;
  int found = 0;
  check_mpi(MPI_Comm_get_attr(MPI_COMM_WORLD, MPI_TAG_UB, &tags, &found), "MPI_Comm_get_attr");
  max_groups_ = found ? *tags / kTagsPerGroup : 0;
  control_.emplace(
      control_comm_,
      [this](int rank, const std::string& reason) {
        const bool lower = lowest_that_failed_ < 0 || rank < lowest_that_failed_;
        if (lower) lowest_that_failed_ = rank;
        flag_->set(reason);
      },
      [this](MpiProbe& probe) {
        const Lock lock(mutex_);
        probe.done = true;
        for_callers_.notify_all();
      });
  const Lock lock(mutex_);
  initialised_ = true;
  for_callers_.notify_all();
}

void MpiEngine::loop() {
  // The sleep is halved after progress and doubled without, so it approaches the time between two
  // messages. After an idle time it begins with the shortest, because the first collective may be
  // small.
  double sleep = kIdleSleep;
  while (take_requests(sleep) && !*flag_) {
    const bool moved = advance_tasks();
    const bool heard = control_->poll();
    if (active_.empty() && !control_->busy())
      sleep = kIdleSleep;
    else if (sleep == kIdleSleep)
      sleep = kShortestSleep;
    else
      sleep = std::clamp(moved || heard ? sleep / 2 : 2 * sleep, kShortestSleep, kLongestSleep);
  }
}

// Waits up to this long for requests. Returns false when there will be no more.
bool MpiEngine::take_requests(double sleep_seconds) {
  std::vector<std::shared_ptr<MpiTask>> requests;
  std::vector<std::shared_ptr<MpiProbe>> probes;
  {
    Lock lock(mutex_);
    for_progress_.wait_for(lock, duration_of(sleep_seconds), [&] {
      return stopping_ || !requests_.empty() || !probes_.empty() || *flag_;
    });
    requests.swap(requests_);
    probes.swap(probes_);
    if (returned_) control_->note_returned();
    if (stopping_ && requests.empty() && waiting_.empty() && active_.empty()) return false;
  }
  for (const auto& task : requests) {
    control_->note(task->channel,
                   {task->call.operation, task->call.label, task->group->name, task->sequence});
    waiting_.push_back(task);
  }
  begin_waiting();
  for (const auto& probe : probes) control_->ask(probe);
  return true;
}

void MpiEngine::begin_waiting() {
  if (waiting_.empty()) return;
  admission_.begin_pass();
  std::erase_if(waiting_, [&](const std::shared_ptr<MpiTask>& task) {
    if (!task->call.is_pair() &&  // send and recv need no admission
        !admission_.may_begin(task->group->id, task->sequence, is_large(task->call)))
      return false;
    begin(task);
    return true;
  });
}

void MpiEngine::begin(const std::shared_ptr<MpiTask>& task) {
  delay();
  task->algorithm = MpiAlgorithm::create(context_, *task->group, task->call, task->sequence);
  task->algorithm->begin();
  active_.push_back(task);
}

bool MpiEngine::advance_tasks() {
  const std::int64_t before = context_.completions;
  std::vector<std::shared_ptr<MpiTask>> finished;
  std::erase_if(active_, [&](const std::shared_ptr<MpiTask>& task) {
    if (!task->algorithm->advance()) return false;
    task->algorithm.reset();
    finished.push_back(task);
    return true;
  });
  for (const auto& task : finished) {
    if (task->call.is_pair()) continue;
    admission_.ended(task->group->id, task->sequence, is_large(task->call));
  }
  if (!finished.empty()) {
    begin_waiting();
    delay();
    const Lock lock(mutex_);
    for (const auto& task : finished) task->finished = true;
    for_callers_.notify_all();
  }
  return !finished.empty() || context_.completions != before;
}

void MpiEngine::delay() {
  if (options_.max_delay_us <= 0) return;
  const Random random(rank_, "delay");  // each rank has its own delays
  const std::uint64_t us = random.below(delays_++, options_.max_delay_us + 1);
  std::this_thread::sleep_for(std::chrono::microseconds(us));
}

void MpiEngine::end_world() {
  bool speaks = lowest_that_failed_ < 0;
  if (speaks) {
    control_->tell_end(flag_->reason());
    for (const double begin = now_seconds(); now_seconds() < begin + kGraceSeconds;) {
      control_->poll();
      std::this_thread::sleep_for(duration_of(kLongestSleep));
    }
    speaks = lowest_that_failed_ < 0 || rank_ < lowest_that_failed_;
  }
  release_waiters();
  if (!speaks) {
    std::this_thread::sleep_for(duration_of(kPatienceSeconds));
  } else {
    report_end();
  }
  MPI_Abort(MPI_COMM_WORLD, exit_code_);
}

void MpiEngine::report_end() const {
  if (options_.report)
    options_.report(flag_->reason());
  else
    std::fprintf(stderr, "error: %s\n", flag_->reason().c_str());
}

void MpiEngine::release_waiters() {
  const Lock lock(mutex_);
  quiet_ = true;
  for_callers_.notify_all();
}

}  // namespace axonn
