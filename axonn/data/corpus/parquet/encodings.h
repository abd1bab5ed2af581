#pragma once

#include <cstdint>
#include <memory>
#include <string_view>
#include <vector>

#include "axonn/data/corpus/parquet/metadata.h"

namespace axonn::parquet {

/// Numbers below 2^32 in runs of equal ones and runs of packed bits (the RLE / bit-packing hybrid),
/// front to back.
class RunDecoder {
 public:
  RunDecoder() = default;
  RunDecoder(std::string_view bytes, int bits);

  /// Throws Damage at the end of the bytes.
  std::uint32_t next();

 private:
  void begin_run();

  std::string_view rest_, packed_ = {};
  int bits_ = 0;
  std::uint64_t left_ = 0, at_ = 0;  // of the run: values, and the bit in packed_
  std::uint32_t repeated_ = 0;
};

/// The values of a page, front to back.
class PageValues {
 public:
  PageValues() = default;
  PageValues(const PageValues&) = delete;
  PageValues& operator=(const PageValues&) = delete;
  virtual ~PageValues() = default;

  /// The bytes of the next value: of numbers, as they are in little-endian memory; of flags, a byte
  /// 0 or 1; of byte arrays, without their length. Valid until the next call. Throws Damage if
  /// there is none.
  virtual std::string_view next() = 0;
};

using Dictionary = std::vector<std::string_view>;

/// The values of a page of `column`, which point into `bytes` and into the dictionary. Throws
/// Damage for an encoding that this column cannot have.
std::unique_ptr<PageValues> decode_values(Encoding encoding, const Node& column,
                                          std::string_view bytes, const Dictionary& dictionary);

}  // namespace axonn::parquet
