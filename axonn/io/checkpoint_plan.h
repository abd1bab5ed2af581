#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "axonn/io/checkpoint_index.h"

namespace axonn {

/// Elements that lie in a row both in a file and in the memory that wants them.
struct ReadRun {
  std::int64_t file = 0;    ///< its place in CheckpointIndex::files
  std::int64_t offset = 0;  ///< byte of the file
  std::int64_t count = 0;   ///< elements, f32
  float* to = nullptr;
  std::int64_t parameter = 0;  ///< its place in CheckpointIndex::parameters, for messages
};

/// What to read to fill every slice of the blocks, in the order of the files and of their bytes.
///
/// Errors: UsageError, naming `folder`, that lists parameters that only one side has or that have
/// another shape, kinds that the checkpoint lacks, and elements that it has not, or has twice.
/// Error if a block's slices do not fit their parameter or buffers.
std::vector<ReadRun> plan_reads(const CheckpointIndex& index, std::span<const StateBlock> blocks,
                                const std::string& folder);

/// Errors: Error that names the parameter, if slices reach beyond its shape or the block's buffers,
/// or if blocks or parameters share a name, or buffers are missing.
void check_blocks(std::span<const StateBlock> blocks);

}  // namespace axonn
