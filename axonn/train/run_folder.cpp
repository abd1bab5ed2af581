#include "axonn/train/run_folder.h"

#include <cerrno>
#include <filesystem>

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include "axonn/base/check.h"
#include "axonn/comm/texts.h"
#include "axonn/storage/checkpoint/checkpoint_index.h"
#include "axonn/train/event_file.h"
#include "axonn/train/run_end.h"
#include "axonn/train/sample_file.h"

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

/// The path without links, even if it does not exist. Throws Error if it cannot be read.
fs::path without_links(const std::string& path) {
  std::error_code error;
  fs::path result = fs::weakly_canonical(path, error);
  AXONN_CHECK(!error, "cannot read ", path, ": ", cause_and_remedy(error.value()));
  return result;
}

/// Whether the path is one of the checkpoints of the run in `folder`, or the folder of all. Throws
/// Error if it cannot be known: a run that is not its own would be removed.
bool is_own_checkpoint(const std::string& path, const std::string& folder) {
  if (path.empty()) return false;
  const fs::path from =
      without_links(path).lexically_relative(without_links(own_checkpoints(folder)));
  return !from.empty() && *from.begin() != "..";
}

}  // namespace

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
  if (config.output.overwrite || config.checkpoint.resume == "auto" ||
      is_own_checkpoint(config.checkpoint.resume, folder))
    return {};
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

RunFolder::RunFolder(const Config& config, Communicator& world) : folder_(config.output.dir) {
  if (world.rank() == 0) {
    lock_.emplace(folder_, [&] { return overwrite_fault(config); });
    resumes_from_ = resume_path(config);
  }
  resumes_from_ = broadcast_text(world, resumes_from_, 0);
}

void RunFolder::remove_replaced() const {
  const std::string own = own_checkpoints(folder_);
  remove_abandoned(own);
  if (is_own_checkpoint(resumes_from_, folder_)) return;
  for (const std::int64_t step : steps_in(own)) remove_folder(concat(own, '/', step_name(step)));
  std::vector<std::string> saved_steps;
  std::error_code error;  // then there are none
  for (fs::directory_iterator at(folder_, error), end; !error && at != end; at.increment(error))
    if (is_nonfinite_step(at->path().filename()) && is_folder(at->path()))
      saved_steps.push_back(at->path());
  for (const std::string& step : saved_steps) remove_folder(step);
  for (const std::string& file : event_files(folder_)) fs::remove(file, error);
  for (const std::string& file :
       {concat(own, '/', kLatestName), metrics_file(folder_), folder_ + '/' + kSamplesFile,
        folder_ + "/products.json", folder_ + "/loss.svg"}) {
    std::error_code ignored;  // what writes the file next says so
    if (is_plain_file(file)) fs::remove(file, ignored);
  }
}

}  // namespace axonn
