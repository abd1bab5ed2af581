#pragma once

#include <cstdint>
#include <string_view>

#include "axonn/data/corpus/parquet/bytes.h"

namespace axonn::parquet {

/// Reads structures in the compact protocol of Apache Thrift, in which Parquet stores what it says
/// about its data (thrift-compact-protocol.md of Apache Thrift). Every read is checked against the
/// end of the bytes. Throws Damage for bytes that are no such structure.
class ThriftReader {
 public:
  enum class Type : std::uint8_t {
    stop = 0,
    yes = 1,
    no = 2,
    i8 = 3,
    i16 = 4,
    i32 = 5,
    i64 = 6,
    real = 7,
    binary = 8,
    list = 9,
    set = 10,
    map = 11,
    structure = 12,
    uuid = 13
  };  // clang-format: skip
  struct Field {
    Type type;
    int id;
    bool is_flag() const { return type == Type::yes || type == Type::no; }
  };

  explicit ThriftReader(std::string_view bytes) : all_(bytes), rest_(bytes) {}

  /// Bytes that were read.
  std::size_t position() const { return all_.size() - rest_.size(); }

  /// Calls `read(field)` for each field of a structure. It reads the field's value, or returns
  /// false, so that the value is passed over.
  template <typename Read>
  void structure(Read&& read) {
    const Nested nested(*this);
    for (int id = 0;;) {
      const auto head = static_cast<std::uint8_t>(take(rest_, 1)[0]);
      const auto type = static_cast<Type>(head & 0x0f);
      if (type == Type::stop) return;
      id = head >> 4 ? id + (head >> 4) : static_cast<int>(number());
      const Field field{type, id};
      if (!read(field)) skip(type);
    }
  }

  /// Calls `read()` for each item of a list, whose items must be of this type.
  template <typename Read>
  void list(Type of, Read&& read) {
    const auto [type, size] = list_head();
    if (size > 0 && type != of) throw Damage{"a list of another type than expected"};
    for (std::uint64_t i = 0; i < size; ++i) read();
  }

  std::int64_t number() { return take_signed(rest_); }  ///< an integer of any width
  std::string_view binary() { return take(rest_, take_varint(rest_)); }
  void skip(Type type);

 private:
  struct ListHead {
    Type type;
    std::uint64_t size;
  };
  /// Counts how deep structures nest, so that hostile bytes cannot exhaust the stack.
  struct Nested {
    explicit Nested(ThriftReader& reader);
    Nested(const Nested&) = delete;
    Nested& operator=(const Nested&) = delete;
    ~Nested() { --reader.depth_; }
    ThriftReader& reader;
  };

  ListHead list_head();

  std::string_view all_, rest_;
  int depth_ = 0;
};

}  // namespace axonn::parquet
