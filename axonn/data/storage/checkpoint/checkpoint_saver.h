#pragma once

#include <atomic>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "axonn/data/storage/checkpoint/checkpoint_index.h"
#include "axonn/data/storage/checkpoint/state_snapshot.h"
#include "axonn/foundation/base/files.h"
#include "axonn/foundation/base/log.h"
#include "axonn/ranks/comm/communicator.h"

/// Checkpoints: written on one grid of ranks, read on any other.
///
///   DIR/latest                          "step-200": the checkpoint that a run resumes from
///   DIR/best                            "step-150": the one that is kept as the best, if any
///   DIR/step-200/index.json             location and checksums of the data (checkpoint_index.h)
///   DIR/step-200/rank-00000.safetensors the slices that rank 0 owns, end to end
///   DIR/step-200/state.json, ...        the texts that the caller gave
///   DIR/step-300.tmp-0123456789abcdef   a checkpoint being written, or left by a job that died
///
/// `world` holds all ranks of the run, with collectives on host memory. DIR is on a file system
/// that all ranks share.

namespace axonn {

/// Of the steps of a run's checkpoints, in any order, those that stay, ascending: the `keep` newest
/// (0: all) and, if factor is above 1, older ones. Let T be the newest. A step that is left out
/// lies between two that stay, c (or 0) and n, with n - c <= (factor - 1) (T - n). So going back
/// before any step repeats at most `factor` times the steps since then, or those and the distance
/// of two checkpoints as they were written. If a run applies this after each checkpoint, at most
/// most_spaced() stay beside the `keep` newest.
std::vector<std::int64_t> steps_to_keep(std::vector<std::int64_t> steps, std::int64_t keep,
                                        double factor);
/// 2 + 2 log(steps / every) / log(factor); 0 if factor is not above 1.
std::int64_t most_spaced(std::int64_t steps, std::int64_t every, double factor);

struct SaverOptions {
  std::string folder = {};          ///< DIR; created with the first checkpoint
  std::int64_t keep = 2;            ///< number of newest checkpoints to keep; 0: all
  double keep_factor = 0;           ///< of older ones: see steps_to_keep()
  bool async = true;                ///< write in a background thread while training continues
  std::string offload_folder = {};  ///< of the copy's memory, see StateSnapshot
  ProgressTarget progress = {};  ///< shows how far this rank's file is while training waits for it
};

/// The cost of a checkpoint; the same on every rank.
struct SaveCost {
  std::int64_t step = 0;
  std::string folder;        ///< DIR/step-N
  std::int64_t bytes = 0;    ///< of all files
  double write_seconds = 0;  ///< to write the slowest rank's file, in the background if async
  double stall_seconds = 0;  ///< spent by the slowest rank in begin() and finish()
  std::vector<std::string> warnings;  ///< on rank 0: older checkpoints that could not be removed
};

/// Writes checkpoints. Every rank has one saver, and all ranks make the same calls.
///
///   saver.begin(world, step, blocks, texts);    // copies the owned slices; training continues
///   ... steps; all ranks reduce saver.written() with something they reduce anyway ...
///   if (all_written) log(saver.finish(world));  // publishes
///
/// finish() is also needed before the next begin() and at the end of the run. The checkpoint gets
/// its final name only when every rank's file is on disk; older checkpoints are removed only after
/// that. The background thread calls no communicator.
///
/// If any rank fails, begin() or finish() throws the same AgreedError on all ranks; it names the
/// rank, the file and the cause. The unfinished checkpoint is then removed, older ones stay, and
/// the saver is ready for another begin().
class CheckpointSaver {
 public:
  /// The destructor joins the background thread. An unfinished checkpoint is removed then, or by
  /// the next begin() in that folder.
  explicit CheckpointSaver(SaverOptions options);

  /// Takes a snapshot of the owned slices and starts to write it. Collective. Only rank 0's texts
  /// are used. Costs a copy of the owned elements in host memory, reused for the next checkpoint.
  /// Also throws if pending(), or if the disk has too little room for all ranks' files; and what
  /// `is_whole` throws on any rank, which is called when the snapshot is taken.
  void begin(Communicator& world, std::int64_t step, std::span<const StateBlock> blocks,
             const StateTexts& texts, const IsWhole& is_whole = {});

  /// Makes the checkpoint of this step the best when it is published: it stays, whatever `keep`
  /// says, until another one takes its place, and DIR/best names it. Call it before begin().
  void keep_best(std::int64_t step) { best_ = step; }

  /// Whether a checkpoint was begun but not finished.
  bool pending() const { return pending_; }

  /// Whether this rank's part is written or has failed, so that finish() will not wait for it.
  /// True if nothing is pending. Does not wait.
  bool written() const { return written_; }

  /// Waits for all ranks' files, publishes the checkpoint, and removes older ones beyond `keep`.
  /// Collective. Also throws if not pending().
  SaveCost finish(Communicator& world);

  /// finish() without communication, for a run that ends with an error of any rank: each rank waits
  /// until all ranks' files are on disk, whatever else those ranks do, and rank 0 publishes.
  /// Returns whether this rank published. Gives up if a file could not be written, or if one is
  /// missing for longer than it should take to write. Does not throw.
  bool finish_alone();

 private:
  std::string name() const { return options_.folder + '/' + step_name(step_); }
  std::string task() const { return "writing checkpoint " + name(); }
  std::string part_file(int rank) const;
  void make_folder(Communicator& world);
  void write(Communicator& world);
  void wait_for_writer();
  std::string doing() const;
  struct Forget;
  SaveCost publish(CheckpointIndex whole);

  SaverOptions options_;
  bool pending_ = false;
  std::int64_t step_ = 0, best_ = -1;
  std::int64_t bytes_ = 0;  // of all ranks' files
  int rank_ = 0, ranks_ = 1;
  std::string unfinished_;  // folder that all ranks write to

  StateSnapshot snapshot_;
  CheckpointIndex part_;  // of the snapshot; of its file, the checksums once it is written

  StateTexts texts_;                          // rank 0
  std::optional<TemporaryFolder> temporary_;  // rank 0
  double stall_seconds_ = 0;

  std::atomic<bool> written_ = true;
  std::atomic<std::int64_t> done_ = 0;  // bytes of this rank's file
  std::string fault_;                   // of the writer thread; read after it is joined
  double write_seconds_ = 0;
  std::jthread writer_;  // last: it uses the other members until it is joined
};

}  // namespace axonn
