#include "tests/cluster/start.h"

#include <algorithm>
#include <array>
#include <csignal>
#include <cstdlib>
#include <iostream>
#include <thread>

#include <execinfo.h>
#include <fcntl.h>
#include <sched.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "axonn/app/cli/command.h"
#include "axonn/app/cli/program.h"
#include "axonn/app/cli/standard_output.h"
#include "axonn/foundation/base/check.h"
#include "axonn/foundation/base/exit_codes.h"
#include "axonn/foundation/base/files.h"
#include "axonn/run/load/launch.h"

#include "tests/cluster/simulation.h"

namespace axonn::cluster {

namespace {

/// Lets the faults of a start happen.
class Fate {
 public:
  Fate(const Faults& faults, std::uint64_t seed, Account& account)
      : faults_(faults), draws_(seed), account_(account) {}

  void at_point() {
    const std::int64_t point = account_.points;
    if (point == faults_.end_point) end();
    if (point == faults_.stop_point) {
      account_.add_note("SIGUSR1");
      std::raise(SIGUSR1);
    }
    Scheduler& scheduler = *simulation().scheduler;
    for (const auto& [at, rank, seconds] : faults_.pauses)
      if (at == point) {
        account_.add_note("rank %d pauses for %.3f s", rank, seconds);
        scheduler.hold_back(rank, account_.nanoseconds + static_cast<std::int64_t>(1e9 * seconds));
      }
    for (const auto& [at, seconds] : faults_.jumps)
      if (at == point) {
        account_.add_note("the time of day jumps by %.0f s", seconds);
        simulation().wall_clock_ns += static_cast<std::int64_t>(1e9 * seconds);
      }
    if (point == faults_.frozen_point && faults_.frozen_rank >= 0) {
      account_.add_note("rank %d freezes", faults_.frozen_rank);
      scheduler.hold_back(faults_.frozen_rank, kNever);
    }
  }

  std::int64_t at_file_call(std::int64_t bytes) {
    if (account_.file_calls + 1 != faults_.end_file_call) return -1;
    if (bytes == 0 || draws_.chance(0.5)) end();
    return draws_.below(bytes);
  }

  std::int64_t at_message(int from, bool collective, MessageFault::Kind& what) {
    std::int64_t delay = draws_.one_of({500, 2'000, 2'000, 20'000});
    if (!collective) return delay;
    ++account_.messages;
    for (const MessageFault& fault : faults_.messages) {
      if (fault.message != account_.messages) continue;
      what = fault.kind;
      if (what == MessageFault::Kind::late)
        delay += static_cast<std::int64_t>(1e9 * fault.seconds);
      else
        account_.altered_from = from;
      static constexpr const char* kNames[] = {"", "late", "cut", "torn", "lost"};
      account_.add_note("message %lld, of rank %d, is %s",
                        static_cast<long long>(account_.messages), from,
                        kNames[static_cast<int>(what)]);
    }
    return delay;
  }

  [[noreturn]] void end() {
    const Serving serving;
    const bool power = faults_.end == Faults::End::power_lost;
    account_.add_note("%s, at the call %lld for a file", power ? "power is lost" : "killed",
                      static_cast<long long>(account_.file_calls));
    if (power) simulation().disk->lose_power(draws_);
    _exit(kKilled);
  }

 private:
  const Faults faults_;
  Draws draws_;
  Account& account_;
};

/// Tells in the output of a start where it crashed.
void tell_crash(int signal) {
  const Serving serving;
  std::array<void*, 50> frames{};
  backtrace_symbols_fd(frames.data(), backtrace(frames.data(), frames.size()), STDERR_FILENO);
  _exit(128 + signal);
}

int run_command(std::vector<std::string> words) {
  words.insert(words.begin(), "axonn");
  std::vector<char*> arguments;
  for (std::string& word : words) arguments.push_back(word.data());
  return run_program(static_cast<int>(arguments.size()), arguments.data());
}

/// run_program() of one process of several, which share their standard output here.
int run_process(const std::vector<std::string>& words) {
  try {
    return run_axonn(words);
  } catch (const std::exception& error) {
    end_launched(std::current_exception());
    std::cerr << "error: " << error.what() << std::endl;
    return dynamic_cast<const UsageError*>(&error) ? kUsageError : kFailed;
  }
}

/// Runs the command in as many processes of MPI. Returns the largest exit code.
int run_processes(const std::vector<std::string>& words, int count) {
  StandardOutput output;
  std::vector<int> codes(count);
  {
    std::vector<std::jthread> ranks;
    for (int& code : codes) ranks.emplace_back([&] { code = run_process(words); });
  }
  output.finish();
  return *std::ranges::max_element(codes);
}

[[noreturn]] void run_here(const Start& start, Account& account) {
  alarm(kRealSeconds);
  for (const int signal : {SIGSEGV, SIGBUS, SIGFPE, SIGABRT}) std::signal(signal, tell_crash);
  rlimit files{};
  getrlimit(RLIMIT_NOFILE, &files);
  files.rlim_cur = files.rlim_max;
  setrlimit(RLIMIT_NOFILE, &files);
  // One thread runs at a time, and switches are cheaper on one core.
  cpu_set_t core;
  CPU_ZERO(&core);
  CPU_SET(sched_getcpu(), &core);
  sched_setaffinity(0, sizeof core, &core);
  const int output =
      ::open((start.spare + "/output").c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_APPEND, 0666);
  dup2(output, STDOUT_FILENO);
  dup2(output, STDERR_FILENO);

  const std::string kept = start.spare + "/kept";
  make_folders(kept);
  Fate fate(start.faults, start.schedule.seed + 1, account);
  Simulation& s = simulation();
  s.random = std::make_unique<Draws>(start.schedule.seed + 2);
  s.wall_clock_ns = std::int64_t{1'800'000'000} * 1'000'000'000;
  s.disk = std::make_unique<Disk>(start.folder, kept, start.faults.disk, account,
                                  start.faults.forgotten);
  s.at_file_call = [&](std::int64_t bytes) { return fate.at_file_call(bytes); };
  s.end = [&] { fate.end(); };
  s.scheduler = std::make_unique<Scheduler>(start.schedule, account);
  s.scheduler->at_point = [&] { fate.at_point(); };
  s.mpi = {.ranks = start.mpi_ranks, .at_message = [&](int from, bool collective, auto& what) {
             return fate.at_message(from, collective, what);
           }};
  s.scheduler->adopt();
  const int code =
      start.mpi_ranks > 0 ? run_processes(start.words, start.mpi_ranks) : run_command(start.words);
  std::cout.flush();
  _exit(code);
}

}  // namespace

Ended run(const Start& start) {
  auto* const account = static_cast<Account*>(
      mmap(nullptr, sizeof(Account), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0));
  AXONN_CHECK(account != MAP_FAILED, "no memory is left");
  new (account) Account;
  std::cout.flush();
  const pid_t child = fork();
  AXONN_CHECK(child >= 0, "cannot start a process");
  if (child == 0) run_here(start, *account);
  int status = 0;
  while (waitpid(child, &status, 0) < 0) {
  }
  Ended ended{.code = WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status),
              .output = read_text(start.spare + "/output"),
              .account = *account};
  munmap(account, sizeof(Account));
  return ended;
}

}  // namespace axonn::cluster
