#include "axonn/run/records/run_folder.h"

#include <cerrno>
#include <cinttypes>
#include <cstdio>
#include <filesystem>

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <unistd.h>

#include "axonn/data/storage/checkpoint/checkpoint_reader.h"
#include "axonn/foundation/base/check.h"
#include "axonn/foundation/base/log.h"
#include "axonn/ranks/comm/texts.h"
#include "axonn/run/config/inputs.h"
#include "axonn/run/records/event_file.h"
#include "axonn/run/records/run_end.h"
#include "axonn/run/records/run_list.h"
#include "axonn/run/records/run_state.h"
#include "axonn/run/records/sample_file.h"

namespace axonn {

namespace {

namespace fs = std::filesystem;

std::string own_checkpoints(const std::string& folder) { return folder + "/checkpoints"; }
std::string metrics_file(const std::string& folder) { return folder + "/metrics.jsonl"; }

/// Whether it is the name of a step that a run saved when it was not finite.
bool is_nonfinite_step(const std::string& name) {
  const std::string_view number = std::string_view(name).substr(
      name.starts_with(kNonfiniteStep) ? std::string_view(kNonfiniteStep).size() : name.size());
  return !number.empty() && number.find_first_not_of("0123456789") == number.npos;
}

/// Whether the path is one of the checkpoints of the run in `folder`, or the folder of all. Throws
/// Error if it cannot be known: a run that is not its own would be removed.
bool is_own_checkpoint(const std::string& path, const std::string& folder) {
  if (path.empty()) return false;
  const fs::path from = fs::path(real_path(checkpoints_of(path)))
                            .lexically_relative(real_path(own_checkpoints(folder)));
  return !from.empty() && *from.begin() != "..";
}

/// The folders and files of a run that a run in its place removes: all but its checkpoints.
std::vector<std::string> saved_steps(const std::string& folder) {
  std::vector<std::string> found;
  std::error_code error;  // then there are none
  for (fs::directory_iterator at(folder, error), end; !error && at != end; at.increment(error))
    if (is_nonfinite_step(at->path().filename()) && is_folder(at->path()))
      found.push_back(at->path());
  return found;
}
std::vector<std::string> records(const std::string& folder) {
  std::vector<std::string> files = event_files(folder);
  for (const std::string& file : {metrics_file(folder), folder + '/' + kSamplesFile,
                                  concat(folder, '/', kProductsFile), folder + "/loss.svg"})
    files.push_back(file);
  return files;
}

/// Everything that a run with this config may replace or remove.
NamedPaths outputs_of(const Config& config) {
  const std::string& folder = config.output.dir;
  NamedPaths outputs;
  const auto add = [&](const std::string& path) { outputs.push_back({"output.dir", path}); };
  for (const char* name :
       {"checkpoints", "logs", "config.toml", "lock", kRolloutsFolder, kLocalRunFile})
    add(concat(folder, '/', name));
  for (const std::string& step : saved_steps(folder)) add(step);
  for (const std::string& file : records(folder)) add(file);
  return outputs;
}

/// The step whose checkpoint in output.dir checkpoint.resume names by itself; -1 if it names none,
/// several, or one elsewhere.
std::int64_t own_step(const Config& config) {
  const std::string& path = config.checkpoint.resume;
  if (path == "auto" || !is_own_checkpoint(path, config.output.dir)) return -1;
  const fs::path real = real_path(path);
  if (real == real_path(own_checkpoints(config.output.dir))) return -1;
  return is_plain_file(real) ? step_named_in(real) : step_of(real.filename().string());
}

/// The checkpoints of output.dir that output.overwrite lets the run remove before its first step:
/// all, or if checkpoint.resume names one of them, its successors. `resumes_from`: resume_path().
std::vector<std::int64_t> replaced_steps(const Config& config, const std::string& resumes_from) {
  const std::string& folder = config.output.dir;
  std::vector<std::int64_t> steps = steps_in(own_checkpoints(folder));
  if (!is_own_checkpoint(resumes_from, folder)) return steps;
  const std::int64_t from = own_step(config);
  std::erase_if(steps, [&](std::int64_t step) { return from < 0 || step <= from; });
  return steps;
}

/// Why a run may not continue a checkpoint of output.dir that has intact successors there: it would
/// replace them. "" if it may.
std::string going_back_fault(const Config& config) {
  for (const std::int64_t step : replaced_steps(config, config.checkpoint.resume)) {
    const std::string newer = concat(own_checkpoints(config.output.dir), '/', step_name(step));
    if (!fault_of([&] { CheckpointReader{newer}; }).empty()) continue;
    return concat("checkpoint.resume = ", config.checkpoint.resume, " goes back behind ", newer,
                  ", which the run would replace; choose another folder with --output.dir, ",
                  "continue the newest with --checkpoint.resume auto, or remove the newer ",
                  "checkpoints with --output.overwrite");
  }
  return {};
}

}  // namespace

void refuse_to_replace_inputs(const Config& config) {
  NamedPaths inputs = inputs_of(config);
  std::erase_if(inputs, [&](const NamedPath& input) {  // which keeps its run's checkpoints
    return input.name == "checkpoint.resume" && is_own_checkpoint(input.path, config.output.dir);
  });
  if (const std::string fault = fault_of_outputs(outputs_of(config), inputs); !fault.empty())
    refuse(fault);
  claim_result({"output.trace", config.output.trace}, inputs, kBeginsJson);
  claim_result({"training.tune_cache", config.training.tune_cache}, inputs, kBeginsJson);
}

FolderLock::FolderLock(const std::string& folder, const std::function<std::string()>& fault) {
  make_folders(folder);
  const std::string path = folder + "/lock";
  file_ = FileHandle(::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0666));
  if (file_.get() < 0) refuse("cannot write ", path, ": ", cause_and_remedy(errno));
  const bool locked = ::flock(file_.get(), LOCK_EX | LOCK_NB) == 0;
  if (!locked && errno == EWOULDBLOCK) {
    const std::string holder = read_run_process(folder).text;
    refuse("another run writes to ", folder, ": ",
           holder.empty() ? "its process is unknown" : holder,
           "; wait for its end, or choose another folder with --output.dir");
  }
  if (!locked)
    warning_ = concat("cannot lock ", path, ": ", cause_and_remedy(errno),
                      "; make sure that no other run writes to ", folder);
  if (const std::string found = fault ? fault() : ""; !found.empty()) refuse(found);
  const std::string holder = this_run_process() + "\n";
  // Without the text (the disk is full) the lock still holds. The file keeps its block meanwhile.
  if (::pwrite(file_.get(), holder.data(), holder.size(), 0) == std::ssize(holder))
    static_cast<void>(!::ftruncate(file_.get(), std::ssize(holder)));
}

std::string resume_path(const Config& config) {
  if (config.checkpoint.resume != "auto") return config.checkpoint.resume;
  const std::string own = own_checkpoints(config.output.dir);
  return has_checkpoint(own) ? own : "";
}

std::string overwrite_fault(const Config& config) {
  const std::string& folder = config.output.dir;
  if (config.output.overwrite || config.checkpoint.resume == "auto") return {};
  if (is_own_checkpoint(config.checkpoint.resume, folder)) return going_back_fault(config);
  const auto steps = steps_in(own_checkpoints(folder));
  std::error_code error;  // then there is no such file
  const auto bytes = fs::file_size(metrics_file(folder), error);
  if (steps.empty() && (error || bytes == 0)) return {};
  return concat(
      folder, " holds a run ",
      steps.empty() ? "without a checkpoint" : concat("with a checkpoint of step ", steps.front()),
      ", which would be overwritten; choose another folder with --output.dir, ",
      steps.empty() ? "" : "continue that run with --checkpoint.resume auto, ",
      "or replace it with --output.overwrite");
}

std::string disk_fault(const Config& config, std::int64_t bytes) {
  const std::string& folder = config.output.dir;
  std::int64_t room = free_bytes(folder);
  std::vector<std::int64_t> replaced;
  if (config.output.overwrite) replaced = replaced_steps(config, resume_path(config));
  for (const std::int64_t step : replaced) {
    std::error_code error;  // then nothing is freed
    for (fs::directory_iterator at(concat(own_checkpoints(folder), '/', step_name(step)), error),
         end;
         !error && at != end; at.increment(error))
      if (is_plain_file(at->path())) room += static_cast<std::int64_t>(at->file_size(error));
  }
  if (room >= bytes) return {};
  return fmt::format(
      "a checkpoint takes {}, but {} has only {} free; free space there, or set output.dir to "
      "another disk",
      format_bytes(bytes), folder, format_bytes(room));
}

RunFolder::RunFolder(const Config& config, Communicator& world) : folder_(config.output.dir) {
  if (world.rank() == 0) {
    refuse_to_replace_inputs(config);
    lock_.emplace(folder_, [&] { return overwrite_fault(config); });
    resumes_from_ = resume_path(config);
    if (config.output.overwrite) replaced_ = replaced_steps(config, resumes_from_);
  }
  resumes_from_ = broadcast_text(world, resumes_from_, 0);
}

namespace {

/// Removes the answers of generations after the one that begins behind these steps, which has just
/// been written.
void remove_rollouts(const std::string& folder, std::int64_t steps_done) {
  std::error_code ignored;  // there may be none
  for (const auto& file : fs::directory_iterator(concat(folder, '/', kRolloutsFolder), ignored)) {
    const std::string name = file.path().filename();
    std::int64_t step = 0;
    if (std::sscanf(name.c_str(), "step-%" SCNd64 ".jsonl", &step) == 1 && step > steps_done + 1)
      fs::remove(file.path(), ignored);
  }
}

}  // namespace

void RunFolder::remove_replaced(const Start& start) const {
  const auto& [steps_done, best, from_local] = start;
  std::error_code ignored;  // there may be none
  if (!from_local) fs::remove(concat(folder_, '/', kLocalRunFile), ignored);
  remove_rollouts(folder_, steps_done);
  const std::string own = own_checkpoints(folder_);
  remove_abandoned(folder_);
  remove_abandoned(own);
  if (best_step(own) > steps_done) {
    const bool there = best > 0 && is_folder(concat(own, '/', step_name(best)));
    const std::string file = concat(own, '/', kBestName);
    if (there) write_file_atomically(file, step_name(best) + "\n");
    if (!there) fs::remove(file);
  }
  for (const std::int64_t step : replaced_) remove_folder(concat(own, '/', step_name(step)));
  if (from_local || is_own_checkpoint(resumes_from_, folder_)) {
    const std::string latest = concat(own, '/', kLatestName);
    // It is missing after a kill between the first checkpoint and its name.
    if (!replaced_.empty() || (!from_local && !path_exists(latest)))
      write_file_atomically(latest, step_name(steps_done) + "\n");
    return;
  }
  for (const std::string& step : saved_steps(folder_)) remove_folder(step);
  std::vector<std::string> files = records(folder_);
  for (const std::string_view name : {kLatestName, kBestName})
    files.push_back(concat(own, '/', name));
  for (const std::string& file : files)  // what writes the file next says so if it stays
    if (is_plain_file(file)) fs::remove(file, ignored);
}

}  // namespace axonn
