#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "axonn/comm/communicator.h"
#include "axonn/parallel/layout.h"
#include "axonn/tensor/device.h"

/// Checkpoints: written on one grid of ranks, read on any other.
///
///   DIR/latest                          "step-200": the checkpoint that a run goes on from
///   DIR/step-200/index.json             what lies where, and the checksums (checkpoint_index.h)
///   DIR/step-200/rank-00000.safetensors the elements that rank 0 owns, its slices end to end
///   DIR/step-200/state.json, ...        the texts that the caller gave
///   DIR/step-300.tmp-0123456789abcdef   one that is being written, or was when its job died
///
/// `world` carries host memory and holds all ranks of the run; DIR is one folder that all see.

namespace axonn {

/// A parameter, and what of it lies in a block's buffers.
struct StateParameter {
  std::string name;       ///< global; unique among all blocks
  std::int64_t rows = 0;  ///< of the global matrix, unpadded; vectors are (n, 1)
  std::int64_t cols = 1;
  std::vector<Slice> slices;  ///< offsets count from the start of each buffer of the block
};

/// One flat buffer of a block; not owned.
struct StateBuffer {
  std::string kind;       ///< "master", "exp_avg", "exp_avg_sq"
  float* data = nullptr;  ///< (StateBlock::count)
};

/// A rank's piece of a group of parameters: buffers of one length, one a kind, cut alike.
///
/// Every rank lists every parameter, those of which it holds nothing with no slices.
struct StateBlock {
  std::string name;        ///< names the entries of the file: "h.3.master"; unique
  std::int64_t count = 0;  ///< elements of each buffer
  std::vector<StateParameter> parameters;
  std::vector<StateBuffer> buffers;
  Device* device = nullptr;  ///< whose memory the buffers are in; null: the host's
};

/// Further files of a checkpoint: name and contents ("state.json", "config.toml").
using StateTexts = std::map<std::string, std::string>;

struct SaverOptions {
  std::string folder = {};  ///< DIR; made when the first checkpoint is
  std::int64_t keep = 2;    ///< the newest this many stay; 0: all
  bool async = true;        ///< written by a thread of its own while training goes on
};

/// What a checkpoint cost; the same on every rank.
struct SaveCost {
  std::int64_t step = 0;
  std::string folder;                 ///< DIR/step-N
  std::int64_t bytes = 0;             ///< of all files
  double write_seconds = 0;           ///< of the slowest rank's file, in the background if async
  double stall_seconds = 0;           ///< that the slowest rank spent in begin() and finish()
  std::vector<std::string> warnings;  ///< on rank 0: older checkpoints that could not be removed
};

/// Writes checkpoints. One a rank; all ranks make the same calls.
///
///   saver.begin(world, step, blocks, texts);   // copies what this rank owns; training goes on
///   ... steps; all ranks reduce saver.written() with something they reduce anyway ...
///   if (all_written) log(saver.finish(world)); // publishes; also before the next begin, at the
///   end
///
/// Nothing appears under its final name before every rank's file is on disk, and no older
/// checkpoint is removed before that. The background thread calls no communicator.
///
/// Errors: if any rank fails, begin() or finish() throws the same Error on all ranks; it names the
/// rank, the file and the cause. What was written so far is removed, older checkpoints stay, and
/// the saver is ready for another begin().
class CheckpointSaver {
 public:
  explicit CheckpointSaver(SaverOptions options);
  /// Ends the background thread. What was not finished is removed, here or by the next begin() in
  /// that folder.
  ~CheckpointSaver();
  CheckpointSaver(const CheckpointSaver&) = delete;
  CheckpointSaver& operator=(const CheckpointSaver&) = delete;

  /// Takes a snapshot of the owned slices and starts to write it. Collective. texts are rank 0's.
  /// Costs a copy of the owned elements in host memory, kept for the next checkpoint.
  /// Errors: also if pending(), or if the disk has too little room for all ranks' files.
  void begin(Communicator& world, std::int64_t step, std::span<const StateBlock> blocks,
             const StateTexts& texts);

  /// Whether a checkpoint was begun and not finished.
  bool pending() const;

  /// Whether this rank's part is written or has failed, so that finish() will not wait for it.
  /// True where nothing is pending. Does not wait.
  bool written() const;

  /// Waits for all ranks' files, publishes the checkpoint, and removes those beyond `keep` that
  /// are older. Collective. Errors: also if not pending().
  SaveCost finish(Communicator& world);

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

/// A parameter that a checkpoint holds.
struct CheckpointParameter {
  std::string name;
  std::int64_t rows = 0, cols = 1;
  bool operator==(const CheckpointParameter&) const = default;
};

struct CheckpointIndex;

struct LoadCost {
  std::int64_t bytes = 0;  ///< that this rank read
  double seconds = 0;
};

/// Reads a checkpoint, whatever grid wrote it. Verifies every byte that it uses.
///
/// Errors: UsageError that names the file (and, where it can, the parameter) for what is missing,
/// altered, cut short or of another shape.
class CheckpointReader {
 public:
  /// path: a folder DIR/step-N, which must be good; or DIR: what `latest` names, or the newest
  /// good one before it, with a warning for each that is not. Collective: rank 0 reads the index
  /// and gives it to the others; where it fails, all ranks throw.
  CheckpointReader(Communicator& world, const std::string& path);
  /// For one rank alone.
  explicit CheckpointReader(const std::string& path);
  CheckpointReader(CheckpointReader&&) noexcept;
  CheckpointReader& operator=(CheckpointReader&&) noexcept;
  ~CheckpointReader();

  const std::string& folder() const;  ///< DIR/step-N
  std::int64_t step() const;
  int writers() const;  ///< ranks that wrote it
  const std::vector<CheckpointParameter>& parameters() const;
  /// What lies where (checkpoint_index.h).
  const CheckpointIndex& index() const;
  const std::vector<std::string>& kinds() const;
  bool has_kind(std::string_view kind) const;
  /// Errors: UsageError if the checkpoint has no such text.
  const std::string& text(const std::string& name) const;
  bool has_text(const std::string& name) const;
  /// One line for each newer checkpoint that was damaged and passed over.
  const std::vector<std::string>& warnings() const;

  /// Called with the bytes read so far and those to read.
  using Progress = std::function<void(std::int64_t done, std::int64_t total)>;

  /// Fills every slice, owned or not, of every buffer; elements outside the slices (padding) stay.
  /// Blocks may have fewer kinds of buffers than the checkpoint, such as "master" alone. Not
  /// collective. Each file is read front to back, and only where it holds wanted elements.
  /// Errors: also UsageError that lists the parameters that only one side has, or has in another
  /// shape. The buffers are then partly filled.
  LoadCost load(std::span<const StateBlock> blocks, const Progress& progress = {}) const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

/// Whether DIR holds a checkpoint, good or not. For resume = "auto": false means a fresh start.
/// Does not throw for a folder that is not there. Call it on rank 0 and tell the others.
bool has_checkpoint(const std::string& folder);

}  // namespace axonn
