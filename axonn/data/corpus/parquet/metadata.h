#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "axonn/foundation/base/files.h"

namespace axonn::parquet {

/// How a column's values are stored, by the numbers of Parquet's format.
enum class Physical : std::int8_t {
  boolean = 0,
  i32 = 1,
  i64 = 2,
  i96 = 3,
  f32 = 4,
  f64 = 5,
  bytes = 6,
  fixed = 7
};  // clang-format: skip

enum class Codec : std::int8_t {
  none = 0,
  snappy = 1,
  gzip = 2,
  lzo = 3,
  brotli = 4,
  lz4_hadoop = 5,
  zstandard = 6,
  lz4 = 7
};  // clang-format: skip

enum class Encoding : std::int8_t {
  plain = 0,
  plain_dictionary = 2,
  runs = 3,
  bit_packed = 4,
  delta = 5,
  delta_lengths = 6,
  delta_bytes = 7,
  dictionary = 8,
  byte_streams = 9
};  // clang-format: skip

/// What the values of a column mean, beside how they are stored.
enum class Meaning : std::int8_t {
  plain,  ///< numbers, flags; bytes that may be text
  text,
  list,
  map,
  decimal,
  date,
  time,
  timestamp,
  unsigned_integer,
  uuid,
  f16,
  interval
};  // clang-format: skip

/// A column, or a group of columns, of the schema. The root is a group.
struct Node {
  std::string name;
  enum class Repetition : std::int8_t { required = 0, optional = 1, repeated = 2 };
  Repetition repetition = Repetition::required;
  Physical type = Physical::boolean;  ///< of a column
  Meaning meaning = Meaning::plain;
  std::int64_t width = 0;          ///< of a fixed type: bytes
  int scale = 0;                   ///< of a decimal: digits behind the point
  std::int64_t per_second = 0;     ///< of a time or timestamp: its units
  int definition = 0;              ///< the level at which a value of this node is there
  int repetition_level = 0;        ///< at which another item of the innermost list around begins
  std::size_t first = 0, end = 0;  ///< its columns, counted over the file
  std::vector<Node> children = {};

  bool is_column() const { return children.empty(); }
};

/// Where a column of a row group lies in the file.
struct ColumnChunk {
  Codec codec = Codec::none;
  Physical type = Physical::boolean;
  std::int64_t values = 0;  ///< nulls counted
  std::int64_t begin = 0, bytes = 0;
};

struct RowGroup {
  std::int64_t rows = 0;
  std::vector<ColumnChunk> chunks = {};
};

/// What a Parquet file says about itself at its end.
struct Metadata {
  Node schema;
  std::vector<RowGroup> groups;
  std::int64_t rows = 0;
};

/// A page's head: what follows are `compressed` bytes.
struct PageHead {
  enum class Kind { data = 0, index = 1, dictionary = 2, data2 = 3 };
  Kind kind = Kind::data;
  std::int64_t uncompressed = 0, compressed = 0, values = 0;
  std::int64_t repetition_bytes = 0, definition_bytes = 0;  ///< of data2, not compressed
  Encoding encoding = Encoding::plain, definition_encoding = Encoding::runs,
           repetition_encoding = Encoding::runs;
  bool is_compressed = true;  ///< data2 may say no
  bool has_checksum = false;
  std::uint32_t checksum = 0;  ///< CRC-32 of the compressed bytes
};

/// Throws UsageError that names the file if it is damaged, encrypted, or has columns elsewhere.
Metadata read_metadata(const InputFile& file);

/// Reads the head at the front of `bytes`. Returns its own bytes. Throws Damage.
std::size_t read_page_head(std::string_view bytes, PageHead& head);

}  // namespace axonn::parquet
