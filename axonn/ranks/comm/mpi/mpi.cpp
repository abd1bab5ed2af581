#include "axonn/ranks/comm/mpi/mpi.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdio>
#include <ctime>
#include <list>
#include <map>
#include <mutex>
#include <numeric>
#include <optional>
#include <thread>
#include <vector>

#include <pthread.h>

#include "axonn/foundation/base/clock.h"
#include "axonn/foundation/base/host.h"
#include "axonn/foundation/base/random.h"
#include "axonn/ranks/comm/mpi/flow_control.h"
#include "axonn/ranks/comm/mpi/mpi_algorithms.h"
#include "axonn/ranks/comm/mpi/mpi_control.h"
#include "axonn/ranks/comm/self.h"
#include "axonn/ranks/comm/timeout.h"

namespace axonn {

namespace {

/// Range of the sleep between polls: from the duration of a short message up to one that costs the
/// compute threads little. (Eight ranks on two cores: 1 ms costs 8 % of the cores, 50 us 34 %.)
constexpr double kShortestSleep = 20e-6, kLongestSleep = 1e-3;
/// Sleep while nothing is in flight; limits how late another rank's probe is answered.
constexpr double kIdleSleep = 20e-3;
/// How long a failed rank listens for other ranks that failed at the same time, while these unwind.
constexpr double kGraceSeconds = 0.5;
/// How long rank 0 may take to leave its body after the end of the world, but no longer than the
/// timeout: when it unwinds, it publishes a checkpoint that is on disk, and on a slow file system
/// with thousands of ranks' files that takes some tens of seconds.
constexpr double kLeaveSeconds = 60;
/// Time between reports to rank 0 of progress that was noted, at most a twentieth of the timeout.
constexpr double kShareSeconds = 1;
/// How long a rank waits to be killed before it ends the job itself.
constexpr double kPatienceSeconds = 10;

/// A collective of more than kLarge bytes is large. Up to kLargeAtOnce large ones of a group are in
/// flight: one keeps the link busy while another sums or waits for its last messages.
constexpr std::int64_t kLarge = 64 << 10;
constexpr int kLargeAtOnce = 2;

/// Values of MpiGroup::id.
constexpr int kWorldId = 0, kEndId = 1, kFirstFreeId = 2;

bool is_large(const Call& call) { return call.bytes() > kLarge; }

/// This process's progress thread, which makes all MPI calls, and its queue.
///
/// The end of a world: abort(), or a failed collective, sets the flag. The progress thread then
/// tells all other ranks, listens for a moment whether other ranks failed too, stops using buffers,
/// releases the waiting thread of this rank (Aborted), reports the reason if this is the lowest
/// rank that failed, and calls MPI_Abort. A rank that is told of the end releases its waiting
/// thread and waits to be killed.
class MpiEngine {
 public:
  /// One collective of this rank, from its start to its end.
  struct Task final : Work::State {
    explicit Task(MpiEngine& of) : engine(of) {}
    void wait() override { engine.wait(*this); }
    bool done() override {
      const Lock lock(engine.mutex_);
      return finished || engine.quiet_;
    }

    CallId id() const { return {call.operation, call.label, group->name, sequence}; }

    MpiEngine& engine;
    std::shared_ptr<const MpiGroup> group;
    Call call;
    MpiChannel channel;
    std::int64_t sequence = 0;
    std::unique_ptr<MpiAlgorithm> algorithm;  // used by the progress thread only
    bool finished = false;                    // guarded by the engine's mutex
  };

  /// Initialises MPI.
  explicit MpiEngine(const MpiOptions& options)
      : options_(options),
        flag_(std::make_shared<AbortFlag>([this] { for_progress_.notify_all(); })),
        flow_control_(kSlots, kLargeAtOnce) {
    thread_ = std::thread([this] { run(); });
    Lock lock(mutex_);
    for_callers_.wait(lock, [&] { return initialised_; });
  }
  /// Finalises MPI. The bodies of all ranks must have returned.
  ~MpiEngine() {
    {
      const Lock lock(mutex_);
      stopping_ = true;
    }
    for_progress_.notify_all();
    thread_.join();
  }
  MpiEngine(const MpiEngine&) = delete;
  MpiEngine& operator=(const MpiEngine&) = delete;

  int rank() const { return rank_; }
  int size() const { return size_; }
  /// The group of these ranks of the world.
  MpiGroup group_of(int id, int rank, std::vector<int> members, std::string name) const {
    std::vector<std::uint64_t> hosts;
    for (const int member : members) hosts.push_back(hosts_[member]);
    return {id, rank, std::move(members), std::move(name), Hosts(hosts)};
  }
  const std::shared_ptr<AbortFlag>& flag() const { return flag_; }
  /// Maximum number of groups, limited by MPI's message tags.
  int max_groups() const { return max_groups_; }

  /// The smallest id that this process may give to its next group.
  int next_group = kFirstFreeId;

  /// Starts this rank's next call on a group.
  std::shared_ptr<Task> start(std::shared_ptr<const MpiGroup> group, Call call) {
    flag_->check();
    ++progress_;
    delay(progress_, "delay of calls");
    auto task = std::make_shared<Task>(*this);
    task->channel = {group->id, channel_of(group->rank, call)};
    task->group = std::move(group);
    task->call = std::move(call);
    {
      const Lock lock(mutex_);
      task->sequence = started_[task->channel]++;
      // Its body has returned. Set before the call is queued, another rank would find that this
      // one has returned and never comes.
      returned_ = task->group->id == kEndId;
      if (!returned_) last_ = task->id();
      requests_.push_back(task);
    }
    for_progress_.notify_one();
    return task;
  }

  void note_progress() noexcept {
    ++progress_;
    ++noted_;
  }

  std::int64_t noted_progress() noexcept {
    asks_noted_ = true;
    return noted_by_all_;
  }

  /// CPU time of the progress thread.
  double processor_seconds() {
    clockid_t clock{};
    timespec time{};
    if (pthread_getcpuclockid(thread_.native_handle(), &clock) != 0) return 0;
    if (clock_gettime(clock, &time) != 0) return 0;
    return static_cast<double>(time.tv_sec) + 1e-9 * static_cast<double>(time.tv_nsec);
  }

  /// Ends the world. The job's exit code will be `code`.
  void abort(const std::string& reason, int code) noexcept {
    {
      const Lock lock(mutex_);
      if (!*flag_) exit_code_ = code;
    }
    flag_->set(reason);
  }

  /// Waits for the end of the job, after abort() or Aborted. The body has unwound.
  [[noreturn]] void await_end() {
    left_ = true;
    for (;;) std::this_thread::sleep_for(std::chrono::seconds(1));
  }

 private:
  using Lock = std::unique_lock<std::mutex>;

  /// Throws Aborted if the world ends.
  void wait(Task& task) {
    Timeout timeout(options_.timeout_seconds);
    Lock lock(mutex_);
    if (task.finished) return;  // perhaps on a thread beside that of the rank
    const struct Waiting {
      Waiting(Task*& at, Task& of) : waits_in(at) { waits_in = &of; }
      ~Waiting() { waits_in = nullptr; }
      Task*& waits_in;
    } waiting(waits_in_, task);
    while (!task.finished) {
      if (quiet_) flag_->check();
      if (*flag_) {
        for_callers_.wait(lock, [&] { return quiet_ || task.finished; });
        continue;
      }
      for_callers_.wait_for(lock, duration_of(timeout.slice()));
      if (!task.finished && !*flag_ && timeout.look_due()) look(lock, task, timeout);
    }
  }

  /// Finds the rank that holds a task up. Aborts the world if that rank has returned or the wait is
  /// over; does not throw.
  void look(Lock& lock, const Task& task, Timeout& timeout) {
    auto probe = std::make_shared<MpiProbe>();
    probe->call = {task.channel, task.sequence};
    // The ranks near the culprit have ended the world by now, if they could.
    if (timeout.waited() > 2 * options_.timeout_seconds)
      probe->most_waits = static_cast<std::size_t>(size_);
    probe_ = probe;
    for_progress_.notify_one();
    for_callers_.wait(lock, [&] { return probe->done || task.finished || quiet_; });
    if (!probe->done || task.finished || probe->waits.empty()) return;
    const bool over = timeout.over(probe->waits.back().awaited, probe->culprit.progress);
    if (!over && probe->culprit.state != Culprit::State::returned) return;
    if (probe->cut) return;
    const std::string report = hang_report(probe->waits, probe->culprit, options_.timeout_seconds);
    lock.unlock();
    abort(report, 1);
    lock.lock();
  }

  /// This rank's state, for another one that waits for it in a call. On the progress thread.
  MpiRankState state_in(const MpiCall& call) {
    const auto is_it = [&](const std::shared_ptr<Task>& task) {
      return task->channel == call.channel && task->sequence == call.sequence;
    };
    const Task* task = nullptr;
    for (const auto* tasks : {&active_, &waiting_})
      if (const auto at = std::ranges::find_if(*tasks, is_it); at != tasks->end()) task = at->get();
    const Lock lock(mutex_);
    const auto started = started_.find(call.channel);
    const bool has_started = started != started_.end() && started->second > call.sequence;
    if (!has_started) task = returned_ ? nullptr : waits_in_;
    // Until a task may begin, it waits for an earlier one of its channel.
    if (task && !task->algorithm) {
      const auto earlier = std::ranges::find_if(
          active_, [&](const auto& other) { return other->channel == task->channel; });
      task = earlier == active_.end() ? nullptr : earlier->get();
    }
    MpiRankState state{.returned = returned_ && !has_started,
                       .progress = progress_ + context_.completions,
                       .id = last_};
    if (task) state.awaited = task->algorithm->awaited();
    if (state.awaited < 0) return state;
    state.in = {task->channel, task->sequence};
    state.id = task->id();
    return state;
  }

  void run() {
    take_short_turns();
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

  void initialise() {
    prepare_mpi();
    context_.on_arrival = options_.on_arrival;
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
    find_hosts();
    control_.emplace(
        control_comm_,
        MpiControl::Handlers{.heard =
                                 [this](int rank, const std::string& reason) {
                                   const bool lower =
                                       lowest_that_failed_ < 0 || rank < lowest_that_failed_;
                                   if (lower) lowest_that_failed_ = rank;
                                   flag_->set(reason);
                                 },
                             .left = [this] { rank_0_left_ = true; },
                             .found =
                                 [this](MpiProbe& probe) {
                                   const Lock lock(mutex_);
                                   probe.done = true;
                                   for_callers_.notify_all();
                                 },
                             .state = [this](const MpiCall& call) { return state_in(call); }});
    const Lock lock(mutex_);
    initialised_ = true;
    for_callers_.notify_all();
  }

  /// Tells every rank where the others run.
  void find_hosts() {
    const std::uint64_t mine = hash_text(options_.host_of ? options_.host_of(rank_) : host_name());
    hosts_.resize(size_);
    check_mpi(MPI_Allgather(&mine, 1, MPI_UINT64_T, hosts_.data(), 1, MPI_UINT64_T, context_.comm),
              "MPI_Allgather");
  }

  void loop() {
    // The sleep is halved after progress and doubled without, so it approaches the time between two
    // messages. It begins with the shortest after an idle time, because the first collective may be
    // small, and with each round of a collective, because all ranks begin it at about the same
    // time.
    double sleep = kIdleSleep;
    std::int64_t rounds = 0;
    while (take_requests(sleep) && !*flag_) {
      const bool moved = advance_tasks();
      const bool heard = control_->poll();
      share_noted();
      if (active_.empty() && !control_->busy())
        sleep = kIdleSleep;
      else if (sleep == kIdleSleep || rounds != context_.rounds)
        sleep = kShortestSleep;
      else
        sleep = std::clamp(moved || heard ? sleep / 2 : 2 * sleep, kShortestSleep, kLongestSleep);
      rounds = context_.rounds;
    }
  }

  /// Waits up to this long for requests. Returns false when there will be no more.
  bool take_requests(double sleep_seconds) {
    std::vector<std::shared_ptr<Task>> requests;
    std::shared_ptr<MpiProbe> probe;
    {
      Lock lock(mutex_);
      for_progress_.wait_for(lock, duration_of(sleep_seconds),
                             [&] { return stopping_ || !requests_.empty() || probe_ || *flag_; });
      requests.swap(requests_);
      probe.swap(probe_);
      if (stopping_ && requests.empty() && waiting_.empty() && active_.empty()) return false;
    }
    waiting_.insert(waiting_.end(), requests.begin(), requests.end());
    begin_waiting();
    if (probe) control_->ask(std::move(probe));
    return true;
  }

  void begin_waiting() {
    if (waiting_.empty()) return;
    flow_control_.begin_pass();
    std::erase_if(waiting_, [&](const std::shared_ptr<Task>& task) {
      if (!may_begin(*task)) return false;
      delay();
      task->algorithm = MpiAlgorithm::create(context_, *task->group, task->call, task->sequence);
      task->algorithm->begin();
      active_.push_back(task);
      return true;
    });
  }

  bool may_begin(const Task& task) {
    if (!task.call.is_pair())
      return flow_control_.may_begin(task.group->id, task.sequence, is_large(task.call));
    // One send at a time to a rank of a group; a receive may always begin.
    return task.call.operation == Operation::recv ||
           std::ranges::none_of(active_,
                                [&](const auto& other) { return other->channel == task.channel; });
  }

  bool advance_tasks() {
    const std::int64_t before = context_.completions;
    std::vector<std::shared_ptr<Task>> finished;
    std::erase_if(active_, [&](const std::shared_ptr<Task>& task) {
      if (!task->algorithm->advance()) return false;
      task->algorithm.reset();
      finished.push_back(task);
      return true;
    });
    for (const auto& task : finished) {
      if (task->call.is_pair()) continue;
      flow_control_.ended(task->group->id, task->sequence, is_large(task->call));
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

  void delay() { delay(delays_++, "delay"); }
  void delay(std::int64_t index, const char* stream) const {
    if (options_.max_delay_us <= 0) return;
    const Random random(rank_, stream);  // each rank has its own delays
    const std::uint64_t us = random.below(index, options_.max_delay_us + 1);
    std::this_thread::sleep_for(std::chrono::microseconds(us));
  }

  void end_world() {
    bool speaks = lowest_that_failed_ < 0;
    if (speaks) control_->tell_end(flag_->reason());
    for (Messages* messages : context_.posted) messages->cancel_receives();
    // Callers free their buffers when they are released. So messages that are on their way arrive
    // first; of those that no rank receives any more, MPI does not read the buffers.
    for (const double begin = now_seconds(); now_seconds() < begin + kGraceSeconds;) {
      control_->poll();
      const auto let_go = [](Messages* messages) { return messages->let_go(); };
      if (!speaks && std::ranges::all_of(context_.posted, let_go)) break;
      std::this_thread::sleep_for(duration_of(kLongestSleep));
    }
    if (speaks) speaks = lowest_that_failed_ < 0 || rank_ < lowest_that_failed_;
    {
      const Lock lock(mutex_);
      quiet_ = true;
      for_callers_.notify_all();
    }
    if (speaks) report_end();
    await_rank_0(speaks);
    MPI_Abort(MPI_COMM_WORLD, exit_code_);
  }

  /// Waits until rank 0 has left its body, as far as it does so in time. A rank that does not speak
  /// waits longer, to be killed by the one that does.
  void await_rank_0(bool speaks) {
    const double limit =
        std::min(kLeaveSeconds, options_.timeout_seconds) + (speaks ? 0 : kPatienceSeconds);
    int told = -1;
    for (const double begin = now_seconds(); now_seconds() < begin + limit;) {
      if (rank_ == 0 && left_) {
        if (speaks) return;
        if (told != lowest_that_failed_) control_->tell_left(told = lowest_that_failed_);
      }
      if (speaks && rank_0_left_) return;
      control_->poll();
      std::this_thread::sleep_for(duration_of(kLongestSleep));
    }
  }

  /// Shares what ranks have noted, for noted_progress().
  void share_noted() {
    const double now = now_seconds();
    if (now < share_at_) return;
    share_at_ = now + std::min(kShareSeconds, options_.timeout_seconds / 20);
    noted_by_all_ = control_->share_noted(noted_, asks_noted_.exchange(false));
  }

  void report_end() const {
    if (options_.report)
      options_.report(flag_->reason());
    else
      std::fprintf(stderr, "error: %s\n", flag_->reason().c_str());
  }

  const MpiOptions options_;
  int rank_ = 0, size_ = 1, max_groups_ = 0;
  std::vector<std::uint64_t> hosts_;  // hashes of their names, by rank of the world
  std::shared_ptr<AbortFlag> flag_;
  std::atomic<std::int64_t> progress_ = 0, noted_ = 0, noted_by_all_ = 0;
  std::atomic<bool> asks_noted_ = false, left_ = false;

  std::mutex mutex_;
  std::condition_variable for_progress_, for_callers_;
  bool initialised_ = false, stopping_ = false, quiet_ = false, returned_ = false;
  int exit_code_ = 1;
  std::vector<std::shared_ptr<Task>> requests_;
  std::map<MpiChannel, std::int64_t> started_;  // number of calls
  CallId last_;
  Task* waits_in_ = nullptr;  // the task that the callers' thread waits for
  std::shared_ptr<MpiProbe> probe_;

  // Used by the progress thread only.
  MpiContext context_;
  MPI_Comm control_comm_ = MPI_COMM_NULL;
  std::optional<MpiControl> control_;
  std::list<std::shared_ptr<Task>> waiting_, active_;  // waiting_ in call order
  FlowControl flow_control_;
  std::uint64_t delays_ = 0;
  int lowest_that_failed_ = -1;  // among the other ranks; -1: none
  bool rank_0_left_ = false;     // after the end of the world
  double share_at_ = 0;          // now_seconds() of the next share_noted()

  std::thread thread_;
};

class MpiCommunicator final : public Communicator {
 public:
  MpiCommunicator(MpiEngine& engine, MpiGroup group)
      : Communicator(group.name, group.rank, group.size()),
        engine_(engine),
        group_(std::make_shared<MpiGroup>(std::move(group))) {}

  std::unique_ptr<Communicator> split_off(int color, std::string name) override {
    Part part = agree_on_part(color, name, engine_.next_group);
    for (int& member : part.members) member = group_->members[member];
    const int id = part.largest_number;
    engine_.next_group = id + 1;  // above every id that any of these ranks has used
    AXONN_CHECK(engine_.next_group <= engine_.max_groups(), "split of group ", group_->name,
                ": the message tags of this MPI suffice for ", engine_.max_groups(),
                " groups only");
    if (part.members.size() == 1) return make_self(std::move(name), engine_.flag());
    return std::make_unique<MpiCommunicator>(
        engine_, engine_.group_of(id, part.rank, std::move(part.members), std::move(name)));
  }

  void abort(const std::string& reason) noexcept override { engine_.abort(reason, 1); }
  std::string end_reason() const override { return engine_.flag()->reason(); }
  void note_progress() noexcept override { engine_.note_progress(); }
  std::int64_t noted_progress() noexcept override { return engine_.noted_progress(); }
  double progress_seconds() const override { return engine_.processor_seconds(); }

 protected:
  std::shared_ptr<Work::State> start(Call call) override {
    return engine_.start(group_, std::move(call));
  }

  void policy_changed() override {
    MpiGroup group = *group_;  // calls in flight keep the old one
    group.policy = policy();
    group_ = std::make_shared<MpiGroup>(std::move(group));
  }

 private:
  MpiEngine& engine_;
  std::shared_ptr<const MpiGroup> group_;
};

MpiGroup everyone(const MpiEngine& engine, int id, std::string name) {
  std::vector<int> members(engine.size());
  std::iota(members.begin(), members.end(), 0);
  return engine.group_of(id, engine.rank(), std::move(members), std::move(name));
}

}  // namespace

void run_mpi(const std::function<void(Communicator& world)>& body, const MpiOptions& options) {
  MpiEngine engine(options);
  const auto fails = [&](const std::exception& error, int code) {
    engine.abort(concat("rank ", engine.rank(), ": ", error.what()), code);
    engine.await_end();
  };
  try {
    const std::unique_ptr<Communicator> world =
        engine.size() == 1
            ? make_self("world", engine.flag())
            : std::make_unique<MpiCommunicator>(engine, everyone(engine, kWorldId, "world"));
    body(*world);
    // Waits until all ranks have returned; meanwhile, this rank answers the probes of the others.
    if (engine.size() > 1)
      engine
          .start(std::make_shared<MpiGroup>(everyone(engine, kEndId, "end")),
                 {.label = "end of the run"})
          ->wait();
  } catch (const Aborted&) {  // the rank that failed first reports its error
    engine.await_end();
  } catch (const UsageError& error) {
    fails(error, 2);
  } catch (const std::exception& error) {
    fails(error, 1);
  } catch (...) {
    fails(Error("an exception of an unknown type"), 1);
  }
}

std::string mpi_version() {
  char text[MPI_MAX_LIBRARY_VERSION_STRING];
  int length = 0;
  if (MPI_Get_library_version(text, &length) != MPI_SUCCESS) return "unknown";
  const std::string all(text, static_cast<std::size_t>(length));
  return all.substr(0, all.find_first_of(",\n"));  // the rest comes from the packager
}

}  // namespace axonn
