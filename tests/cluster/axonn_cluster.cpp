// A cluster in one process: runs trainings on simulated nodes, with the faults that seeds draw.
// docs/faults.md says what is simulated.
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <filesystem>
#include <string>
#include <vector>

#include <sys/personality.h>
#include <unistd.h>

#include "axonn/foundation/base/exit_codes.h"
#include "axonn/ranks/comm/mpi/mpi.h"

#include "tests/cluster/trial.h"

namespace axonn::cluster {

namespace {

constexpr int kSkipped = 77;
constexpr const char* kUsage =
    "usage: axonn_cluster --seeds FIRST COUNT [--mpi] [--planted FAULT]\n"
    "           tries seeds, and tells what happened with those that fail\n"
    "       axonn_cluster --replay SEED [--mpi] [--planted FAULT]\n"
    "           tells what happens with a seed\n"
    "--mpi: ranks are processes of a simulated MPI in place of threads.\n"
    "FAULT is a fault of the simulation itself, or of jobs, which some seeds must find:\n"
    "forgotten-file-syncs, forgotten-folder-syncs, lost-wakes, or with --mpi unchecked-messages.\n";

/// Starts this program again with one thread for products and with the same addresses each time,
/// so that a seed gives the same run.
void start_again(char** arguments) {
  if (std::getenv("AXONN_CLUSTER")) return;
  setenv("AXONN_CLUSTER", "1", 1);
  setenv("OMP_NUM_THREADS", "1", 1);
  setenv("OPENBLAS_NUM_THREADS", "1", 1);
  personality(ADDR_NO_RANDOMIZE);
  execv("/proc/self/exe", arguments);
}

std::string work_folder() {
  namespace fs = std::filesystem;
  const std::string parent = fs::exists("/dev/shm") ? "/dev/shm" : "/tmp";
  return parent + "/axonn-cluster-" + std::to_string(getpid());
}

void print(std::uint64_t seed, const Trial& trial) {
  for (const std::string& line : trial.story) std::printf("%s\n", line.c_str());
  std::printf("seed %llu: %s\n", static_cast<unsigned long long>(seed),
              trial.fault.empty() ? "all promises kept" : trial.fault.c_str());
  std::printf("schedule %016llx\n", static_cast<unsigned long long>(trial.schedule));
}

struct Seeds {
  std::uint64_t first = 0, count = 1;
  bool all = false;  ///< tells of seeds that keep all promises, too
  TrialOptions options = {};
};

int run_seeds(const Seeds& seeds, const std::string& again) {
  const std::string folder = work_folder();
  std::filesystem::create_directories(folder);
  Trial sum;
  int failures = 0;
  for (std::uint64_t seed = seeds.first; seed < seeds.first + seeds.count; ++seed) {
    const Trial trial = run_trial(seed, folder + "/job", seeds.options);
    sum.starts += trial.starts;
    sum.killed += trial.killed;
    sum.power_lost += trial.power_lost;
    sum.frozen += trial.frozen;
    sum.stopped += trial.stopped;
    sum.disk_faults += trial.disk_faults;
    sum.nodes_lost += trial.nodes_lost;
    sum.damaged += trial.damaged;
    sum.moved += trial.moved;
    sum.usage_errors += trial.usage_errors;
    sum.late += trial.late;
    sum.altered += trial.altered;
    sum.schedule = sum.schedule * 31 + trial.schedule;
    failures += !trial.fault.empty();
    if (seeds.all || !trial.fault.empty()) print(seed, trial);
    if (!trial.fault.empty())
      std::printf("again: %s --replay %llu\n\n", again.c_str(),
                  static_cast<unsigned long long>(seed));
    std::fflush(stdout);
  }
  std::filesystem::remove_all(folder);
  std::filesystem::remove_all(folder + "/job-spare");
  std::printf(
      "%llu seeds, %d failed: %d starts, %d drawn to be killed, %d to lose power, %d with a frozen "
      "rank, %d stopped, %d with faults of disks (%d usage errors), %d nodes lost, %d files "
      "damaged, %d with late messages, %d with one that is cut, torn or lost, "
      "%d runs moved to another grid; schedules %016llx\n",
      static_cast<unsigned long long>(seeds.count), failures, sum.starts, sum.killed,
      sum.power_lost, sum.frozen, sum.stopped, sum.disk_faults, sum.usage_errors, sum.nodes_lost,
      sum.damaged, sum.late, sum.altered, sum.moved, static_cast<unsigned long long>(sum.schedule));
  return failures == 0 ? 0 : 1;
}

int main_of(const std::vector<std::string>& words) {
  Seeds seeds;
  std::string again = words[0];
  std::size_t at = 1;
  const auto next = [&] { return at < words.size() ? words[at++] : ""; };
  const auto number = [&] { return std::strtoull(next().c_str(), nullptr, 10); };
  const std::string how = next();
  seeds.first = number();
  seeds.all = how == "--replay";
  if (how == "--seeds") seeds.count = number();
  while (at < words.size()) {
    const std::string word = next();
    again += ' ' + word;
    if (word == "--mpi") {
      seeds.options.mpi = true;
      continue;
    }
    again += ' ' + (at < words.size() ? words[at] : "");
    const auto planted = planted_of(next());
    if (word != "--planted" || !planted) at = words.size() + 1;
    seeds.options.planted = planted.value_or(Planted::none);
  }
  if (seeds.options.mpi && mpi_version().starts_with("none")) {
    std::fputs("--mpi: this program was built without MPI\n", stderr);
    return kSkipped;
  }
  if ((how == "--seeds" || how == "--replay") && seeds.count > 0 && at == words.size())
    return run_seeds(seeds, again);
  std::fputs(kUsage, stderr);
  return kUsageError;
}

}  // namespace

}  // namespace axonn::cluster

int main(int count, char** words) {
  axonn::cluster::start_again(words);
  try {
    return axonn::cluster::main_of({words, words + count});
  } catch (const std::exception& error) {
    std::fprintf(stderr, "error: %s\n", error.what());
    return 1;
  }
}
