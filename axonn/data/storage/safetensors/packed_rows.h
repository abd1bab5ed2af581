#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "axonn/compute/tensor/dtype.h"
#include "axonn/data/storage/safetensors/safetensors.h"

namespace axonn {

class Differences;

/// The rows of a matrix whose values are stored in few bits with a factor for each block of them.
class PackedRows {
 public:
  virtual ~PackedRows() = default;
  PackedRows(const PackedRows&) = delete;
  PackedRows& operator=(const PackedRows&) = delete;

  /// The names of the tensors of the file that hold them.
  const std::vector<std::string>& tensors() const { return tensors_; }
  /// The narrowest type that holds the values.
  virtual StoredType type() const = 0;
  /// Fills `out` with elements of type() from column `col` of a row on. Returns the bytes that were
  /// read. Throws UsageError if a file cannot be read.
  virtual std::int64_t read(std::int64_t row, std::int64_t col, std::span<std::byte> out) const = 0;

  /// The kind as whose records its blocks can be kept, with the same values; none: as none.
  virtual Quantization kind() const { return Quantization::none; }
  /// Fills `out` with records of the largest unit of kind() from block `block` of a row on. Returns
  /// the bytes that were read, and throws, as read() does.
  virtual std::int64_t read_records(std::int64_t /*row*/, std::int64_t /*block*/,
                                    std::span<std::byte> /*out*/) const {
    return 0;
  }

 protected:
  explicit PackedRows(std::vector<std::string> tensors) : tensors_(std::move(tensors)) {}

 private:
  std::vector<std::string> tensors_;
};

/// The tensor that packed ones stand for.
struct PackedShape {
  std::int64_t outer = 0, rows = 0, cols = 0;  ///< outer 0: it is a matrix (rows, cols)
  bool transposed = false;  ///< floats would be stored as (cols, rows), as in GPT-2's Conv1D
};

/// The packed values that stand for the tensor NAME, in any of the formats below; null if there are
/// none. Adds what shapes and types differ in.
std::shared_ptr<const PackedRows> find_packed(const SafetensorsFolder& folder,
                                              const std::string& name, const PackedShape& shape,
                                              Differences& differences);

/// MXFP4, as gpt-oss was published:
///
///   NAME_blocks  (outer, rows, cols / 32, 16) u8   two values each, the lower 4 bits first: sign,
///                                                  then 0, 1/2, 1, 3/2, 2, 3, 4 or 6
///   NAME_scales  (outer, rows, cols / 32) u8       s: the block's factor is 2^(s - 127)
///
/// Source: Open Compute Project, "OCP Microscaling Formats (MX) specification 1.0", 2023.
std::shared_ptr<const PackedRows> find_mxfp4(const SafetensorsFolder& folder,
                                             const std::string& name, const PackedShape& shape,
                                             Differences& differences);

/// 8 bits, as DeepSeek-V3 was published:
///
///   NAME            (rows, cols) F8_E4M3
///   NAME_scale_inv  (rows / 128, cols / 128) f32, rounded up   the factor of each block
///
/// Source: DeepSeek-AI, "DeepSeek-V3 technical report", 2024, 3.3.
std::shared_ptr<const PackedRows> find_fp8(const SafetensorsFolder& folder, const std::string& name,
                                           const PackedShape& shape, Differences& differences);

/// 4 bits of bitsandbytes, NF4 and FP4. Blocks of B values are counted over the rows, joined:
///
///   NAME                  n / 2 bytes of any type  codes, the first value in the higher 4 bits
///   NAME.quant_map        (16) f32                 the value of each code
///   NAME.absmax           (n / B) f32              the factor of each block; nested: u8
///   NAME.nested_quant_map (256) f32, NAME.nested_absmax (n / B / B') f32   nested: the factor is
///                                                  map[code] · nested_absmax + nested_offset
///   NAME.quant_state.bitsandbytes__nf4 (or fp4)    u8, JSON: B, B', the shape, the offset
///
/// Source: bitsandbytes 0.50, functional.py, QuantState; Dettmers et al., 2023, arXiv:2305.14314.
std::shared_ptr<const PackedRows> find_four_bits(const SafetensorsFolder& folder,
                                                 const std::string& name, const PackedShape& shape,
                                                 Differences& differences);

/// 8 bits of bitsandbytes, LLM.int8(), for NAME = MODULE.weight:
///
///   NAME                  (rows, cols) i8
///   MODULE.SCB            (rows) f32   value = code · SCB / 127
///   MODULE.weight_format  () u8        0: row after row
///
/// Source: bitsandbytes 0.50, nn/modules.py; Dettmers et al., 2022, arXiv:2208.07339.
std::shared_ptr<const PackedRows> find_int8(const SafetensorsFolder& folder,
                                            const std::string& name, const PackedShape& shape,
                                            Differences& differences);

}  // namespace axonn
