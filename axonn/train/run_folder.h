#pragma once

#include <functional>
#include <optional>
#include <string>

#include "axonn/base/files.h"
#include "axonn/comm/communicator.h"
#include "axonn/train/config.h"

namespace axonn {

/// Folders of steps that were not finite (train/nonfinite.h): output.dir/nonfinite-step-N.
inline constexpr const char* kNonfiniteStep = "nonfinite-step-";

/// A lock on a folder that one job at a time may write to: on the file DIR/lock, whose text names
/// the process, its host and its start (run_end.h). The system releases the lock when the process
/// ends, even if it is killed; the file stays. Linux also keeps such locks between hosts on NFS.
class FolderLock {
 public:
  /// Creates the folder if need be. Throws UsageError that names the holder, or the fault of the
  /// folder; also if `fault`, which is asked once the folder is locked, has one. The file then says
  /// what it said before.
  explicit FolderLock(const std::string& folder, const std::function<std::string()>& fault = {});

  /// Why the folder is not locked: its file system has no locks. Empty if it is.
  const std::string& warning() const { return warning_; }

 private:
  FileHandle file_;
  std::string warning_;
};

/// The path that a run resumes from: checkpoint.resume, or for "auto" the folder of output.dir if
/// it holds checkpoints; "" for a fresh start. Call it on rank 0.
std::string resume_path(const Config& config);

/// Why the run may not start: output.dir holds another run, which this one would neither resume nor
/// was allowed to replace (output.overwrite). "" if it may. Call it on rank 0.
std::string overwrite_fault(const Config& config);

/// output.dir of a training run, from the start of the run to its end. Every rank has one; rank 0
/// holds the lock.
class RunFolder {
 public:
  /// Collective. Rank 0 throws UsageError, before anything is written, if another job writes there
  /// or if overwrite_fault() has one; the other ranks then throw Aborted.
  RunFolder(const Config& config, Communicator& world);

  /// resume_path(), on every rank.
  const std::string& resumes_from() const { return resumes_from_; }
  /// Why the folder is not locked; "" if it is, and on ranks other than 0.
  std::string warning() const { return lock_ ? lock_->warning() : std::string(); }

  /// Removes the checkpoints that a killed run was writing or removing, and the run that this one
  /// replaces, if there is one: its checkpoints, metrics, samples, chart, products of tuning and
  /// saved steps that were not finite. Call it on rank 0 when the new run is ready for its first
  /// step.
  void remove_replaced() const;

 private:
  std::string folder_;
  std::optional<FolderLock> lock_;
  std::string resumes_from_;
};

}  // namespace axonn
