#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "axonn/foundation/base/files.h"
#include "axonn/ranks/comm/communicator.h"
#include "axonn/run/config/config.h"

namespace axonn {

/// Name of the folder in output.dir with the answers that an [rl] run wrote, a file a generation.
inline constexpr const char* kRolloutsFolder = "rollouts";
/// Name of the file in output.dir that names the run whose local checkpoints continue it.
inline constexpr const char* kLocalRunFile = "local.json";

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

/// Throws UsageError, naming the key and both paths, if the run would replace or remove a file or a
/// folder that it reads (inputs.h), also one that the run before it in output.dir has made. Writes
/// nothing. Call it on rank 0.
void refuse_to_replace_inputs(const Config& config);

/// Why the run may not start, unless output.overwrite allows it: output.dir holds another run,
/// which this one would not resume, or it holds newer intact checkpoints than the one that
/// checkpoint.resume names. "" if it may. Call it on rank 0.
std::string overwrite_fault(const Config& config);

/// Why a checkpoint of `bytes` has no room in output.dir, once the checkpoints are gone that
/// the run replaces; "" if it has. Call it on rank 0.
std::string disk_fault(const Config& config, std::int64_t bytes);

/// output.dir of a training run, from the start of the run to its end. Every rank has one; rank 0
/// holds the lock.
class RunFolder {
 public:
  /// Collective. Rank 0 throws UsageError, before anything is written, as
  /// refuse_to_replace_inputs() does, if another job writes there, or if overwrite_fault() has one;
  /// the other ranks then throw Aborted.
  RunFolder(const Config& config, Communicator& world);

  /// resume_path(), on every rank.
  const std::string& resumes_from() const { return resumes_from_; }
  /// Why the folder is not locked; "" if it is, and on ranks other than 0.
  std::string warning() const { return lock_ ? lock_->warning() : std::string(); }

  /// Removes the files and checkpoints that a killed run was writing or removing, and the run that
  /// this one replaces, if there is one: its checkpoints, metrics, samples, answers, chart,
  /// products of tuning and saved steps that were not finite; or, if the run may go back to an
  /// older checkpoint, the newer ones. The best checkpoint of a run that continues after steps_done
  /// steps is that of step `best`, if it is there, and none of a later step. Call it on rank 0
  /// when the new run is ready for its first step. It may continue steps that no checkpoint here
  /// has, from local ones; otherwise kLocalRunFile goes, too.
  struct Start {
    std::int64_t steps_done = 0, best = 0;
    bool from_local = false;
  };
  void remove_replaced(const Start& start) const;

 private:
  std::string folder_;
  std::optional<FolderLock> lock_;
  std::string resumes_from_;
  std::vector<std::int64_t> replaced_;  // on rank 0: the steps whose checkpoints are removed
};

}  // namespace axonn
