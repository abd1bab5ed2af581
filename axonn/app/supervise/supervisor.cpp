#include "axonn/app/supervise/supervisor.h"

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstring>
#include <fstream>
#include <memory>
#include <optional>
#include <thread>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <nlohmann/json.hpp>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include "axonn/app/supervise/nodes.h"
#include "axonn/foundation/base/check.h"
#include "axonn/foundation/base/clock.h"
#include "axonn/foundation/base/exit_codes.h"
#include "axonn/run/records/run_end.h"
#include "axonn/run/records/run_steps.h"

extern char** environ;

namespace axonn {

namespace {

constexpr auto kLook = std::chrono::milliseconds(10);

std::string replaced(std::string text, const std::string& name, const std::string& by) {
  for (std::size_t at = text.find(name); at != text.npos; at = text.find(name, at + by.size()))
    text.replace(at, name.size(), by);
  return text;
}

/// A process in a group of its own, so that a signal from the terminal reaches this program alone.
class Process {
 public:
  /// Throws UsageError if there is no such program.
  explicit Process(const std::vector<std::string>& words) {
    std::vector<char*> arguments;
    for (const std::string& word : words) arguments.push_back(const_cast<char*>(word.c_str()));
    arguments.push_back(nullptr);
    posix_spawnattr_t attributes;
    posix_spawnattr_init(&attributes);
    sigset_t own;
    sigemptyset(&own);
    for (const int signal : {SIGTERM, SIGINT, SIGUSR1, SIGHUP}) sigaddset(&own, signal);
    posix_spawnattr_setsigdefault(&attributes, &own);
    posix_spawnattr_setpgroup(&attributes, 0);
    posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETPGROUP | POSIX_SPAWN_SETSIGDEF);
    const int fault =
        posix_spawnp(&id_, arguments[0], nullptr, &attributes, arguments.data(), environ);
    posix_spawnattr_destroy(&attributes);
    if (fault != 0) refuse("cannot start ", words[0], ": ", std::strerror(fault));
  }
  ~Process() {
    if (!code_) {
      kill(-id_, SIGKILL);
      wait();
    }
  }
  Process(const Process&) = delete;
  Process& operator=(const Process&) = delete;

  /// The exit code, 128 + N after the signal N; nothing while it runs.
  std::optional<int> code() {
    int status = 0;
    if (!code_ && waitpid(id_, &status, WNOHANG) == id_) take(status);
    return code_;
  }
  void send(int signal) const { kill(id_, signal); }

 private:
  void take(int status) {
    code_ = WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
    // What the command has started and left behind would hold the lock of the run's folder.
    kill(-id_, SIGKILL);
  }
  void wait() {
    int status = 0;
    while (waitpid(id_, &status, 0) < 0 && errno == EINTR) {
    }
    take(status);
  }

  pid_t id_ = 0;
  std::optional<int> code_;
};

/// The last step in the metrics of a run; 0: none.
std::int64_t last_step(const std::string& run) {
  if (run.empty()) return 0;
  std::ifstream file(run + "/metrics.jsonl", std::ios::binary);
  constexpr std::streamoff kTail = 1 << 16;
  file.seekg(0, std::ios::end);
  const std::streamoff size = file ? std::streamoff(file.tellg()) : 0;
  file.seekg(std::max<std::streamoff>(size - kTail, 0));
  std::int64_t last = 0;
  for (std::string line; std::getline(file, line);)
    if (const auto step = parse_run_step(line)) last = step->step;
  return last;
}

/// Looks whether a start makes steps.
class HangWatch {
 public:
  explicit HangWatch(const SupervisorOptions& options)
      : options_(options), step_(last_step(options.run)) {}

  bool hung() const { return hung_; }

  /// What ends the command now; 0: nothing.
  int signal() {
    constexpr double kGrace = 30;  // seconds for a rank that saves
    const double now = now_seconds(),
                 limit = hung_ ? std::min(kGrace, options_.hang) : options_.hang;
    if (options_.hang <= 0 || now - looked_ < std::min(1.0, options_.hang / 4)) return 0;
    looked_ = now;
    const std::int64_t step = hung_ ? step_ : last_step(options_.run);
    if (std::exchange(step_, step) != step) moved_ = now;
    if (now - moved_ < limit) return 0;
    moved_ = now;
    return std::exchange(hung_, true) ? SIGKILL : SIGTERM;
  }

 private:
  const SupervisorOptions& options_;
  std::int64_t step_;
  double moved_ = now_seconds(), looked_ = moved_;
  bool hung_ = false;
};

/// What a start came to.
struct Start {
  int number = 0;
  std::vector<std::string> nodes;
  int code = 0;
  double began = 0, seconds = 0;  // since 1970; of the command
  std::int64_t steps = 0;         // reached by any start
  std::vector<std::string> lost;  // nodes that further starts do not get
  std::string why;                // the run's own error
};

std::string line_of(const Start& start) {
  return nlohmann::ordered_json{{"start", start.number}, {"time", start.began},
                                {"nodes", start.nodes},  {"seconds", start.seconds},
                                {"code", start.code},    {"steps", start.steps},
                                {"lost", start.lost},    {"why", start.why}}
             .dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace) +
         "\n";
}

class Supervisor {
 public:
  Supervisor(const SupervisorOptions& options, const std::atomic<bool>& stop,
             const std::function<void(const std::string&)>& say)
      : options_(options), stop_(stop), say_(say) {
    if (options.command.empty())
      refuse("there is no command; give it behind --, as in: axonn supervise -- axonn train ...");
    if (options.nodes.empty() &&
        (options.spares != 0 || options.least != 0 || !options.probe.empty()))
      refuse("--spares, --least and --probe choose among nodes; name them by --nodes");
    const bool names = std::ranges::any_of(
        options.command, [](const std::string& word) { return word.find("{nodes}") != word.npos; });
    if (!options.nodes.empty() && !names)
      refuse(
          "--nodes: no word of the command has {nodes}, where the names of the nodes come; add "
          "it, as in: srun --nodelist {nodes} --nodes {count} axonn train ...");
    if (options.hang < 0) refuse("--hang is ", options.hang, "; wanted seconds, or 0 for never");
    if (!options.nodes.empty()) pool_.emplace(options.nodes, options.spares, options.least);
    most_steps_ = last_step(options.run);
  }

  int run() {
    for (Start start{.number = 1};; start = {.number = start.number + 1}) {
      if (pool_) start.nodes = pool_->next();
      if (pool_ && start.nodes.empty()) {
        say_(fmt::format("too few nodes are left: {}", fmt::join(pool_->left(), ",")));
        return code_;
      }
      run_once(start);
      if (start.code != 0 && start.code != kUsageError && start.code != kStoppedEarly && !stop_)
        after_failure(start);
      log(start);
      if (ends_with(start)) return code_;
      wait_before_next();
    }
  }

 private:
  void run_once(Start& start) {
    std::vector<std::string> words = options_.command;
    for (std::string& word : words) {
      word = replaced(word, "{nodes}", fmt::format("{}", fmt::join(start.nodes, ",")));
      word = replaced(word, "{count}", std::to_string(start.nodes.size()));
      word = replaced(word, "{start}", std::to_string(start.number));
    }
    start.began = seconds_since_1970();
    const double begin = now_seconds();
    before_ = process_of_run().text;
    Process process(words);
    HangWatch watch(options_);
    bool told = false;
    while (!process.code()) {
      if (stop_ && !std::exchange(told, true)) process.send(SIGUSR1);
      if (const int signal = watch.signal(); signal != 0) process.send(signal);
      std::this_thread::sleep_for(kLook);
    }
    start.seconds = now_seconds() - begin;
    code_ = start.code = *process.code();
    if (watch.hung() && start.code == kStoppedEarly) code_ = start.code = kFailed;
    if (watch.hung()) start.why = fmt::format("no new step for {:g} s", options_.hang);
    start.steps = last_step(options_.run);
    comes_further_ = start.steps > most_steps_;
    most_steps_ = std::max(most_steps_, start.steps);
  }

  RunProcess process_of_run() const {
    return options_.run.empty() ? RunProcess() : read_run_process(options_.run);
  }

  /// Finds nodes that further starts do not get.
  void after_failure(Start& start) {
    failures_ = comes_further_ ? 0 : failures_ + 1;
    // If the run did not begin, the error that stands there is an earlier start's.
    if (const RunProcess run = process_of_run(); start.why.empty() && run.text != before_)
      start.why = run.why;
    if (!pool_) return;
    for (const std::string& node : unfit_nodes()) {
      pool_->exclude(node);
      start.lost.push_back(node);
    }
    for (const std::string& node : pool_->named_in(start.why))
      if (pool_->blame(node)) start.lost.push_back(node);
  }

  /// Those whose probe fails, or has no end in time.
  std::vector<std::string> unfit_nodes() const {
    if (options_.probe.empty()) return {};
    const std::vector<std::string> nodes = pool_->left();
    std::vector<std::unique_ptr<Process>> probes;
    for (const std::string& node : nodes)
      probes.push_back(std::make_unique<Process>(
          std::vector<std::string>{"/bin/sh", "-c", replaced(options_.probe, "{node}", node)}));
    const double begin = now_seconds();
    const auto running = [](const auto& probe) { return !probe->code(); };
    while (std::ranges::any_of(probes, running) && now_seconds() - begin < options_.probe_seconds)
      std::this_thread::sleep_for(kLook);
    std::vector<std::string> unfit;
    for (std::size_t i = 0; i < nodes.size(); ++i)
      if (probes[i]->code() != 0) unfit.push_back(nodes[i]);
    return unfit;
  }

  bool ends_with(const Start& start) {
    if (start.code == 0 || start.code == kStoppedEarly || stop_) return true;
    const std::string how = start.code > 128 ? fmt::format("signal {}", start.code - 128)
                                             : fmt::format("exit code {}", start.code);
    std::string text =
        fmt::format("start {} ended with {} after {:.1f} s", start.number, how, start.seconds);
    if (!options_.run.empty()) text += fmt::format(", at step {}", most_steps_);
    if (!start.why.empty()) text += ": " + start.why;
    if (!start.lost.empty())
      text += fmt::format("; further starts do without {}", fmt::join(start.lost, ", "));
    if (start.code == kUsageError) {
      say_(text + "; another start would end likewise");
      return true;
    }
    const bool gives_up = failures_ >= options_.failures;
    say_(text + (gives_up
                     ? fmt::format("; after {} starts without a new step it gives up", failures_)
                     : std::string()));
    return gives_up;
  }

  /// None after a start that made new steps; then 1, 2, 4 ... seconds.
  void wait_before_next() const {
    const double seconds =
        failures_ < 2 ? 0 : std::min(options_.most_wait, double(1 << std::min(failures_ - 2, 20)));
    for (const double begin = now_seconds(); now_seconds() - begin < seconds && !stop_;)
      std::this_thread::sleep_for(kLook);
  }

  void log(const Start& start) const {
    if (options_.log.empty()) return;
    std::ofstream file(options_.log, std::ios::app);
    file << line_of(start) << std::flush;
    if (!file) say_("warning: cannot write " + options_.log);
  }

  static double seconds_since_1970() {
    return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch())
        .count();
  }

  const SupervisorOptions& options_;
  const std::atomic<bool>& stop_;
  const std::function<void(const std::string&)>& say_;
  std::optional<NodePool> pool_;
  std::string before_;  // the run's process before this start
  int code_ = kFailed, failures_ = 0;
  bool comes_further_ = false;
  std::int64_t most_steps_ = 0;
};

}  // namespace

int supervise(const SupervisorOptions& options, const std::atomic<bool>& stop,
              const std::function<void(const std::string&)>& say) {
  return Supervisor(options, stop, say).run();
}

}  // namespace axonn
