#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "axonn/io/files.h"

/// The safetensors file: u64 N, little-endian; N bytes of JSON, padded with spaces so that the data
/// begin at a multiple of 8; then the data, little-endian, row-major, without holes.
/// Source: the format's description at huggingface.co/docs/safetensors.

namespace axonn {

/// Element types as the format knows them; more than a model computes in.
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

struct SafetensorsEntry {
  std::string name;
  StoredType type = StoredType::f32;
  std::vector<std::int64_t> shape;  ///< empty for a scalar; dims may be 0
  std::int64_t begin = 0, end = 0;  ///< bytes, from where the data begin

  std::int64_t bytes() const { return end - begin; }
  bool operator==(const SafetensorsEntry&) const = default;
};

struct SafetensorsHeader {
  std::vector<SafetensorsEntry> entries;  ///< in the order of the data
  std::map<std::string, std::string> metadata;
  std::int64_t data_offset = 0;  ///< of the data in the file: 8 + N

  /// Nothing if there is no entry of that name.
  const SafetensorsEntry* find(std::string_view name) const;
};

inline constexpr std::int64_t kMostHeaderBytes = 100'000'000;  ///< the format's own limit

/// Reads the JSON of a file of `file_bytes` and checks it against them: types known, bytes = shape
/// × type, the data covered without hole or overlap, no key twice. Needs memory in proportion to
/// the text. Errors: UsageError that names `path`, the entry and what is wrong with it.
SafetensorsHeader parse_safetensors_header(std::string_view json, std::int64_t file_bytes,
                                           const std::string& path);

/// A safetensors file that is read entry by entry.
class SafetensorsFile {
 public:
  /// Reads the header. Errors: UsageError, as above, or if the file is cut short.
  explicit SafetensorsFile(const std::string& path);

  const std::string& path() const { return file_.path(); }
  const SafetensorsHeader& header() const { return header_; }

  /// Errors: UsageError that names the file and the entry, if it is not there.
  const SafetensorsEntry& at(std::string_view name) const;

  /// Fills out with the bytes of entry from its byte `begin` on. Errors: UsageError if the file
  /// cannot be read; Error if out reaches beyond the entry.
  void read(const SafetensorsEntry& entry, std::int64_t begin, std::span<std::byte> out) const;

 private:
  InputFile file_;
  SafetensorsHeader header_;
};

/// The first bytes of a file with these entries, data end to end in their order: sets begin and
/// end of each. The metadata get "format": "pt", which readers ask for, unless they have a format.
std::string make_safetensors_header(std::vector<SafetensorsEntry>& entries,
                                    std::map<std::string, std::string> metadata = {});

/// A tensor to be written: its entry (begin and end are set by the writer) and its bytes.
struct SafetensorsTensor {
  SafetensorsEntry entry;
  std::span<const std::byte> data;
};

/// Writes a file and syncs it. Errors: Error if it cannot be written or if data do not have the
/// bytes that the shape says.
void write_safetensors(const std::string& path, std::vector<SafetensorsTensor> tensors,
                       const std::map<std::string, std::string>& metadata = {});

}  // namespace axonn
