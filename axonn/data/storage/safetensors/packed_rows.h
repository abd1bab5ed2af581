#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>

#include "axonn/data/storage/safetensors/safetensors.h"

namespace axonn {

class Differences;

/// The rows of a matrix whose values are stored in few bits with a factor for each block of them.
class PackedRows {
 public:
  virtual ~PackedRows() = default;

  /// The narrowest type that holds the values.
  virtual StoredType type() const = 0;
  /// Fills `out` with elements of type() from column `col` of a row on. Returns the bytes that were
  /// read. Throws UsageError if a file cannot be read.
  virtual std::int64_t read(std::int64_t row, std::int64_t col, std::span<std::byte> out) const = 0;
};

/// The extents (outer, rows, cols) of the tensor that packed ones stand for; outer 0: (rows, cols).
struct PackedShape {
  std::int64_t outer = 0, rows = 0, cols = 0;
};

/// The values in MXFP4 that NAME_blocks and NAME_scales hold in place of a tensor, whose rows count
/// over `outer`; null if there are none. Adds what their shapes differ in.
///
///   NAME_blocks  (outer, rows, cols / 32, 16) u8   two values each, the lower 4 bits first: sign,
///                                                  then 0, 1/2, 1, 3/2, 2, 3, 4 or 6
///   NAME_scales  (outer, rows, cols / 32) u8       s: the block's factor is 2^(s - 127)
///
/// Source: Open Compute Project, "OCP Microscaling Formats (MX) specification 1.0", 2023.
std::shared_ptr<const PackedRows> find_mxfp4(const SafetensorsFolder& folder,
                                             const std::string& name, const PackedShape& shape,
                                             Differences& differences);

/// The values in 8 bits that a matrix F8_E4M3 (rows, cols) and NAME_scale_inv hold, as DeepSeek-V3
/// was published; null if it is another tensor. Adds what the shapes differ in.
///
///   NAME_scale_inv  (rows / 128, cols / 128) f32, rounded up   the factor of each block
///
/// Source: DeepSeek-AI, "DeepSeek-V3 technical report", 2024, 3.3.
std::shared_ptr<const PackedRows> find_fp8(const SafetensorsFolder& folder,
                                           const SafetensorsFolder::Tensor& tensor,
                                           const PackedShape& shape, Differences& differences);

}  // namespace axonn
