#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "axonn/data/storage/checkpoint/checkpoint_index.h"
#include "axonn/data/storage/parameter_source.h"

namespace axonn {

/// A tensor to write to a file, and the parameter that it is filled from, or a number.
struct PlannedTensor {
  std::string name;  ///< in the file
  StoredParameter parameter;
  std::vector<StoredParameter> more = {};  ///< whose rows follow, of as many columns
  /// The rows of so many parameters, alike, are in one part of the tensor: they alternate, as those
  /// of gate_proj and up_proj in gpt-oss, or follow one another.
  std::int64_t together = 1;
  bool alternate = true;
  /// The parameters take turns, each time with as many of their rows.
  std::int64_t turns = 1;
  StoredType type = StoredType::f32;  ///< F32, BF16 or F16
  std::int64_t outer = 0;             ///< stored as (outer, rows / outer, cols); 0: two dims
  bool vector = false;                ///< stored without the last extent; parameter.cols is 1
  bool transposed = false;            ///< stored as (cols, rows), or (outer, cols, rows / outer)
  bool depthwise = false;             ///< stored as (rows, 1, cols)
  std::optional<float> number = {};   ///< stored as (); parameter is (1, 1) without a name
  /// Stored as NF4 of bitsandbytes, in tensors of several names (find_four_bits()); `type` is what
  /// they say of the values. Not with together, turns, outer, vector or transposed.
  bool nf4 = false;

  std::int64_t rows() const {
    std::int64_t sum = parameter.rows;
    for (const StoredParameter& next : more) sum += next.rows;
    return sum;
  }
  std::int64_t bytes() const;
};

struct WrittenFile {
  std::int64_t bytes = 0;
  std::vector<std::uint64_t> checksums;   ///< one for each piece of kPieceBytes
  std::vector<std::int64_t> data_begins;  ///< offset of each tensor in the file, in bytes
};

/// Called with the bytes of data written since the last call.
using WriteProgress = std::function<void(std::int64_t bytes)>;

/// Writes a safetensors file of these tensors, in their order, and syncs it. Holds at most 128 MiB
/// of rows of one tensor at a time; for a transposed tensor columns, so a larger one is read in
/// several passes over its rows. Throws Error if the file cannot be written, UsageError if F16
/// cannot hold a value, and the errors of `source`.
WrittenFile write_tensors(const std::string& path, std::span<const PlannedTensor> tensors,
                          ParameterSource& source, const WriteProgress& progress = {});

/// Cuts the list into files of at most `most` bytes of data; a larger tensor gets its own file.
std::vector<std::span<const PlannedTensor>> in_files(std::span<const PlannedTensor> tensors,
                                                     std::int64_t most);

/// Writes the tensors of a Hugging Face folder: model.safetensors, or, if they exceed `most` bytes,
/// model-00001-of-00004.safetensors and so on with model.safetensors.index.json.
/// Throws as write_tensors() does.
void write_safetensors_folder(const std::string& folder, std::span<const PlannedTensor> tensors,
                              std::int64_t most, ParameterSource& source,
                              const WriteProgress& progress = {});

/// A checkpoint to write, with master copies only.
struct PlannedCheckpoint {
  std::span<const StoredParameter> parameters;
  StateTexts texts;
  std::int64_t most = 0;  ///< most bytes of data in a file
};

/// Writes the checkpoint into an existing folder, in the form that CheckpointReader reads.
/// Throws as write_tensors() does.
void write_checkpoint(const std::string& folder, const PlannedCheckpoint& plan,
                      ParameterSource& source, const WriteProgress& progress = {});

}  // namespace axonn
