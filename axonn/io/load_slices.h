#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "axonn/comm/communicator.h"
#include "axonn/io/checkpoint.h"
#include "axonn/io/safetensors_folder.h"
#include "axonn/parallel/layout.h"

namespace axonn {

/// What a rank wants of one stored matrix.
struct WantedSlices {
  SafetensorsFolder::Tensor tensor;  ///< (rows, cols), or (cols, rows) if transposed; floats
  bool transposed = false;
  std::int64_t rows = 0, cols = 1;  ///< as the model has it, which the slices count in
  std::vector<Slice> slices;
  /// Ranks that want the same rows, each its own columns, in the order of the columns: they read
  /// whole rows together and exchange them. A group of one reads by itself.
  Communicator* across = nullptr;
};

/// Takes elements of wanted[i] as they are stored, in the type of its entry: `stored` goes from
/// element `offset` on in the buffer that its slices speak of.
using TakeStored =
    std::function<void(std::size_t i, std::int64_t offset, std::span<const std::byte> stored)>;

/// Calls take for all elements that are wanted, some that fit a cache at a time. Holds a few MiB.
///
/// Bytes of whole rows are read once, by one of the ranks that share them, but for the rows at both
/// ends of a slice. Collective over each `across`. Errors: UsageError as SafetensorsFile::read().
LoadCost load_slices(std::span<const WantedSlices> wanted, const TakeStored& take,
                     const CheckpointReader::Progress& progress = {});

}  // namespace axonn
