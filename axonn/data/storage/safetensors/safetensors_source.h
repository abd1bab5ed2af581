#pragma once

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "axonn/data/storage/parameter_source.h"
#include "axonn/data/storage/safetensors/packed_rows.h"
#include "axonn/data/storage/safetensors/safetensors.h"

namespace axonn {

/// How a folder stores a parameter. In place of any tensor there may be packed ones
/// (packed_rows.h).
struct StoredName {
  std::vector<std::string> names;  ///< the usual one first; a folder has one of them
  bool transposed = false;         ///< stored as (in, out), as in GPT-2's Conv1D
  bool depthwise = false;          ///< stored as (rows, 1, cols): a convolution of each row alone
  /// A tensor (outer, rows, cols) that may hold the parameter instead, as some of its outer · rows
  /// rows, such as the matrices of all experts of a layer.
  struct Joined {
    std::vector<std::string> names = {};  ///< empty: there is no such tensor
    std::int64_t outer = 0;               ///< 0: the tensor is (rows, cols)
    std::int64_t rows = 0;
    std::int64_t first = 0;  ///< the parameter's first row
    std::int64_t step = 1;   ///< from one of its rows to the next
    /// The tensor consists of so many parts, as of heads, each with as many rows of every parameter
    /// in it; `first` is in the first of them.
    std::int64_t turns = 1;
    bool transposed = false;  ///< the tensor is (outer, cols, rows), but packed ones are not
    bool usual = false;       ///< new folders have this tensor
  };
  Joined joined = {};
};

/// A number that the model has as a constant and that a folder may store, as a tensor () or (1).
struct StoredNumber {
  std::vector<std::string> names;  ///< a folder has it under any of them
  double value = 0;
};

/// The names that a folder uses for tensors.
struct TensorNames {
  std::function<StoredName(const std::string& parameter)> of;
  std::function<bool(std::string_view tensor)> passed_over;  ///< tensors to ignore
  std::string config;  ///< file that describes which tensors there should be
  std::vector<StoredNumber> numbers = {};
  /// Tensors that are parameters once more, with these, to write; passed over when read.
  std::vector<std::pair<std::string, std::string>> copies = {};
};

/// Reads the tensors of a Hugging Face folder: bf16, f16, f32 or packed (packed_rows.h), of kind
/// "master".
///
/// Each row is read once, by one of the ranks that share it, except the rows at both ends of a
/// slice. Values are taken in pieces that fit a cache.
class SafetensorsSource final : public ParameterSource {
 public:
  /// Throws UsageError that lists every tensor that is missing, unknown, of another shape, or of a
  /// type that cannot be read, and every number that differs by more than rounding to 16 bits.
  SafetensorsSource(SafetensorsFolder folder, std::vector<StoredParameter> parameters,
                    const TensorNames& names);

  std::int64_t read(std::span<const SliceRequest> wanted, const TakeValues& take) override;
  /// Of packed rows (PackedRows::kind).
  Quantization stored_as(const std::string& parameter) const override;
  std::optional<std::int64_t> read_records(const std::string& parameter, Quantization kind,
                                           std::int64_t first,
                                           std::span<std::byte> records) override;

  /// The stored tensor of a parameter.
  struct Stored {
    SafetensorsFolder::Tensor tensor;
    std::int64_t rows = 0, cols = 1;  ///< the model's shape, in which slices are given
    /// Element (r, c) of the matrix is element first + r · row_step + c · col_step of the tensor.
    std::int64_t first = 0, row_step = 1, col_step = 1;
    /// Runs of so many rows lie together, each `next_run` elements after the one before; 0: all.
    std::int64_t run = 0, next_run = 0;
    bool by_columns = false;                        ///< a column's elements are nearer than a row's
    std::shared_ptr<const PackedRows> packed = {};  ///< of packed rows: first, row_step in rows

    StoredType type() const { return packed ? packed->type() : tensor.entry->type; }
    /// The element of the tensor that a row begins with; of packed rows, the row of it.
    std::int64_t begin_of(std::int64_t row) const {
      const std::int64_t runs = run > 0 ? row / run : 0;
      return first + runs * next_run + (row - runs * run) * row_step;
    }
  };

 private:
  bool find_packed(Stored& stored, const StoredName& name, Differences& differences) const;

  SafetensorsFolder folder_;
  std::map<std::string, Stored, std::less<>> stored_;  // by parameter
};

}  // namespace axonn
