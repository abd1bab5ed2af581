#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "axonn/io/checkpoint_index.h"

namespace axonn {

/// Elements that lie in a row both in a file and in the memory that wants them.
struct ReadRun {
  std::int64_t file = 0;    ///< its place in CheckpointIndex::files
  std::int64_t offset = 0;  ///< byte of the file
  std::int64_t count = 0;   ///< elements, f32
  float* to = nullptr;
  Device* device = nullptr;    ///< whose memory `to` is in; null: the host's
  std::int64_t parameter = 0;  ///< its place in CheckpointIndex::parameters, for messages
};

/// Into the order of the files and of their bytes.
void sort_runs(std::vector<ReadRun>& runs);

/// Finds what of a checkpoint's files holds which elements.
class ReadPlanner {
 public:
  /// `folder` stands for the checkpoint in messages. Keeps a reference to the index.
  ReadPlanner(const CheckpointIndex& index, std::string folder);

  /// Appends what to read to fill a slice of every buffer of a block, of the parameter at this
  /// place of the index. Errors: UsageError that names the elements that the checkpoint has not, or
  /// has twice, or the kind of buffer that it has not.
  void add(std::int64_t parameter, const Slice& wanted, const StateBlock& block,
           std::vector<ReadRun>& runs) const;

 private:
  /// A stored slice and where its elements lie.
  struct Source {
    const StoredSlice* slice = nullptr;
    const StoredBlock* block = nullptr;
    std::int64_t file = 0;
    std::int64_t first = 0;  // elements of the block's slices before it
  };

  const CheckpointIndex& index_;
  std::string folder_;
  std::vector<std::vector<Source>> sources_;  // by parameter
};

/// What to read to fill every slice of the blocks, in the order of the files and of their bytes.
///
/// Errors: UsageError, naming `folder`, that lists parameters that only one side has or that have
/// another shape, kinds that the checkpoint lacks, and elements that it has not, or has twice.
/// Error if a block's slices do not fit their parameter or buffers.
std::vector<ReadRun> plan_reads(const CheckpointIndex& index, std::span<const StateBlock> blocks,
                                const std::string& folder);

/// Errors: UsageError, naming `folder`, that lists parameters that only one side has or that have
/// another shape.
void check_parameters(const CheckpointIndex& index, std::span<const CheckpointParameter> model,
                      const std::string& folder);

/// Errors: Error that names the parameter, if slices reach beyond its shape or the block's buffers,
/// or if blocks or parameters share a name, or buffers are missing.
void check_blocks(std::span<const StateBlock> blocks);

}  // namespace axonn
