#include "axonn/data/corpus/parquet/encodings.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <string>

#include "axonn/data/corpus/parquet/bytes.h"

namespace axonn::parquet {

namespace {

std::uint64_t little_endian(std::string_view bytes) {
  std::uint64_t value = 0;
  for (std::size_t i = bytes.size(); i-- > 0;)
    value = value << 8 | static_cast<unsigned char>(bytes[i]);
  return value;
}

/// `count` bits from the bit `at` on, the lowest first; count <= 64.
std::uint64_t bits_at(std::string_view packed, std::uint64_t at, int count) {
  std::uint64_t value = 0;
  for (int made = 0; made < count;) {
    const auto byte = static_cast<unsigned char>(packed[at / 8]);
    const int from = static_cast<int>(at % 8), taken = std::min(8 - from, count - made);
    value |= static_cast<std::uint64_t>(byte >> from & ((1 << taken) - 1)) << made;
    made += taken;
    at += taken;
  }
  return value;
}

/// Bytes of a value in plain encoding; 0: they vary.
std::size_t plain_width(const Node& column) {
  switch (column.type) {
    case Physical::i32:
    case Physical::f32:
      return 4;
    case Physical::i64:
    case Physical::f64:
      return 8;
    case Physical::i96:
      return 12;
    case Physical::fixed:
      return static_cast<std::size_t>(column.width);
    default:
      return 0;
  }
}

class FixedValues final : public PageValues {
 public:
  FixedValues(std::string_view bytes, std::size_t width) : rest_(bytes), width_(width) {}
  std::string_view next() override { return take(rest_, width_); }

 private:
  std::string_view rest_;
  std::size_t width_;
};

class ByteArrays final : public PageValues {
 public:
  explicit ByteArrays(std::string_view bytes) : rest_(bytes) {}
  std::string_view next() override { return take(rest_, little_endian(take(rest_, 4))); }

 private:
  std::string_view rest_;
};

constexpr std::array<std::string_view, 2> kFlags{std::string_view("\0", 1), "\1"};

class Bits final : public PageValues {
 public:
  explicit Bits(std::string_view bytes) : bytes_(bytes) {}
  std::string_view next() override {
    if (at_ / 8 >= bytes_.size()) throw Damage{"a page that ends before its values"};
    return kFlags[bits_at(bytes_, at_++, 1)];
  }

 private:
  std::string_view bytes_;
  std::uint64_t at_ = 0;
};

class FlagRuns final : public PageValues {
 public:
  explicit FlagRuns(std::string_view bytes)
      : runs_(take(bytes, little_endian(take(bytes, 4))), 1) {}
  std::string_view next() override { return kFlags[runs_.next() & 1]; }

 private:
  RunDecoder runs_;
};

class FromDictionary final : public PageValues {
 public:
  FromDictionary(std::string_view bytes, const Dictionary& dictionary)
      : dictionary_(dictionary),
        runs_(bytes.empty() ? bytes : bytes.substr(1), bytes.empty() ? 0 : bytes[0]) {}
  std::string_view next() override {
    const std::uint32_t index = runs_.next();
    if (index >= dictionary_.size()) throw Damage{"a value that its dictionary lacks"};
    return dictionary_[index];
  }

 private:
  const Dictionary& dictionary_;
  RunDecoder runs_;
};

/// Integers as differences, in blocks of packed bits (DELTA_BINARY_PACKED), front to back.
class DeltaDecoder {
 public:
  explicit DeltaDecoder(std::string_view& bytes) : rest_(bytes) {
    const std::uint64_t block = take_varint(rest_);
    miniblocks_ = take_varint(rest_);
    left_ = take_varint(rest_);
    value_ = static_cast<std::uint64_t>(take_signed(rest_));
    if (miniblocks_ == 0 || miniblocks_ > block || block % miniblocks_ != 0 || block > 1 << 24)
      throw Damage{"differences in impossible blocks"};
    in_miniblock_ = block / miniblocks_;
    if (in_miniblock_ % 8 != 0) throw Damage{"differences in impossible blocks"};
  }

  bool at_end() const { return left_ == 0; }
  std::uint64_t next() {
    if (left_ == 0) throw Damage{"a page that ends before its values"};
    --left_;
    const std::uint64_t value = value_;
    if (left_ > 0) value_ += difference();
    return value;
  }
  /// What follows the numbers, once at_end().
  std::string_view rest() const { return rest_; }

 private:
  std::uint64_t difference() {
    if (at_ == in_miniblock_ || widths_.empty()) {
      if (widths_.size() <= 1) {
        least_ = static_cast<std::uint64_t>(take_signed(rest_));
        widths_ = take(rest_, miniblocks_);
      } else {
        widths_.remove_prefix(1);
      }
      width_ = static_cast<unsigned char>(widths_[0]);
      if (width_ > 64) throw Damage{"a number of more than 64 bits"};
      packed_ = take(rest_, in_miniblock_ * width_ / 8);
      at_ = 0;
    }
    return least_ + bits_at(packed_, width_ * at_++, static_cast<int>(width_));
  }

  std::string_view rest_, packed_, widths_;
  std::uint64_t miniblocks_ = 0, in_miniblock_ = 0, left_ = 0, value_ = 0, least_ = 0, width_ = 0,
                at_ = 0;
};

class DeltaIntegers final : public PageValues {
 public:
  DeltaIntegers(std::string_view bytes, std::size_t width) : numbers_(bytes), width_(width) {}
  std::string_view next() override {
    value_ = numbers_.next();
    return {reinterpret_cast<const char*>(&value_), width_};
  }

 private:
  DeltaDecoder numbers_;
  std::size_t width_;
  std::uint64_t value_ = 0;
};

/// What follows the numbers at the front of `bytes`. Counts them without memory for each.
std::string_view behind_numbers(std::string_view bytes) {
  DeltaDecoder numbers(bytes);
  while (!numbers.at_end()) numbers.next();
  return numbers.rest();
}

/// The lengths of all byte arrays, then their bytes (DELTA_LENGTH_BYTE_ARRAY).
class DeltaLengths final : public PageValues {
 public:
  explicit DeltaLengths(std::string_view bytes) : lengths_(bytes), rest_(behind_numbers(bytes)) {}
  std::string_view next() override { return take(rest_, lengths_.next()); }

 private:
  DeltaDecoder lengths_;
  std::string_view rest_;
};

/// Byte arrays without what they share with the one before (DELTA_BYTE_ARRAY).
class DeltaBytes final : public PageValues {
 public:
  explicit DeltaBytes(std::string_view bytes) : shared_(bytes), suffixes_(behind_numbers(bytes)) {}
  std::string_view next() override {
    const std::uint64_t shared = shared_.next();
    if (shared > value_.size()) throw Damage{"a value that shares more than the one before has"};
    value_.resize(shared);
    value_ += suffixes_.next();
    return value_;
  }

 private:
  DeltaDecoder shared_;
  DeltaLengths suffixes_;
  std::string value_;
};

/// The first bytes of all values, then their second ones, and so on (BYTE_STREAM_SPLIT).
class ByteStreams final : public PageValues {
 public:
  ByteStreams(std::string_view bytes, std::size_t width)
      : bytes_(bytes), value_(width, '\0'), count_(bytes.size() / width) {}
  std::string_view next() override {
    if (at_ >= count_) throw Damage{"a page that ends before its values"};
    for (std::size_t i = 0; i < value_.size(); ++i) value_[i] = bytes_[i * count_ + at_];
    ++at_;
    return value_;
  }

 private:
  std::string_view bytes_;
  std::string value_;
  std::size_t count_, at_ = 0;
};

}  // namespace

RunDecoder::RunDecoder(std::string_view bytes, int bits) : rest_(bytes), bits_(bits) {
  if (bits < 0 || bits > 32) throw Damage{"a number of more than 32 bits"};
}

void RunDecoder::begin_run() {
  const std::uint64_t head = take_varint(rest_);
  if (head & 1) {
    left_ = (head >> 1) * 8;
    if (head >> 1 > rest_.size() * 8 + 1) throw Damage{"a run longer than its page"};
    // The last run may be cut where the values end.
    packed_ = take(rest_, std::min<std::uint64_t>((head >> 1) * bits_, rest_.size()));
    if (bits_ > 0) left_ = std::min<std::uint64_t>(left_, packed_.size() * 8 / bits_);
    at_ = 0;
  } else {
    left_ = head >> 1;
    packed_ = {};
    repeated_ = static_cast<std::uint32_t>(little_endian(take(rest_, (bits_ + 7) / 8)));
  }
}

std::uint32_t RunDecoder::next() {
  if (bits_ == 0) return 0;
  while (left_ == 0) begin_run();
  --left_;
  if (packed_.empty()) return repeated_;
  const std::uint64_t at = at_;
  at_ += bits_;
  return static_cast<std::uint32_t>(bits_at(packed_, at, bits_));
}

std::unique_ptr<PageValues> decode_values(Encoding encoding, const Node& column,
                                          std::string_view bytes, const Dictionary& dictionary) {
  const std::size_t width = plain_width(column);
  const bool flags = column.type == Physical::boolean, arrays = column.type == Physical::bytes;
  switch (encoding) {
    case Encoding::plain:
      if (flags) return std::make_unique<Bits>(bytes);
      if (arrays) return std::make_unique<ByteArrays>(bytes);
      return std::make_unique<FixedValues>(bytes, width);
    case Encoding::plain_dictionary:
    case Encoding::dictionary:
      return std::make_unique<FromDictionary>(bytes, dictionary);
    case Encoding::runs:
      if (flags) return std::make_unique<FlagRuns>(bytes);
      break;
    case Encoding::delta:
      if (column.type == Physical::i32 || column.type == Physical::i64)
        return std::make_unique<DeltaIntegers>(bytes, width);
      break;
    case Encoding::delta_lengths:
      if (arrays) return std::make_unique<DeltaLengths>(bytes);
      break;
    case Encoding::delta_bytes:
      if (arrays || column.type == Physical::fixed) return std::make_unique<DeltaBytes>(bytes);
      break;
    case Encoding::byte_streams:
      if (width > 0) return std::make_unique<ByteStreams>(bytes, width);
      break;
    case Encoding::bit_packed:
      break;
  }
  throw Damage{"a column in an unknown encoding"};
}

}  // namespace axonn::parquet
