#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "axonn/compute/tensor/device.h"
#include "axonn/data/storage/checkpoint/checkpoint_index.h"
#include "axonn/data/storage/parameter_source.h"

namespace axonn {

class FileMemory;

/// A parameter, and its slices in a block's buffers.
struct StateParameter {
  StoredParameter stored;     ///< its name is unique among all blocks with one of their kinds
  std::vector<Slice> slices;  ///< offsets count from the start of each buffer of the block
};

/// One flat buffer of a block; not owned.
struct StateBuffer {
  std::string kind;      ///< "master", "exp_avg", "exp_avg_sq"
  void* data = nullptr;  ///< (StateBlock::count)
  /// If it is not f32, each slice begins at a multiple of kCodeBlock values, and what is left of
  /// its last block belongs to it.
  ValueCode code = ValueCode::f32;
  const float* absmax = nullptr;  ///< (StateBlock::count / kCodeBlock), if has_absmax(code)
};

/// A rank's piece of a parameter group: one buffer for each kind, all with the same length and
/// slices. Another block may have other kinds of the same parameters, with other slices.
///
/// Every rank lists every parameter; a parameter of which it holds nothing has no slices.
struct StateBlock {
  std::string name;        ///< begins the names of the file's entries ("h.3.master")
  std::int64_t count = 0;  ///< elements of each buffer
  std::vector<StateParameter> parameters;
  std::vector<StateBuffer> buffers;
  Device* device = nullptr;  ///< device whose memory holds the buffers; null: host
  /// Called with bytes of the buffers that were copied, which may go to the file of their memory;
  /// null: they have none.
  std::function<void(const std::byte* from, std::int64_t bytes)> put_away = {};
};

/// The name of a rank's file in a checkpoint: "rank-00003.safetensors".
std::string rank_file(int rank);

/// Compares the values of a snapshot that was just taken with their checksums. False: some had
/// changed and are right now, so another snapshot is needed.
using IsWhole = std::function<bool()>;

/// A copy in host memory of the slices that a rank owns: the contents of its file.
class StateSnapshot {
 public:
  /// folder: of a file that has the copy's memory (FileMemory); empty: there is none.
  explicit StateSnapshot(std::string folder = {});
  ~StateSnapshot();

  /// Copies the owned slices: block after block, and kind after kind. Reuses the memory of the last
  /// call. Throws Error, naming the block, if blocks or parameters with the same kind share a name,
  /// if blocks disagree on the shape of a parameter, or if buffers or elements are missing.
  void take(std::span<const StateBlock> blocks, int rank);
  /// The same until is_whole() says so. Throws Error if it does not after some times, and what it
  /// throws.
  void take_whole(std::span<const StateBlock> blocks, int rank, const IsWhole& is_whole);

  /// The parameters, the kinds, and the file without its checksums; no file if nothing is owned.
  const CheckpointIndex& part() const { return part_; }
  /// Of the file; empty if nothing is owned.
  std::span<const std::byte> bytes() const { return bytes_; }
  /// Lets the bytes that were read go to the file of its memory, if it has one.
  void put_away() const;

 private:
  void resize(std::int64_t bytes);
  std::byte* copy_owned(const StateBlock& block, std::byte* to) const;

  CheckpointIndex part_;
  std::string folder_;
  std::vector<std::byte> in_memory_;
  std::unique_ptr<FileMemory> file_;
  std::span<std::byte> in_file_;  // its one allocation
  std::span<std::byte> bytes_;
};

}  // namespace axonn
