#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "axonn/storage/checkpoint/checkpoint_index.h"

namespace axonn {

/// Elements that are contiguous both in a file and in their destination.
struct ReadRun {
  std::int64_t file = 0;    ///< index into CheckpointIndex::files
  std::int64_t offset = 0;  ///< in the file, in bytes
  std::int64_t count = 0;   ///< elements, f32
  float* to = nullptr;
  Device* device = nullptr;    ///< device whose memory `to` is in; null: host
  std::int64_t parameter = 0;  ///< index into CheckpointIndex::parameters, for messages
};

/// Sorts by file, then by offset.
void sort_runs(std::vector<ReadRun>& runs);

/// Finds the parts of a checkpoint's files that hold given elements.
class ReadPlanner {
 public:
  /// `folder` names the checkpoint in messages. Keeps a reference to the index.
  ReadPlanner(const CheckpointIndex& index, std::string folder);

  /// Appends the reads that fill one slice of a parameter in every buffer of a block. `parameter`
  /// is an index into CheckpointIndex::parameters. Throws UsageError if the checkpoint lacks some
  /// of the elements or has them twice, or lacks a kind of buffer.
  void add(std::int64_t parameter, const Slice& wanted, const StateBlock& block,
           std::vector<ReadRun>& runs) const;

 private:
  /// A stored slice and the location of its elements.
  struct Source {
    const StoredSlice* slice = nullptr;
    const StoredBlock* block = nullptr;
    std::int64_t file = 0;
    std::int64_t first = 0;  // elements of the block's earlier slices
  };

  const CheckpointIndex& index_;
  std::string folder_;
  std::vector<std::vector<Source>> sources_;  // by parameter
};

/// The reads that fill every slice of the blocks, sorted by file and offset.
///
/// Throws UsageError, naming `folder`, with a list of the parameters that are missing on one side
/// or differ in shape and of missing kinds; or if the checkpoint lacks elements or has them twice.
/// Throws Error if a block's slices do not fit their parameter or buffers.
std::vector<ReadRun> plan_reads(const CheckpointIndex& index, std::span<const StateBlock> blocks,
                                const std::string& folder);

/// Throws UsageError, naming `folder`, with a list of the parameters that are missing on one side
/// or differ in shape.
void check_parameters(const CheckpointIndex& index, std::span<const CheckpointParameter> model,
                      const std::string& folder);

/// Throws Error, naming the parameter, if slices reach beyond its shape or the block's buffers, if
/// blocks or parameters share a name, or if buffers are missing.
void check_blocks(std::span<const StateBlock> blocks);

}  // namespace axonn
