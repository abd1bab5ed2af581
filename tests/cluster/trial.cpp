#include "tests/cluster/trial.h"

#include <algorithm>
#include <csignal>
#include <filesystem>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "axonn/foundation/base/exit_codes.h"
#include "axonn/foundation/base/files.h"

#include "tests/cluster/history.h"
#include "tests/cluster/job.h"

namespace axonn::cluster {

namespace {

namespace fs = std::filesystem;

constexpr int kFaultyStarts = 4;  // at most

/// A run that nothing befalls.
struct Undisturbed {
  std::map<std::int64_t, StepValues> steps;
  std::map<std::string, std::uint64_t> hashes;
  Extent extent;
};

/// One job, from its first start to its end.
class Course {
 public:
  Course(std::uint64_t seed, std::string folder, const TrialOptions& options)
      : draws_(seed),
        folder_(std::move(folder)),
        job_(draw_job(draws_, {.mpi = options.mpi,
                               .forgets_checks = options.planted == Planted::unchecked_messages})),
        planted_(options.planted) {}

  Trial take() {
    run_undisturbed();
    const auto faulty = draws_.between(1, kFaultyStarts);
    while (trial_.fault.empty() && !done_) {
      if (++trial_.starts > faulty + 1) return failed("goes on failing without faults"), trial_;
      start(trial_.starts <= faulty);
    }
    if (trial_.fault.empty()) check_end();
    return trial_;
  }

 private:
  void failed(const std::string& why) { trial_.fault = why; }
  void tell(std::string line) { trial_.story.push_back(std::move(line)); }

  std::string run_folder() const { return folder_ + "/shared/run"; }

  Ended run_with(Faults faults) {
    faults.forgotten = {.files = planted_ == Planted::forgotten_file_syncs,
                        .folders = planted_ == Planted::forgotten_folder_syncs};
    ScheduleOptions schedule = draw_schedule(draws_);
    if (planted_ == Planted::lost_wakes) schedule.lost_wakes = 0.001;
    for (const char* part : {"/shared", "/local"}) fs::create_directories(folder_ + part);
    fs::remove_all(folder_ + "-spare");
    fs::create_directories(folder_ + "-spare");
    const Ended ended = run({.words = job_.command(layout_, folder_),
                             .folder = folder_,
                             .spare = folder_ + "-spare",
                             .schedule = schedule,
                             .faults = faults,
                             .mpi_ranks = job_.mpi ? layout_.grid.ranks() : 0});
    trial_.schedule = trial_.schedule * 31 + ended.account.schedule;
    tell(fmt::format("start {}: exit code {}, {} points, {} calls for files, {:.3f} s",
                     trial_.starts, ended.code, ended.account.points, ended.account.file_calls,
                     1e-9 * static_cast<double>(ended.account.nanoseconds)));
    for (int i = 0; i < ended.account.notes; ++i)
      tell(fmt::format("  {}", ended.account.note[i].data()));
    return ended;
  }

  void run_undisturbed() {
    fs::remove_all(folder_);
    layout_ = job_.layout;
    tell(fmt::format("axonn {}", fmt::join(job_.command(layout_, folder_), " ")));
    const Ended ended = run_with({});
    if (ended.code != 0)
      return failed(fmt::format("an undisturbed run ends with {}:\n{}", ended.code, ended.output));
    undisturbed_ = {.steps = noted_steps(run_folder()),
                    .hashes = hashes_of(final_checkpoint()),
                    .extent = {.points = ended.account.points,
                               .file_calls = ended.account.file_calls,
                               .messages = ended.account.messages}};
    if (std::ssize(undisturbed_.steps) != job_.steps || undisturbed_.hashes.empty())
      failed("an undisturbed run does not note its steps, or saves nothing");
    fs::remove_all(folder_);
  }

  std::string final_checkpoint() const {
    return fmt::format("{}/checkpoints/step-{}", run_folder(), job_.steps);
  }

  void start(bool faulty) {
    if (trial_.starts > 1 && job_.other && !moved_) move();
    Faults faults;
    if (faulty) faults = draw_faults(draws_, job_, layout_, undisturbed_.extent, folder_);
    count(faults);
    const Ended ended = run_with(faults);
    output_ = ended.output;
    check_resume(faults);
    if (trial_.fault.empty()) check_code(ended, faults);
    note_progress();
    if (trial_.fault.empty() && !done_) lose_node();
    if (trial_.fault.empty() && !done_) damage();
    if (!trial_.fault.empty()) tell_last_moments(ended);
  }

  void count(const Faults& faults) {
    trial_.killed += faults.end == Faults::End::killed;
    trial_.power_lost += faults.end == Faults::End::power_lost;
    trial_.frozen += faults.frozen_rank >= 0;
    trial_.stopped += faults.stop_point > 0;
    trial_.disk_faults += !faults.disk.empty();
    const bool alters = alteration(faults) != MessageFault::Kind::none;
    trial_.altered += alters;
    trial_.late += std::ssize(faults.messages) > (alters ? 1 : 0);
    disk_faults_ |= !faults.disk.empty();
    power_lost_ |= faults.end == Faults::End::power_lost;
  }

  /// What becomes of the one message that is not late alone.
  static MessageFault::Kind alteration(const Faults& faults) {
    for (const MessageFault& fault : faults.messages)
      if (fault.kind != MessageFault::Kind::late) return fault.kind;
    return MessageFault::Kind::none;
  }

  /// The sender is named; of a lost message, nobody can know whether it was sent.
  bool tells_of_message(const Ended& ended, const Faults& faults) const {
    if (ended.account.altered_from < 0) return false;
    const bool lost = alteration(faults) == MessageFault::Kind::lost;
    return output_.find(lost ? "rank " : fmt::format("rank {} ", ended.account.altered_from)) !=
           output_.npos;
  }

  void move() {
    moved_ = true;
    ++trial_.moved;
    layout_ = *job_.other;
    tell(fmt::format("goes on with the grid {},{},{},{}", layout_.grid.x, layout_.grid.y,
                     layout_.grid.z, layout_.grid.data));
  }

  /// Nothing that was said to be saved is lost.
  void check_resume(const Faults& faults) {
    const std::size_t line = output_.rfind("resumed from ");
    if (line == output_.npos && output_.find("starting at step 1") == output_.npos) {
      resumed_ = job_.steps;  // it has not come so far
      return;
    }
    resumed_ = line == output_.npos
                   ? 0
                   : step_after(output_.substr(0, output_.find(' ', line + 13)), "/step-");
    if (!faults.disk.empty() || damaged_) return;
    if (resumed_ < saved_)
      failed(
          fmt::format("step {} was saved, and the start goes on from step {}", saved_, resumed_));
    if (resumed_ < sure_locally_)
      failed(fmt::format("the local checkpoint of step {} was whole, and the start goes on from {}",
                         sure_locally_, resumed_));
  }

  void check_code(const Ended& ended, const Faults& faults) {
    const auto says = [&](const std::string& words) { return output_.find(words) != output_.npos; };
    switch (ended.code) {
      case 0:
        done_ = true;
        if (ended.account.altered_from >= 0) failed("goes on after an altered message");
        return;
      case kKilled:
        if (faults.end == Faults::End::none) failed("killed by nobody");
        return;
      case kStoppedEarly:
        if (faults.stop_point == 0) failed("stopped by nobody");
        return;
      case 128 + SIGUSR1:  // before the program listens to it
        if (faults.stop_point == 0) failed("stopped by nobody");
        return;
      case kFailed:
      case kUsageError:
        if (faults.frozen_rank >= 0 && says(fmt::format("rank {} ", faults.frozen_rank))) return;
        if (tells_of_message(ended, faults)) return;
        if (!faults.disk.empty() && says(folder_)) {
          trial_.usage_errors += ended.code == kUsageError;
          tell("  " + last_line());
          return;
        }
        failed(fmt::format("error: {}", last_line()));
        return;
      case Scheduler::kFrozen:  // nobody is left to notice; axonn supervise --hang ends such a job
        return;
      case Scheduler::kEndless:
        return failed("goes on and on");
      case Scheduler::kDeadlock:
        failed("all threads wait for each other");
        return;
      default:
        failed(fmt::format("exit code {}:\n{}", ended.code, output_));
    }
  }

  std::string last_line() const {
    const std::size_t at = output_.rfind("error: ");
    return at == output_.npos ? output_ : output_.substr(at);
  }

  /// What the next start must find.
  void note_progress() {
    for (std::size_t at = output_.find("saved "); at != output_.npos;
         at = output_.find("saved ", at + 1)) {
      const std::string line = output_.substr(at, output_.find('\n', at) - at);
      if (line.find("/step-") != line.npos) saved_ = std::max(saved_, step_after(line, "/step-"));
    }
    // All of a local checkpoint is on two nodes, once one of this start is whole.
    const auto steps = noted_steps(run_folder());
    const std::int64_t noted =
        std::min(steps.empty() ? 0 : steps.rbegin()->first, step_after(output_, "\nstep "));
    const std::int64_t every = job_.local_every;
    copied_ = every > 0 && !disk_faults_ && noted >= resumed_ + 2 * every;
    if (copied_) sure_locally_ = noted / every * every - every;
    if (disk_faults_) sure_locally_ = 0;
  }

  void lose_node() {
    if (layout_.nodes() < 2 || !copied_ || !draws_.chance(0.6)) return;
    const int node = static_cast<int>(draws_.below(layout_.nodes()));
    tell(fmt::format("node {} is lost", node));
    ++trial_.nodes_lost;
    fs::remove_all(fmt::format("{}/local/node-{}", folder_, node));
  }

  /// Changes a byte of a file, or cuts it short. Of the shared checkpoints only if there are two: a
  /// run whose only one is damaged is right to ask for help.
  void damage() {
    if (!draws_.chance(0.1)) return;
    const bool local = draws_.chance(0.5);
    std::vector<std::string> files;
    std::error_code error;
    for (const auto& file : fs::recursive_directory_iterator(
             local ? folder_ + "/local" : run_folder() + "/checkpoints", error))
      if (file.is_regular_file() && file.path().native().find("/step-") != std::string::npos)
        files.push_back(file.path());
    std::ranges::sort(files);
    if (files.empty() || (!local && (damaged_ || intact_steps() < 2))) return;
    const std::string file = files[draws_.below(std::ssize(files))];
    std::string bytes = read_text(file);
    if (bytes.empty()) return;
    const std::int64_t at = draws_.below(std::ssize(bytes));
    draws_.chance(0.5) ? bytes.resize(at) : (bytes[at] ^= 1, void());
    write_text(file, bytes);
    tell(fmt::format("byte {} of {} is damaged", at, file));
    ++trial_.damaged;
    damaged_ = true;
  }

  std::int64_t intact_steps() const {
    std::error_code error;
    std::int64_t count = 0;
    for (const auto& step : fs::directory_iterator(run_folder() + "/checkpoints", error))
      count += fs::exists(step.path() / "index.json") && step.path().extension() == "";
    return count;
  }

  void check_end() {
    const bool complete = !power_lost_ && !disk_faults_;
    const std::string found =
        difference(noted_steps(run_folder()), undisturbed_.steps, moved_ ? 1e-4 : 0, complete);
    if (!found.empty()) return failed(found);
    const auto hashes = hashes_of(final_checkpoint());
    if (hashes.empty()) return failed("the last checkpoint is missing");
    if (!moved_ && hashes != undisturbed_.hashes)
      return failed("the last checkpoint has other values than that of an undisturbed run");
    const std::string latest = run_folder() + "/checkpoints/latest";
    if (!path_exists(latest) || read_text(latest) != fmt::format("step-{}\n", job_.steps))
      failed("checkpoints/latest does not name the last checkpoint");
  }

  void tell_last_moments(const Ended& ended) {
    tell("the last moments:");
    const Account& account = ended.account;
    for (std::int64_t i = std::max<std::int64_t>(0, account.moments - Account::kMoments);
         i < account.moments; ++i) {
      const Moment& moment = account.last[i % Account::kMoments];
      tell(fmt::format("  {:.6f} s, thread {} of rank {}: {}",
                       1e-9 * static_cast<double>(moment.nanoseconds), moment.thread, moment.rank,
                       moment.what.data()));
    }
    tell("its output:\n" + ended.output);
  }

  Draws draws_;
  const std::string folder_;
  const Job job_;
  const Planted planted_;
  Job::Layout layout_;
  Undisturbed undisturbed_;
  Trial trial_;
  std::string output_;  // of the last start
  bool done_ = false, moved_ = false, damaged_ = false, disk_faults_ = false, power_lost_ = false;
  bool copied_ = false;                        // all of a local checkpoint is on two nodes
  std::int64_t resumed_ = 0;                   // the step from which the last start went on
  std::int64_t saved_ = 0, sure_locally_ = 0;  // the next start goes on from there or later
};

}  // namespace

std::optional<Planted> planted_of(const std::string& name) {
  if (name == "forgotten-file-syncs") return Planted::forgotten_file_syncs;
  if (name == "forgotten-folder-syncs") return Planted::forgotten_folder_syncs;
  if (name == "lost-wakes") return Planted::lost_wakes;
  if (name == "unchecked-messages") return Planted::unchecked_messages;
  return {};
}

Trial run_trial(std::uint64_t seed, const std::string& folder, const TrialOptions& options) {
  return Course(seed, folder, options).take();
}

}  // namespace axonn::cluster
