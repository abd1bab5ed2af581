#include "axonn/data/parquet/thrift.h"

namespace axonn::parquet {

namespace {

constexpr int kDeepest = 64;

}  // namespace

ThriftReader::Nested::Nested(ThriftReader& of) : reader(of) {
  if (++reader.depth_ > kDeepest) throw Damage{"structures nest too deep"};
}

std::string_view ThriftReader::take(std::uint64_t bytes) {
  if (bytes > rest_.size()) throw Damage{"it ends inside a structure"};
  const std::string_view taken = rest_.substr(0, bytes);
  rest_.remove_prefix(bytes);
  return taken;
}

std::uint8_t ThriftReader::byte() { return static_cast<std::uint8_t>(take(1)[0]); }

std::uint64_t ThriftReader::varint() {
  std::uint64_t value = 0;
  for (int shift = 0; shift < 64; shift += 7) {
    const std::uint8_t next = byte();
    value |= static_cast<std::uint64_t>(next & 0x7f) << shift;
    if (!(next & 0x80)) return value;
  }
  throw Damage{"a number of more than 64 bits"};
}

std::int64_t ThriftReader::number() {
  const std::uint64_t zigzag = varint();
  return static_cast<std::int64_t>(zigzag >> 1) ^ -static_cast<std::int64_t>(zigzag & 1);
}

std::string_view ThriftReader::binary() { return take(varint()); }

ThriftReader::ListHead ThriftReader::list_head() {
  const std::uint8_t head = byte();
  ListHead list{static_cast<Type>(head & 0x0f), static_cast<std::uint64_t>(head >> 4)};
  if (list.size == 15) list.size = varint();
  if (list.size > rest_.size()) throw Damage{"a list longer than its bytes"};
  return list;
}

void ThriftReader::skip(Type type) {
  const Nested nested(*this);
  switch (type) {
    case Type::yes:
    case Type::no:
      return;
    case Type::i8:
      take(1);
      return;
    case Type::i16:
    case Type::i32:
    case Type::i64:
      varint();
      return;
    case Type::real:
      take(8);
      return;
    case Type::uuid:
      take(16);
      return;
    case Type::binary:
      binary();
      return;
    case Type::structure:
      structure([](Field) { return false; });
      return;
    case Type::list:
    case Type::set: {
      const auto [of, size] = list_head();
      // Flags have a byte each in lists, though none as fields.
      const bool flags = of == Type::yes || of == Type::no;
      for (std::uint64_t i = 0; i < size; ++i) skip(flags ? Type::i8 : of);
      return;
    }
    case Type::map: {
      const std::uint64_t size = varint();
      if (size == 0) return;
      if (size > rest_.size()) throw Damage{"a map longer than its bytes"};
      const std::uint8_t types = byte();
      for (std::uint64_t i = 0; i < size; ++i) {
        skip(static_cast<Type>(types >> 4));
        skip(static_cast<Type>(types & 0x0f));
      }
      return;
    }
    case Type::stop:
      break;
  }
  throw Damage{"a field of an unknown type"};
}

}  // namespace axonn::parquet
