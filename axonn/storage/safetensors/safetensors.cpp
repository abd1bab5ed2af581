#include "axonn/storage/safetensors/safetensors.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <optional>
#include <set>

#include <nlohmann/json.hpp>

namespace axonn {

static_assert(std::endian::native == std::endian::little,
              "files are little-endian and are read and written without conversion");

namespace {

using nlohmann::json;

constexpr int kTypes = 15;
constexpr std::array<std::string_view, kTypes> kNames = {"BOOL", "U8",  "I8",  "F8_E4M3", "F8_E5M2",
                                                         "I16",  "U16", "F16", "BF16",    "I32",
                                                         "U32",  "F32", "I64", "U64",     "F64"};
constexpr std::array<std::int64_t, kTypes> kBytes = {1, 1, 1, 1, 1, 2, 2, 2, 2, 4, 4, 4, 8, 8, 8};

/// Builds the header from the parser's events, so that memory stays in proportion to the text and
/// nesting does not use the stack. The first fault ends the parse.
///
///   depth 1   {"name": entry, "__metadata__": {string: string}}
///   depth 2   {"dtype": string, "shape": [..], "data_offsets": [begin, end]}
class HeaderReader : public nlohmann::json_sax<json> {
 public:
  SafetensorsHeader header;
  std::string fault;

  bool null() override { return unexpected("null"); }
  bool boolean(bool) override { return unexpected("a boolean"); }
  bool number_float(double, const std::string&) override { return unexpected("a fraction"); }
  bool number_integer(std::int64_t) override { return unexpected("a negative number"); }
  bool binary(json::binary_t&) override { return unexpected("binary data"); }

  bool number_unsigned(std::uint64_t value) override {
    if (!in_array_) return unexpected("a number");
    if (value > std::uint64_t{INT64_MAX}) return wrong(concat(value, " is out of range"));
    (key_ == "shape" ? entry_.shape : offsets_).push_back(static_cast<std::int64_t>(value));
    return true;
  }

  bool string(std::string& value) override {
    if (in_array_ || depth_ != 2) return unexpected("a string");
    if (in_metadata_) {
      header.metadata[key_] = value;
      return true;
    }
    if (key_ != "dtype") return unexpected("a string");
    const auto name = std::ranges::find(kNames, value);
    if (name == kNames.end()) return wrong(concat("the dtype ", value, " is not known"));
    entry_.type = static_cast<StoredType>(name - kNames.begin());
    return true;
  }

  bool start_object(std::size_t) override {
    if (in_array_ || depth_ == 2) return unexpected("an object");
    keys_[depth_].clear();
    ++depth_;
    return true;
  }

  bool key(std::string& key) override {
    if (!keys_[depth_ - 1].insert(key).second)
      return wrong(concat("the key \"", key, "\" comes twice"));
    if (depth_ == 1) {
      in_metadata_ = key == "__metadata__";
      entry_ = {};
      entry_.name = key;
      offsets_.clear();
    } else if (!in_metadata_ && key != "dtype" && key != "shape" && key != "data_offsets") {
      return wrong(concat("the key \"", key, "\" is not known"));
    }
    key_ = key;
    return true;
  }

  bool end_object() override {
    if (depth_ == 1 || in_metadata_) {
      --depth_;
      return true;
    }
    for (const char* want : {"dtype", "shape", "data_offsets"})
      if (!keys_[1].contains(want)) return wrong(concat("it has no ", want));
    if (offsets_.size() != 2) return wrong("data_offsets must be [begin, end]");
    entry_.begin = offsets_[0];
    entry_.end = offsets_[1];
    header.entries.push_back(std::move(entry_));
    --depth_;
    return true;
  }

  bool start_array(std::size_t) override {
    if (in_array_ || depth_ != 2 || in_metadata_ || key_ == "dtype") return unexpected("a list");
    in_array_ = true;
    return true;
  }

  bool end_array() override {
    in_array_ = false;
    return true;
  }

  bool parse_error(std::size_t position, const std::string&,
                   const nlohmann::detail::exception&) override {
    fault = concat("invalid JSON from byte ", position, " on");
    return false;
  }

 private:
  bool wrong(std::string what) {
    fault = depth_ == 2 && !in_metadata_ ? concat("entry \"", entry_.name, "\": ", what)
                                         : std::move(what);
    return false;
  }
  bool unexpected(const char* what) { return wrong(concat(what, " is not expected there")); }

  int depth_ = 0;
  bool in_metadata_ = false, in_array_ = false;
  std::string key_;
  std::array<std::set<std::string, std::less<>>, 2> keys_;
  SafetensorsEntry entry_;
  std::vector<std::int64_t> offsets_;
};

/// The bytes of the entry's shape and type; nothing if they do not fit 63 bits.
std::optional<std::int64_t> bytes_of(const SafetensorsEntry& entry) {
  std::int64_t bytes = bytes_of(entry.type);
  if (std::ranges::find(entry.shape, 0) != entry.shape.end()) return 0;
  for (std::int64_t extent : entry.shape)
    if (__builtin_mul_overflow(bytes, extent, &bytes)) return {};
  return bytes;
}

void check_data(SafetensorsHeader& header, std::int64_t data_bytes, const std::string& path) {
  std::ranges::sort(header.entries, {}, [](const SafetensorsEntry& entry) {
    return std::pair(entry.begin, entry.end);
  });
  std::int64_t at = 0;
  for (const SafetensorsEntry& entry : header.entries) {
    const auto want = bytes_of(entry);
    if (entry.end < entry.begin || !want || *want != entry.end - entry.begin)
      refuse(path, ": entry \"", entry.name, "\" has data_offsets [", entry.begin, ',', entry.end,
             "], which do not match the size of its shape in ", name_of(entry.type));
    if (entry.begin != at)
      refuse(path, ": entry \"", entry.name, "\" begins at byte ", entry.begin,
             " of the data, but the entry before it ends at ", at);
    at = entry.end;
  }
  if (at != data_bytes)
    refuse(path, " has ", data_bytes, " bytes of data, but its header describes ", at,
           at > data_bytes ? "; it is cut short" : "");
}

}  // namespace

std::int64_t bytes_of(StoredType type) { return kBytes[static_cast<std::size_t>(type)]; }
std::string_view name_of(StoredType type) { return kNames[static_cast<std::size_t>(type)]; }

const SafetensorsEntry* SafetensorsHeader::find(std::string_view name) const {
  const auto found = std::ranges::find(entries, name, &SafetensorsEntry::name);
  return found == entries.end() ? nullptr : &*found;
}

SafetensorsHeader parse_safetensors_header(std::string_view text, std::int64_t file_bytes,
                                           const std::string& path) {
  if (!text.starts_with('{'))
    refuse(path, " is not a safetensors file: its header is not a JSON object");
  // The parser takes a zero byte for the end of the text and would ignore what follows.
  if (text.find('\0') != text.npos)
    refuse(path, ": bad safetensors header: it contains a zero byte");
  HeaderReader reader;
  if (!json::sax_parse(text, &reader)) refuse(path, ": bad safetensors header: ", reader.fault);
  reader.header.data_offset = 8 + static_cast<std::int64_t>(text.size());
  check_data(reader.header, file_bytes - reader.header.data_offset, path);
  return std::move(reader.header);
}

SafetensorsFile::SafetensorsFile(const std::string& path) : file_(path) {
  if (file_.bytes() < 8)
    refuse(path, " is not a safetensors file: it has ", file_.bytes(), " bytes, fewer than 8");
  std::array<std::byte, 8> first;
  file_.read(0, first);
  const auto length = std::bit_cast<std::uint64_t>(first);
  if (length > std::uint64_t{kMostHeaderBytes})
    refuse(path, " is not a safetensors file: its header would have ", length,
           " bytes, but the format allows at most ", kMostHeaderBytes);
  if (static_cast<std::int64_t>(length) > file_.bytes() - 8)
    refuse(path, " is cut short: it has ", file_.bytes(), " bytes, but its header alone needs ",
           8 + length);
  std::string text(length, '\0');
  file_.read(8, std::as_writable_bytes(std::span(text)));
  header_ = parse_safetensors_header(text, file_.bytes(), path);
}

void SafetensorsFile::read(const SafetensorsEntry& entry, std::int64_t begin,
                           std::span<std::byte> out) const {
  const auto count = static_cast<std::int64_t>(out.size());
  AXONN_CHECK(begin >= 0 && count <= entry.bytes() && begin <= entry.bytes() - count, "read of ",
              count, " bytes at ", begin, " of \"", entry.name, "\", which has ", entry.bytes());
  file_.read(header_.data_offset + entry.begin + begin, out);
}

std::string make_safetensors_header(std::vector<SafetensorsEntry>& entries,
                                    std::map<std::string, std::string> metadata) {
  metadata.try_emplace("format", "pt");
  auto object = nlohmann::ordered_json::object();
  object["__metadata__"] = metadata;
  std::int64_t at = 0;
  for (SafetensorsEntry& entry : entries) {
    const auto bytes = bytes_of(entry);
    AXONN_CHECK(bytes && *bytes >= 0 && *bytes <= INT64_MAX - at, "\"", entry.name,
                "\" is too large for a file");
    AXONN_CHECK(entry.name != "__metadata__", "a tensor cannot be named __metadata__");
    entry.begin = at;
    entry.end = at += *bytes;
    object.push_back({entry.name,
                      {{"dtype", name_of(entry.type)},
                       {"shape", entry.shape},
                       {"data_offsets", {entry.begin, entry.end}}}});
  }
  AXONN_CHECK(object.size() == entries.size() + 1, "two tensors of a file have the same name");
  std::string text = object.dump(-1, ' ', false, json::error_handler_t::replace);
  text.resize((text.size() + 7) / 8 * 8, ' ');
  AXONN_CHECK(text.size() <= std::size_t{kMostHeaderBytes}, "a header of ", text.size(),
              " bytes is longer than the format allows, ", kMostHeaderBytes,
              "; write fewer tensors per file");
  std::string bytes(8, '\0');
  const std::uint64_t length = text.size();
  std::memcpy(bytes.data(), &length, 8);
  return bytes + text;
}

}  // namespace axonn
