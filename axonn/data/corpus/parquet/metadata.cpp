#include "axonn/data/corpus/parquet/metadata.h"

#include <array>
#include <cstring>
#include <span>

#include "axonn/data/corpus/parquet/thrift.h"

namespace axonn::parquet {

namespace {

using Type = ThriftReader::Type;
using Field = ThriftReader::Field;

constexpr std::int64_t kFooter = 8;
constexpr std::string_view kMagic = "PAR1";
constexpr int kDeepestSchema = 40;

/// Units of a time in a second, by the field of the union TimeUnit.
std::int64_t units_of(int field) {
  return field == 1 ? 1'000 : field == 2 ? 1'000'000 : 1'000'000'000;
}

/// The older annotation of a column (ConvertedType).
void set_converted(std::int64_t kind, Node& node) {
  constexpr std::int64_t kUtf8 = 0, kMap = 1, kMapKeyValue = 2, kList = 3, kEnum = 4, kDecimal = 5,
                         kDate = 6, kTimeMillis = 7, kTimestampMicros = 10, kUint8 = 11,
                         kUint64 = 14, kJson = 19, kInterval = 21;
  if (kind == kUtf8 || kind == kEnum || kind == kJson) node.meaning = Meaning::text;
  if (kind == kMap || kind == kMapKeyValue) node.meaning = Meaning::map;
  if (kind == kList) node.meaning = Meaning::list;
  if (kind == kDecimal) node.meaning = Meaning::decimal;
  if (kind == kDate) node.meaning = Meaning::date;
  if (kind >= kTimeMillis && kind <= kTimestampMicros) {
    node.meaning = kind < kTimeMillis + 2 ? Meaning::time : Meaning::timestamp;
    node.per_second = (kind - kTimeMillis) % 2 == 0 ? 1'000 : 1'000'000;
  }
  if (kind >= kUint8 && kind <= kUint64) node.meaning = Meaning::unsigned_integer;
  if (kind == kInterval) node.meaning = Meaning::interval;
}

/// The newer annotation: a union, of which one field is there.
void read_logical(ThriftReader& in, Node& node) {
  constexpr std::array<Meaning, 16> kMeanings{
      Meaning::plain,     Meaning::text,     Meaning::map,   Meaning::list,
      Meaning::text,      Meaning::decimal,  Meaning::date,  Meaning::time,
      Meaning::timestamp, Meaning::interval, Meaning::plain, Meaning::plain,
      Meaning::text,      Meaning::plain,    Meaning::uuid,  Meaning::f16};
  constexpr int kDecimal = 5, kTime = 7, kTimestamp = 8, kInteger = 10;
  in.structure([&](Field kind) {
    if (kind.type != Type::structure) return false;
    if (kind.id > 0 && kind.id < std::ssize(kMeanings) && kind.id != kInteger)
      node.meaning = kMeanings[kind.id];
    in.structure([&](Field of) {
      if (kind.id == kDecimal && of.id == 1) {
        node.scale = static_cast<int>(in.number());
        return true;
      }
      if (kind.id == kInteger && of.id == 2 && of.is_flag()) {
        node.meaning = of.type == Type::no ? Meaning::unsigned_integer : Meaning::plain;
        return true;
      }
      if ((kind.id != kTime && kind.id != kTimestamp) || of.id != 2 || of.type != Type::structure)
        return false;
      in.structure([&](Field unit) {
        node.per_second = units_of(unit.id);
        return false;
      });
      return true;
    });
    return true;
  });
}

struct Element {
  Node node;
  std::int64_t children = 0;
  bool has_type = false;
};

Element read_element(ThriftReader& in) {
  Element element;
  Node& node = element.node;
  in.structure([&](Field field) {
    switch (field.id) {
      case 1:
        node.type = static_cast<Physical>(in.number());
        element.has_type = true;
        return true;
      case 2:
        node.width = in.number();
        return true;
      case 3:
        node.repetition = static_cast<Node::Repetition>(in.number());
        return true;
      case 4:
        node.name = in.binary();
        return true;
      case 5:
        element.children = in.number();
        return true;
      case 6:
        set_converted(in.number(), node);
        return true;
      case 7:
        node.scale = static_cast<int>(in.number());
        return true;
      case 10:
        read_logical(in, node);
        return true;
      default:
        return false;
    }
  });
  if (element.has_type && (node.type < Physical::boolean || node.type > Physical::fixed))
    throw Damage{"a column of an unknown type"};
  if (node.repetition < Node::Repetition::required || node.repetition > Node::Repetition::repeated)
    throw Damage{"a column of an unknown repetition"};
  if (node.type == Physical::fixed && element.has_type && (node.width < 1 || node.width > 1 << 20))
    throw Damage{"a column of an impossible width"};
  return element;
}

/// Makes the tree of elements in depth-first order, and counts levels and columns.
class SchemaBuilder {
 public:
  explicit SchemaBuilder(std::vector<Element> elements) : elements_(std::move(elements)) {}

  Node build() {
    if (elements_.empty()) throw Damage{"no schema"};
    elements_.front().node.repetition = Node::Repetition::required;
    Node root = next(0, 0, 0);
    if (at_ != elements_.size()) throw Damage{"a schema with elements left over"};
    return root;
  }

 private:
  Node next(int depth, int definition, int repetition) {
    if (depth > kDeepestSchema) throw Damage{"a schema that nests too deep"};
    if (at_ >= elements_.size()) throw Damage{"a schema that lacks elements"};
    Element& element = elements_[at_++];
    Node node = std::move(element.node);
    if (node.repetition != Node::Repetition::required) ++definition;
    if (node.repetition == Node::Repetition::repeated) ++repetition;
    node.definition = definition;
    node.repetition_level = repetition;
    node.first = columns_;
    if (element.has_type) {
      ++columns_;
    } else {
      if (element.children < 1) throw Damage{"a group without columns"};
      for (std::int64_t i = 0; i < element.children; ++i)
        node.children.push_back(next(depth + 1, definition, repetition));
    }
    node.end = columns_;
    return node;
  }

  std::vector<Element> elements_;
  std::size_t at_ = 0, columns_ = 0;
};

void read_chunk_metadata(ThriftReader& in, ColumnChunk& chunk) {
  std::int64_t data = 0, dictionary = 0;
  in.structure([&](Field field) {
    switch (field.id) {
      case 1:
        chunk.type = static_cast<Physical>(in.number());
        return true;
      case 4:
        chunk.codec = static_cast<Codec>(in.number());
        return true;
      case 5:
        chunk.values = in.number();
        return true;
      case 7:
        chunk.bytes = in.number();
        return true;
      case 9:
        data = in.number();
        return true;
      case 11:
        dictionary = in.number();
        return true;
      default:
        return false;
    }
  });
  // Some writers leave 0 where there is no dictionary.
  chunk.begin = dictionary > 0 && dictionary < data ? dictionary : data;
}

ColumnChunk read_chunk(ThriftReader& in, const std::string& path) {
  ColumnChunk chunk;
  bool has_metadata = false;
  in.structure([&](Field field) {
    if (field.id == 1)
      refuse(path, " has its columns in other files (", in.binary(), "); give those");
    if (field.id == 8) refuse(path, " has encrypted columns; write it without encryption");
    if (field.id != 3) return false;
    has_metadata = true;
    read_chunk_metadata(in, chunk);
    return true;
  });
  if (!has_metadata) throw Damage{"a column without a description"};
  return chunk;
}

RowGroup read_group(ThriftReader& in, const std::string& path) {
  RowGroup group;
  in.structure([&](Field field) {
    if (field.id == 1) {
      in.list(Type::structure, [&] { group.chunks.push_back(read_chunk(in, path)); });
      return true;
    }
    if (field.id != 3) return false;
    group.rows = in.number();
    return true;
  });
  return group;
}

Metadata parse_metadata(ThriftReader& in, const std::string& path) {
  Metadata metadata;
  std::vector<Element> elements;
  in.structure([&](Field field) {
    switch (field.id) {
      case 2:
        in.list(Type::structure, [&] { elements.push_back(read_element(in)); });
        return true;
      case 3:
        metadata.rows = in.number();
        return true;
      case 4:
        in.list(Type::structure, [&] { metadata.groups.push_back(read_group(in, path)); });
        return true;
      default:
        return false;
    }
  });
  metadata.schema = SchemaBuilder(std::move(elements)).build();
  return metadata;
}

void check_groups(const Metadata& metadata, std::int64_t end) {
  std::int64_t rows = 0;
  for (const RowGroup& group : metadata.groups) {
    if (group.chunks.size() != metadata.schema.end)
      throw Damage{"a row group with another number of columns"};
    if (group.rows < 0 || group.rows > metadata.rows - rows)
      throw Damage{"row groups with more rows than the file"};
    rows += group.rows;
    for (const ColumnChunk& chunk : group.chunks)
      if (group.rows > 0 && (chunk.begin < 4 || chunk.bytes < 0 || chunk.begin > end ||
                             chunk.bytes > end - chunk.begin))
        throw Damage{"a column outside of the file"};
  }
  if (rows != metadata.rows) throw Damage{"row groups with fewer rows than the file"};
}

/// Reads a field of what a page's head says of pages of its kind: the structure's number is `kind`.
bool read_of_page(ThriftReader& in, int kind, Field field, PageHead& head) {
  constexpr int kData = 5, kDictionary = 7, kData2 = 8;
  const auto encoding = [&] { return static_cast<Encoding>(in.number()); };
  if (kind != kData && kind != kDictionary && kind != kData2) return false;
  if (field.id == 1) return head.values = in.number(), true;
  if (kind == kData2) {
    if (field.id == 4) return head.encoding = encoding(), true;
    if (field.id == 5) return head.definition_bytes = in.number(), true;
    if (field.id == 6) return head.repetition_bytes = in.number(), true;
    if (field.id == 7) return head.is_compressed = field.type == Type::yes, true;
    return false;
  }
  if (field.id == 2) return head.encoding = encoding(), true;
  if (kind == kDictionary) return false;
  if (field.id == 3) return head.definition_encoding = encoding(), true;
  if (field.id == 4) return head.repetition_encoding = encoding(), true;
  return false;
}

}  // namespace

Metadata read_metadata(const InputFile& file) {
  const auto damaged = [&](const char* what) {
    refuse(file.path(), " is damaged, or no Parquet file: ", what, "; copy or download it again");
  };
  if (file.bytes() < kFooter + std::ssize(kMagic)) damaged("it is too short");
  std::array<char, kFooter> footer{};
  file.read(file.bytes() - kFooter, std::as_writable_bytes(std::span(footer)));
  const std::string_view magic(footer.data() + 4, 4);
  if (magic == "PARE") refuse(file.path(), " is encrypted; write it without encryption");
  if (magic != kMagic) damaged("it does not end as one does, so it may be cut short");
  std::uint32_t size = 0;
  std::memcpy(&size, footer.data(), sizeof size);
  if (size > file.bytes() - kFooter) damaged("its description is larger than the file");
  std::string text(size, '\0');
  file.read(file.bytes() - kFooter - size, std::as_writable_bytes(std::span(text)));
  try {
    ThriftReader in(text);
    Metadata metadata = parse_metadata(in, file.path());
    check_groups(metadata, file.bytes() - kFooter - size);
    return metadata;
  } catch (const Damage& damage) {
    damaged(damage.what);
    throw;
  }
}

std::size_t read_page_head(std::string_view bytes, PageHead& head) {
  ThriftReader in(bytes);
  in.structure([&](Field field) {
    if (field.type == Type::structure)
      return in.structure([&](Field of) { return read_of_page(in, field.id, of, head); }), true;
    if (field.id == 1) return head.kind = static_cast<PageHead::Kind>(in.number()), true;
    if (field.id == 2) return head.uncompressed = in.number(), true;
    if (field.id == 3) return head.compressed = in.number(), true;
    if (field.id != 4) return false;
    head.checksum = static_cast<std::uint32_t>(in.number());
    return head.has_checksum = true;
  });
  return in.position();
}

}  // namespace axonn::parquet
