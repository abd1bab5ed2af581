#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "axonn/data/storage/parameter_source.h"
#include "axonn/data/storage/write_tensors.h"

/// The GGUF file, version 3, little-endian: "GGUF", the version, the numbers of tensors and of
/// keys; the keys with their types and values; for each tensor its name, sizes (the fastest first),
/// type and offset in the data; then the data, each tensor at a multiple of 32 bytes. Source:
/// ggml-org/ggml, docs/gguf.md.

namespace axonn {

/// The types of tensors that are written; the numbers are the format's.
enum class GgufType : std::uint32_t {
  f32 = 0,
  f16 = 1,
  q4_0 = 2,
  q4_1 = 3,
  q5_0 = 6,
  q5_1 = 7,
  q8_0 = 8,
  q3_k = 11,
  q4_k = 12,
  q5_k = 13,
  q6_k = 14,
  bf16 = 30,
  mxfp4 = 39
};

/// Whether its values are blocks of codes (GgufBlocks).
bool is_quantized(GgufType type);
/// Its name, as llama.cpp has it: "Q4_K".
std::string_view name_of(GgufType type);
/// The type of a matrix whose rows have `cols` values, where blocks of `type` are not whole: as in
/// llama-quantize Q5_0 for Q4_K, Q5_1 for Q5_K and Q8_0 for Q6_K; Q4_0 for Q3_K; and F16 for types
/// of blocks of 32 values.
GgufType type_for_rows(GgufType type, std::int64_t cols);
/// The bytes of a row of `cols` columns, which are whole blocks.
std::int64_t row_bytes(GgufType type, std::int64_t cols);

using GgufValue = std::variant<std::uint32_t, float, bool, std::string, std::vector<std::int32_t>,
                               std::vector<float>, std::vector<std::string>, std::vector<bool>>;
using GgufKeys = std::vector<std::pair<std::string, GgufValue>>;

/// A key whose value is a number with a fraction.
inline std::pair<std::string, GgufValue> gguf_number(std::string key, double value) {
  return {std::move(key), static_cast<float>(value)};
}

/// A tensor to write, and the parameter that it is filled from.
struct GgufTensor {
  std::string name;
  StoredParameter parameter;
  GgufType type = GgufType::f32;
  bool vector = false;  ///< has one dim; parameter.cols is 1
  /// Width D of the heads whose rows are put into another order, or 0: row 2i + j of a head is row
  /// j · D/2 + i of the parameter's. So rotary pairs, D/2 apart, become neighbours.
  std::int64_t interleaved = 0;
  std::vector<float> values = {};  ///< instead of a parameter, for a vector
  float plus = 0;                  ///< added to each value
  bool decays = false;             ///< a value v becomes -e^v
  /// Parameters alike that follow it: their rows, or with `stacked` a further dim over all of them.
  std::vector<StoredParameter> more = {};
  bool stacked = false;
  /// With `more`: the rows of each parameter are so many parts, and the first parts of all of them
  /// come first, then the second ones.
  std::int64_t turns = 1;
  /// If groups > 1: rows, or columns, from `first` on are groups · each units of `width`, and unit
  /// e · groups + g is unit g · each + e of the parameter.
  struct {
    std::int64_t groups = 1, each = 1, width = 1, first = 0;
    bool columns = false;
  } tiles = {};
  /// If count > 0: of every `of` rows of the parameter, these become a matrix of a third dim, which
  /// may be transposed.
  struct {
    std::int64_t of = 0, first = 0, count = 0;
    bool transposed = false;
  } heads = {};

  /// Its sizes, the fastest first.
  std::vector<std::int64_t> sizes() const;
  std::int64_t bytes() const;
};

/// Writes the file, which appears when it is complete. Holds about 32 Mi elements of one tensor, or
/// a head, at a time. Throws UsageError if F16 cannot hold a value, Error if the file cannot be
/// written, and the errors of `source`.
void write_gguf(const std::string& path, const GgufKeys& keys, std::span<const GgufTensor> tensors,
                ParameterSource& source, const WriteProgress& progress = {});

}  // namespace axonn
