#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "axonn/comm/communicator.h"
#include "axonn/grid/layout.h"
#include "axonn/storage/checkpoint/checkpoint.h"
#include "axonn/storage/safetensors/safetensors_folder.h"

namespace axonn {

/// The slices of one stored matrix that a rank wants.
struct WantedSlices {
  SafetensorsFolder::Tensor tensor;  ///< (rows, cols), or (cols, rows) if transposed; floats
  bool transposed = false;
  std::int64_t rows = 0, cols = 1;  ///< the model's shape, in which slices are given
  std::vector<Slice> slices;
  /// The ranks that want other columns of the same rows, in column order: they share the reading of
  /// whole rows and exchange columns. A rank reads alone if this is null or has one rank.
  Communicator* across = nullptr;
};

/// Receives elements of wanted[i] in their stored type. They belong at element `offset` of the
/// buffer that the slices' offsets refer to.
using TakeStored =
    std::function<void(std::size_t i, std::int64_t offset, std::span<const std::byte> stored)>;

/// Calls `take` for all wanted elements, in pieces that fit a cache. Holds a few MiB.
///
/// Each row is read once, by one of the ranks that share it, except the rows at both ends of a
/// slice. Collective over each `across`. Throws UsageError as SafetensorsFile::read() does.
LoadCost load_slices(std::span<const WantedSlices> wanted, const TakeStored& take,
                     const CheckpointReader::Progress& progress = {});

}  // namespace axonn
