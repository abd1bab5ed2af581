#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "axonn/foundation/base/files.h"

/// The safetensors file: u64 N, little-endian; N bytes of JSON, padded with spaces so that the data
/// begin at a multiple of 8; then the data, little-endian, row-major, without holes.
/// Source: the format's description at huggingface.co/docs/safetensors.

namespace axonn {

/// The element types of the format; more than a model computes in.
enum class StoredType {
  boolean,
  u8,
  i8,
  f8_e4m3,
  f8_e5m2,
  i16,
  u16,
  f16,
  bf16,
  i32,
  u32,
  f32,
  i64,
  u64,
  f64
};

std::int64_t bytes_of(StoredType type);
std::string_view name_of(StoredType type);  ///< "BF16"

/// Whether to_floats() and from_floats() support the type: F16, BF16 and F32.
bool is_float(StoredType type);

/// Converts the elements in `bytes`, out.size() of them, from `type` to float. Exact.
void to_floats(StoredType type, std::span<const std::byte> bytes, std::span<float> out);

/// Converts floats to `type`, rounding to nearest even. Values beyond F16's range become infinite.
void from_floats(StoredType type, std::span<const float> values, std::span<std::byte> out);

struct SafetensorsEntry {
  std::string name;
  StoredType type = StoredType::f32;
  std::vector<std::int64_t> shape;  ///< empty for a scalar; dims may be 0
  std::int64_t begin = 0, end = 0;  ///< bytes, relative to the start of the data

  std::int64_t bytes() const { return end - begin; }
  bool operator==(const SafetensorsEntry&) const = default;
};

struct SafetensorsHeader {
  std::vector<SafetensorsEntry> entries;  ///< in the order of the data
  std::int64_t data_offset = 0;           ///< where the data begins in the file: 8 + N
};

/// Parses the header of a file of `file_bytes` bytes and checks it: known types, sizes that match
/// shape and type, entries that cover the data without gap or overlap, no duplicate key. Needs
/// memory in proportion to the text. Throws UsageError with `path`, the entry and the fault.
SafetensorsHeader parse_safetensors_header(std::string_view json, std::int64_t file_bytes,
                                           const std::string& path);

/// A safetensors file that is read entry by entry.
class SafetensorsFile {
 public:
  /// Reads the header. Throws UsageError as above, or if the file is cut short.
  explicit SafetensorsFile(const std::string& path);

  const std::string& path() const { return file_.path(); }
  const SafetensorsHeader& header() const { return header_; }

  /// Fills `out` with the bytes of the entry from its byte `begin` on. Throws UsageError if the
  /// file cannot be read, Error if the range exceeds the entry.
  void read(const SafetensorsEntry& entry, std::int64_t begin, std::span<std::byte> out) const;

 private:
  InputFile file_;
  SafetensorsHeader header_;
};

/// Makes the first bytes of a file whose data lies end to end in the order of the entries, and sets
/// begin and end of each. Its metadata is "format": "pt", which readers require.
std::string make_safetensors_header(std::vector<SafetensorsEntry>& entries);

/// The tensors of a Hugging Face folder: in model.safetensors, or, if there is none, in the shards
/// that model.safetensors.index.json lists. Another stem than "model", such as "adapter_model",
/// selects other files. Reads only headers.
class SafetensorsFolder {
 public:
  /// A tensor and its file.
  struct Tensor {
    const SafetensorsFile* file = nullptr;
    const SafetensorsEntry* entry = nullptr;
  };

  /// Throws UsageError with the file if there are no tensors, if a shard is missing or damaged, or
  /// if the index lists tensors that its shards do not have.
  explicit SafetensorsFolder(std::string path, const std::string& stem = "model");

  using Tensors = std::map<std::string, Tensor, std::less<>>;

  const std::string& path() const { return path_; }
  /// All tensors by name.
  const Tensors& tensors() const { return tensors_; }
  /// The tensor of that name; its entry is null if there is none.
  Tensor find(std::string_view name) const;

 private:
  Tensors open(const std::string& name);
  void open_shards(const std::string& index);

  std::string path_;
  std::vector<std::unique_ptr<SafetensorsFile>> files_;
  Tensors tensors_;
};

/// Whether two tensors have the same shape and bytes, or values if their types differ. Reads both
/// up to the first difference.
bool same_values(const SafetensorsFolder::Tensor& a, const SafetensorsFolder::Tensor& b);

}  // namespace axonn
