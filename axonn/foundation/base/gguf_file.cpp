#include "axonn/foundation/base/gguf_file.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <limits>
#include <utility>

#include "axonn/foundation/base/check.h"

namespace axonn {

namespace {

constexpr std::int64_t kMostExtent = std::int64_t{1} << 40;  // so that products of two fit
constexpr std::size_t kMostDims = 4;

/// Reads the front of the file piece by piece.
class GgufReader {
 public:
  explicit GgufReader(const InputFile& file) : file_(file) {}

  [[noreturn]] void refuse_file(const auto&... fault) const {
    refuse(file_.path(), " is damaged: at byte ", at_, ": ", fault...);
  }

  template <typename T>
  T take() {
    std::array<std::byte, sizeof(T)> bytes;
    take_bytes(bytes);
    return std::bit_cast<T>(bytes);
  }

  std::string take_text() {
    std::string text(count_of(take<std::uint64_t>(), 1), '\0');
    take_bytes(std::as_writable_bytes(std::span(text)));
    return text;
  }

  /// A number of things of at least so many bytes each, which the rest of the file must hold.
  std::size_t count_of(std::uint64_t count, std::int64_t bytes) const {
    if (count > static_cast<std::uint64_t>((file_.bytes() - at_) / bytes))
      refuse_file("it says that ", count, " values follow, more than the file has");
    return count;
  }

  std::int64_t at() const { return at_; }

  GgufFile::Value take_value(GgufValueType type) {
    if (type == GgufValueType::text) return take_text();
    if (type == GgufValueType::list) return take_list();
    if (type == GgufValueType::f32 || type == GgufValueType::f64) return take_number(type);
    return take_integer(type);
  }

 private:
  void take_bytes(std::span<std::byte> out) {
    // Read in pieces, because numbers are a few bytes each.
    constexpr std::int64_t kPiece = 1 << 16;
    for (std::size_t done = 0; done < out.size();) {
      if (at_ < first_ || at_ >= first_ + std::ssize(piece_)) {
        if (at_ >= file_.bytes()) refuse_file("the file ends");
        first_ = at_;
        piece_.resize(std::min(kPiece, file_.bytes() - at_));
        file_.read(first_, piece_);
      }
      const std::int64_t from = at_ - first_;
      const std::size_t count =
          std::min(out.size() - done, static_cast<std::size_t>(std::ssize(piece_) - from));
      std::copy_n(piece_.begin() + from, count, out.begin() + static_cast<std::ptrdiff_t>(done));
      done += count;
      at_ += static_cast<std::int64_t>(count);
    }
  }

  std::int64_t take_integer(GgufValueType type) {
    switch (type) {
      case GgufValueType::u8:
      case GgufValueType::boolean:
        return take<std::uint8_t>();
      case GgufValueType::i8:
        return take<std::int8_t>();
      case GgufValueType::u16:
        return take<std::uint16_t>();
      case GgufValueType::i16:
        return take<std::int16_t>();
      case GgufValueType::u32:
        return take<std::uint32_t>();
      case GgufValueType::i32:
        return take<std::int32_t>();
      case GgufValueType::u64:
      case GgufValueType::i64:
        return take<std::int64_t>();
      default:
        refuse_file("there is no type of values ", static_cast<std::uint32_t>(type));
    }
  }

  double take_number(GgufValueType type) {
    return type == GgufValueType::f32 ? double{take<float>()} : take<double>();
  }

  GgufFile::Value take_list() {
    const auto type = static_cast<GgufValueType>(take<std::uint32_t>());
    const std::size_t count = count_of(take<std::uint64_t>(), 1);
    const auto all = [&](auto list, const auto& take_one) {
      for (std::size_t i = 0; i < count; ++i) list.push_back(take_one());
      return list;
    };
    if (type == GgufValueType::text)
      return all(std::vector<std::string>(), [&] { return take_text(); });
    if (type == GgufValueType::f32 || type == GgufValueType::f64)
      return all(std::vector<double>(), [&] { return take_number(type); });
    if (type == GgufValueType::list) refuse_file("a list of lists, which no known key has");
    return all(std::vector<std::int64_t>(), [&] { return take_integer(type); });
  }

  const InputFile& file_;
  std::int64_t at_ = 0, first_ = 0;
  std::vector<std::byte> piece_;
};

template <typename T>
const T* value_as(const GgufFile& file, std::string_view key, const char* wanted) {
  const auto found = file.keys().find(key);
  if (found == file.keys().end()) return nullptr;
  const T* const value = std::get_if<T>(&found->second);
  if (!value) refuse(file.path(), ": ", key, " is not ", wanted);
  return value;
}

}  // namespace

GgufFile::GgufFile(const std::string& path) : file_(path) {
  constexpr std::uint32_t kMagic = 0x46554747;  // "GGUF"
  GgufReader reader(file_);
  if (file_.bytes() < 4 || reader.take<std::uint32_t>() != kMagic)
    refuse(path, " is no GGUF file, which begins with \"GGUF\"");
  if (const auto version = reader.take<std::uint32_t>(); version != 2 && version != 3)
    refuse(path, " is a GGUF file of version ", version,
           "; 2 and 3 can be read, in the byte order ",
           "of x86; convert the model again with llama.cpp's script");
  constexpr std::int64_t kLeastTensor = 24, kLeastKey = 13;
  const std::size_t tensors = reader.count_of(reader.take<std::uint64_t>(), kLeastTensor),
                    keys = reader.count_of(reader.take<std::uint64_t>(), kLeastKey);
  for (std::size_t i = 0; i < keys; ++i) {
    std::string key = reader.take_text();
    Value value = reader.take_value(static_cast<GgufValueType>(reader.take<std::uint32_t>()));
    if (!keys_.emplace(key, std::move(value)).second) reader.refuse_file("a second key ", key);
  }
  for (std::size_t i = 0; i < tensors; ++i) {
    std::string name = reader.take_text();
    Tensor tensor;
    const auto dims = reader.take<std::uint32_t>();
    if (dims > kMostDims) reader.refuse_file(name, " has ", dims, " dims");
    std::int64_t count = 1;
    for (std::uint32_t dim = 0; dim < dims; ++dim) {
      const auto extent = reader.take<std::int64_t>();
      if (extent < 1 || extent > kMostExtent / count)
        reader.refuse_file(name, " has a dim of ", extent);
      count *= extent;
      tensor.sizes.push_back(extent);
    }
    tensor.type = reader.take<std::uint32_t>();
    tensor.begin = reader.take<std::int64_t>();
    if (tensor.begin < 0) reader.refuse_file(name, " begins at ", tensor.begin);
    if (!tensors_.emplace(name, std::move(tensor)).second)
      reader.refuse_file("a second tensor ", name);
  }
  const std::int64_t alignment = integer("general.alignment").value_or(32);
  if (alignment < 1 || alignment > kMostExtent) refuse(path, ": general.alignment is ", alignment);
  const std::int64_t data = (reader.at() + alignment - 1) / alignment * alignment;
  for (auto& [name, tensor] : tensors_) {
    if (tensor.begin > file_.bytes() - data)
      refuse(path, " is cut short: ", name, " begins behind its end");
    tensor.begin += data;
  }
}

std::optional<std::int64_t> GgufFile::integer(std::string_view key) const {
  const auto* const value = value_as<std::int64_t>(*this, key, "an integer");
  return value ? std::optional(*value) : std::nullopt;
}

std::optional<double> GgufFile::number(std::string_view key) const {
  const auto found = keys_.find(key);
  if (found == keys_.end()) return {};
  if (const auto* const value = std::get_if<std::int64_t>(&found->second))
    return static_cast<double>(*value);
  return *value_as<double>(*this, key, "a number");
}

std::optional<std::string> GgufFile::text(std::string_view key) const {
  const auto* const value = value_as<std::string>(*this, key, "a text");
  return value ? std::optional(*value) : std::nullopt;
}

const std::vector<std::string>* GgufFile::texts(std::string_view key) const {
  return value_as<std::vector<std::string>>(*this, key, "a list of texts");
}

const std::vector<std::int64_t>* GgufFile::integers(std::string_view key) const {
  return value_as<std::vector<std::int64_t>>(*this, key, "a list of integers");
}

const std::vector<double>* GgufFile::numbers(std::string_view key) const {
  return value_as<std::vector<double>>(*this, key, "a list of numbers");
}

bool begins_as_gguf(const std::string& path) {
  if (!is_plain_file(path)) return false;
  const InputFile file(path);
  std::string begin(std::min<std::int64_t>(file.bytes(), 4), '\0');
  file.read(0, std::as_writable_bytes(std::span(begin)));
  return begin == "GGUF";
}

bool is_gguf(const std::string& path) {
  return is_plain_file(path) && (path.ends_with(".gguf") || begins_as_gguf(path));
}

}  // namespace axonn
