#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "axonn/io/parameter_source.h"
#include "axonn/io/safetensors.h"

namespace axonn {

/// A tensor of a file that is to be written, and the parameter whose values it gets.
struct PlannedTensor {
  std::string name;       ///< in the file
  std::string parameter;  ///< (rows, cols) as the model has it; vectors are (n, 1)
  std::int64_t rows = 0, cols = 1;
  StoredType type = StoredType::f32;  ///< F32, BF16 or F16
  bool vector = false;                ///< stored as (rows); cols is 1
  bool transposed = false;            ///< stored as (cols, rows)

  std::int64_t bytes() const { return rows * cols * bytes_of(type); }
};

struct WrittenFile {
  std::int64_t bytes = 0;
  std::vector<std::uint64_t> checksums;   ///< of its pieces of kPieceBytes
  std::vector<std::int64_t> data_begins;  ///< of each tensor, the byte of the file
};

/// Called with the bytes of data written since the last call.
using WriteProgress = std::function<void(std::int64_t bytes)>;

/// Writes a safetensors file of these tensors, in their order, and syncs it. Holds some rows of one
/// of them at a time, at most 128 MiB of them; columns, of one that is transposed, so that what is
/// larger than that is gone through several times.
/// Errors: Error if it cannot be written; UsageError if F16 cannot hold a value; those of source.
WrittenFile write_tensors(const std::string& path, std::span<const PlannedTensor> tensors,
                          ParameterSource& source, const WriteProgress& progress = {});

/// Cuts the list into files of at most `most` bytes of data, or of one tensor.
std::vector<std::span<const PlannedTensor>> in_files(std::span<const PlannedTensor> tensors,
                                                     std::int64_t most);

/// Writes a Hugging Face folder's tensors: model.safetensors; or, if they are more than `most`
/// bytes, model-00001-of-00004.safetensors and so on, and model.safetensors.index.json.
/// Errors: as write_tensors().
void write_safetensors_folder(const std::string& folder, std::span<const PlannedTensor> tensors,
                              std::int64_t most, ParameterSource& source,
                              const WriteProgress& progress = {});

/// A checkpoint that is to be written: master copies alone.
struct PlannedCheckpoint {
  std::span<const CheckpointParameter> parameters;
  StateTexts texts;
  std::int64_t most = 0;  ///< bytes of data in a file
};

/// Writes it, as CheckpointReader reads it, into a folder that is there.
/// Errors: as write_tensors().
void write_checkpoint(const std::string& folder, const PlannedCheckpoint& plan,
                      ParameterSource& source, const WriteProgress& progress = {});

}  // namespace axonn
