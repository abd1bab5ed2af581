#include "axonn/data/storage/safetensors/safetensors.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <optional>
#include <set>

#include <nlohmann/json.hpp>

#include "axonn/compute/tensor/dtype.h"

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

void check(StoredType type, std::size_t bytes, std::size_t count) {
  AXONN_CHECK(is_float(type) && bytes == count * static_cast<std::size_t>(bytes_of(type)), bytes,
              " bytes of ", name_of(type), " for ", count, " floats; wanted F16, BF16 or F32");
}

constexpr std::int64_t kMostHeaderBytes = 100'000'000;  // the format's own limit

using Event = json::parse_event_t;

/// Parses JSON. `take` gets each event of the parser and the number of objects and lists around it.
/// It returns false to drop a value, so that memory stays in proportion to the text. Throws
/// UsageError, with `where`, for invalid JSON.
void parse(std::string_view text, const std::string& where, json::parser_callback_t take) {
  // The parser takes a zero byte for the end of the text and would ignore what follows.
  if (text.find('\0') != text.npos) refuse(where, ": it contains a zero byte");
  try {
    [[maybe_unused]] const json rest = json::parse(text, std::move(take));
  } catch (const json::parse_error& error) {
    refuse(where, ": invalid JSON from byte ", error.byte, " on");
  } catch (const json::exception&) {
    refuse(where, ": invalid JSON: a number is out of range");
  }
}

/// Builds a header from the parser's events. Drops each entry when it is complete.
///
///   depth 1   {"name": entry, "__metadata__": {string: string}}
///   depth 2   {"dtype": string, "shape": [..], "data_offsets": [begin, end]}
class HeaderReader {
 public:
  explicit HeaderReader(std::string where) : where_(std::move(where)) {}

  bool operator()(int depth, Event event, json& value) {
    if (event == Event::key) return take_key(depth, value.get_ref<const std::string&>());
    if (event == Event::object_start && depth > 1) unexpected(depth, "an object");
    if (event == Event::array_start && !(depth == 2 && holds_list())) unexpected(depth, "a list");
    if (event == Event::value) check_value(depth, value);
    if (event != Event::object_end || depth != 1) return true;
    if (!in_metadata_) entries_.push_back(entry_of(value));
    return false;
  }

  std::vector<SafetensorsEntry> take() { return std::move(entries_); }

 private:
  template <typename... Parts>
  [[noreturn]] void bad(int depth, const Parts&... parts) const {
    const bool in_entry = depth > 1 && !in_metadata_;
    refuse(where_, ": ", in_entry ? concat("entry \"", name_, "\": ") : "", parts...);
  }
  [[noreturn]] void unexpected(int depth, const char* what) const {
    bad(depth, what, " is not expected there");
  }
  bool holds_list() const { return !in_metadata_ && (key_ == "shape" || key_ == "data_offsets"); }

  bool take_key(int depth, const std::string& key) {
    if (depth == 1) keys_[1].clear();
    if (!keys_[depth - 1].insert(key).second) bad(depth, "the key \"", key, "\" comes twice");
    key_ = key;
    if (depth == 1) {
      in_metadata_ = key == "__metadata__";
      name_ = key;
    } else if (!in_metadata_ && key != "dtype" && !holds_list()) {
      bad(depth, "the key \"", key, "\" is not known");
    }
    return depth == 1 || !in_metadata_;
  }

  void check_value(int depth, const json& value) const {
    constexpr std::array kWhat = {"null",      "an object",         "a list",   "a string",
                                  "a boolean", "a negative number", "a number", "a fraction"};
    const bool text = depth == 2 && (in_metadata_ || key_ == "dtype");
    if (text ? !value.is_string() : depth < 3 || !value.is_number_unsigned())
      unexpected(depth, kWhat[static_cast<std::size_t>(value.type())]);
    if (!text && value.get<std::uint64_t>() > std::uint64_t{INT64_MAX})
      bad(depth, value.get<std::uint64_t>(), " is out of range");
  }

  SafetensorsEntry entry_of(const json& value) const {
    for (const char* want : {"dtype", "shape", "data_offsets"})
      if (!value.contains(want)) bad(2, "it has no ", want);
    const auto& dtype = value["dtype"].get_ref<const std::string&>();
    const auto type = std::ranges::find(kNames, dtype);
    if (type == kNames.end()) bad(2, "the dtype ", dtype, " is not known");
    const json& offsets = value["data_offsets"];
    if (offsets.size() != 2) bad(2, "data_offsets must be [begin, end]");
    return {.name = name_,
            .type = static_cast<StoredType>(type - kNames.begin()),
            .shape = value["shape"],
            .begin = offsets[0],
            .end = offsets[1]};
  }

  std::string where_;
  std::vector<SafetensorsEntry> entries_;
  std::array<std::set<std::string>, 2> keys_;  // of the root and of the open entry
  std::string name_, key_;                     // of the entry, and the latest
  bool in_metadata_ = false;
};

/// Reads the map from tensors to files in the index of a folder.
std::map<std::string, std::string> read_weight_map(const std::string& path) {
  std::map<std::string, std::string> files;
  std::string section, tensor;
  parse(read_text(path, kMostHeaderBytes), path, [&](int depth, Event event, json& value) {
    const bool in_map = depth == 2 && section == "weight_map";
    if (event == Event::key) {
      (depth == 1 ? section : tensor) = value.get<std::string>();
      if (in_map && files.contains(tensor))
        refuse(path, ": the tensor \"", tensor, "\" comes twice");
    } else if (in_map) {
      if (!value.is_string()) refuse(path, ": weight_map has no file name for \"", tensor, '"');
      files[tensor] = value.get<std::string>();
    }
    return depth < 2;
  });
  return files;
}

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

bool is_float(StoredType type) {
  return type == StoredType::f16 || type == StoredType::bf16 || type == StoredType::f32;
}

void to_floats(StoredType type, std::span<const std::byte> bytes, std::span<float> out) {
  check(type, bytes.size(), out.size());
  const auto each = [&](auto convert) {
    for (std::size_t i = 0; i < out.size(); ++i) {
      std::uint16_t stored;
      std::memcpy(&stored, bytes.data() + i * sizeof stored, sizeof stored);
      out[i] = convert(stored);
    }
  };
  if (type == StoredType::f32)
    std::memcpy(out.data(), bytes.data(), bytes.size());
  else if (type == StoredType::bf16)
    each([](std::uint16_t bits) { return get(bf16{bits}); });
  else
    each([](std::uint16_t bits) { return get(f16{bits}); });
}

void from_floats(StoredType type, std::span<const float> values, std::span<std::byte> out) {
  check(type, out.size(), values.size());
  const auto each = [&]<typename T>(T stored) {
    for (std::size_t i = 0; i < values.size(); ++i) {
      put(stored, values[i]);
      std::memcpy(out.data() + i * sizeof stored, &stored, sizeof stored);
    }
  };
  if (type == StoredType::f32)
    std::memcpy(out.data(), values.data(), out.size());
  else if (type == StoredType::bf16)
    each(bf16{});
  else
    each(f16{});
}

SafetensorsHeader parse_safetensors_header(std::string_view text, std::int64_t file_bytes,
                                           const std::string& path) {
  if (!text.starts_with('{'))
    refuse(path, " is not a safetensors file: its header is not a JSON object");
  const std::string where = path + ": bad safetensors header";
  HeaderReader reader(where);
  parse(text, where, std::ref(reader));
  SafetensorsHeader header{.entries = reader.take(), .data_offset = 8 + std::ssize(text)};
  check_data(header, file_bytes - header.data_offset, path);
  return header;
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
  const std::int64_t count = std::ssize(out);
  AXONN_CHECK(begin >= 0 && count <= entry.bytes() && begin <= entry.bytes() - count, "read of ",
              count, " bytes at ", begin, " of \"", entry.name, "\", which has ", entry.bytes());
  file_.read(header_.data_offset + entry.begin + begin, out);
}

std::string make_safetensors_header(std::vector<SafetensorsEntry>& entries) {
  nlohmann::ordered_json object = {{"__metadata__", {{"format", "pt"}}}};
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

SafetensorsFolder::SafetensorsFolder(std::string path, const std::string& stem)
    : path_(std::move(path)) {
  if (!is_folder(path_)) refuse(path_, " is not a folder");
  const std::string name = stem + ".safetensors", index = path_ + '/' + name + ".index.json";
  // As transformers does: an index beside a whole file is left over from something else.
  if (path_exists(path_ + '/' + name)) {
    tensors_ = open(name);
  } else if (path_exists(index)) {
    open_shards(index);
  } else {
    refuse(path_, " has neither ", name, " nor ", name, ".index.json",
           "; download the weights, or save them as safetensors (.bin weights cannot be read)");
  }
}

/// Opens a file of the folder and returns its tensors.
SafetensorsFolder::Tensors SafetensorsFolder::open(const std::string& name) {
  const SafetensorsFile& file =
      *files_.emplace_back(std::make_unique<SafetensorsFile>(path_ + '/' + name));
  Tensors tensors;
  for (const SafetensorsEntry& entry : file.header().entries) tensors[entry.name] = {&file, &entry};
  return tensors;
}

void SafetensorsFolder::open_shards(const std::string& index) {
  const auto files = read_weight_map(index);
  if (files.empty()) refuse(index, " has no weight_map, or an empty one");
  std::map<std::string, Tensors> shards;
  for (const auto& [tensor, name] : files) {
    if (name.find('/') != name.npos || name.empty())
      refuse(index, ": \"", name, "\", listed as the file of ", tensor, ", is not a file name");
    const auto [shard, added] = shards.try_emplace(name);
    if (added) shard->second = open(name);
    const auto found = shard->second.find(tensor);
    if (found == shard->second.end())
      refuse(index, " says that ", name, " holds ", tensor, ", but it does not");
    tensors_.insert(*found);
  }
  // Shards may hold more than the index says: it is the model's, too, or not known.
  for (const auto& [name, tensors] : shards) tensors_.insert(tensors.begin(), tensors.end());
}

SafetensorsFolder::Tensor SafetensorsFolder::find(std::string_view name) const {
  const auto found = tensors_.find(name);
  return found == tensors_.end() ? Tensor{} : found->second;
}

bool same_values(const SafetensorsFolder::Tensor& a, const SafetensorsFolder::Tensor& b) {
  const StoredType types[2] = {a.entry->type, b.entry->type};
  const bool as_floats = types[0] != types[1];
  if (a.entry->shape != b.entry->shape) return false;
  if (as_floats && !(is_float(types[0]) && is_float(types[1]))) return false;
  constexpr std::int64_t kAtOnce = 1 << 20;  // elements
  std::vector<std::byte> bytes[2];
  std::vector<float> values[2];
  const std::int64_t count = a.entry->bytes() / bytes_of(types[0]);
  for (std::int64_t at = 0; at < count; at += kAtOnce) {
    const std::int64_t n = std::min(kAtOnce, count - at);
    for (int i = 0; i < 2; ++i) {
      const SafetensorsFolder::Tensor& tensor = i == 0 ? a : b;
      const std::int64_t width = bytes_of(types[i]);
      bytes[i].resize(n * width);
      tensor.file->read(*tensor.entry, at * width, bytes[i]);
      values[i].resize(as_floats ? n : 0);
      if (as_floats) to_floats(types[i], bytes[i], values[i]);
    }
    if (as_floats ? values[0] != values[1] : bytes[0] != bytes[1]) return false;
  }
  return true;
}

}  // namespace axonn
