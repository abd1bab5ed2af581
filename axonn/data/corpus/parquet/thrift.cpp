#include "axonn/data/corpus/parquet/thrift.h"

namespace axonn::parquet {

namespace {

constexpr int kDeepest = 64;

}  // namespace

ThriftReader::Nested::Nested(ThriftReader& of) : reader(of) {
  if (++reader.depth_ > kDeepest) throw Damage{"structures nest too deep"};
}

ThriftReader::ListHead ThriftReader::list_head() {
  const auto head = static_cast<std::uint8_t>(take(rest_, 1)[0]);
  ListHead list{static_cast<Type>(head & 0x0f), static_cast<std::uint64_t>(head >> 4)};
  if (list.size == 15) list.size = take_varint(rest_);
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
      take(rest_, 1);
      return;
    case Type::i16:
    case Type::i32:
    case Type::i64:
      take_varint(rest_);
      return;
    case Type::real:
      take(rest_, 8);
      return;
    case Type::uuid:
      take(rest_, 16);
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
      const std::uint64_t size = take_varint(rest_);
      if (size == 0) return;
      if (size > rest_.size()) throw Damage{"a map longer than its bytes"};
      const auto types = static_cast<std::uint8_t>(take(rest_, 1)[0]);
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
