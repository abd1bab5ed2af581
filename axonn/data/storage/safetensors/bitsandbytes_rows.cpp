// Weights that bitsandbytes quantized, as transformers' save_pretrained writes them.
#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstring>
#include <memory>

#include <nlohmann/json.hpp>

#include "axonn/data/storage/parameter_source.h"
#include "axonn/data/storage/safetensors/packed_rows.h"

namespace axonn {

namespace {

using Tensor = SafetensorsFolder::Tensor;
using Shape = std::vector<std::int64_t>;

bool is(const Tensor& tensor, StoredType type, const Shape& shape) {
  return tensor.entry && tensor.entry->type == type && tensor.entry->shape == shape;
}

/// Fills a container with the elements of a tensor of its type from `first` on.
void read_from(const Tensor& tensor, std::int64_t first, auto& out) {
  constexpr std::int64_t kEach = sizeof(*out.data());
  tensor.file->read(*tensor.entry, first * kEach, std::as_writable_bytes(std::span(out)));
}

constexpr std::array<const char*, 2> kStates = {".quant_state.bitsandbytes__nf4",
                                                ".quant_state.bitsandbytes__fp4"};
constexpr std::int64_t kLeastBlock = 32, kMostBlock = 4096;  // powers of two
constexpr std::int64_t kMostState = 4096;                    // bytes of JSON

std::int64_t blocks_of(std::int64_t count, std::int64_t block) {
  return (count + block - 1) / block;
}

bool is_block(std::int64_t block) {
  return block >= kLeastBlock && block <= kMostBlock &&
         std::has_single_bit(static_cast<std::uint64_t>(block));
}

/// The tensors of a matrix in 4 bits.
struct FourBits {
  Tensor codes, absmax, map, nested_absmax = {}, nested_map = {};
  std::int64_t rows = 0, cols = 0, block = 0, nested_block = 0;
  float offset = 0;

  std::int64_t blocks() const { return blocks_of(rows * cols, block); }
  bool nested() const { return nested_absmax.entry != nullptr; }
  /// Whether types and sizes agree with each other.
  bool fits() const {
    if (codes.entry->bytes() != (rows * cols + 1) / 2 || !is_block(block)) return false;
    if (!is(map, StoredType::f32, {16})) return false;
    if (!nested()) return is(absmax, StoredType::f32, {blocks()});
    return is_block(nested_block) && is(absmax, StoredType::u8, {blocks()}) &&
           is(nested_absmax, StoredType::f32, {blocks_of(blocks(), nested_block)}) &&
           is(nested_map, StoredType::f32, {256}) && std::isfinite(offset);
  }
  std::vector<std::string> names(const std::string& state) const {
    std::vector<std::string> all{state};
    for (const Tensor& tensor : {codes, absmax, map, nested_absmax, nested_map})
      if (tensor.entry) all.push_back(tensor.entry->name);
    return all;
  }
};

class FourBitRows final : public PackedRows {
 public:
  FourBitRows(const FourBits& parts, const std::string& state)
      : PackedRows(parts.names(state)), parts_(parts) {
    read_from(parts.map, 0, map_);
    if (parts.nested()) read_from(parts.nested_map, 0, nested_map_);
  }

  StoredType type() const override { return StoredType::f32; }

  std::int64_t read(std::int64_t row, std::int64_t col, std::span<std::byte> out) const override {
    const std::int64_t count = std::ssize(out) / bytes_of(type()), first = row * parts_.cols + col,
                       end = first + count, block = first / parts_.block;
    std::vector<std::byte> codes((end + 1) / 2 - first / 2);
    read_from(parts_.codes, first / 2, codes);
    std::int64_t bytes = std::ssize(codes);
    const std::vector<float> factors =
        factors_of(block, blocks_of(end, parts_.block) - block, bytes);
    std::vector<float> values(count);
    for (std::int64_t i = 0; i < count; ++i) {
      const std::int64_t at = first + i;
      const auto two = std::to_integer<unsigned>(codes[at / 2 - first / 2]);
      values[i] = map_[at % 2 == 0 ? two >> 4 : two & 15] * factors[at / parts_.block - block];
    }
    from_floats(type(), values, out);
    return bytes;
  }

 private:
  /// The factors of blocks from `first` on; adds the bytes that are read.
  std::vector<float> factors_of(std::int64_t first, std::int64_t count, std::int64_t& bytes) const {
    std::vector<float> factors(count);
    if (!parts_.nested()) {
      read_from(parts_.absmax, first, factors);
      bytes += count * std::int64_t{sizeof(float)};
      return factors;
    }
    std::vector<std::uint8_t> codes(count);
    read_from(parts_.absmax, first, codes);
    const std::int64_t begin = first / parts_.nested_block;
    std::vector<float> outer(blocks_of(first + count, parts_.nested_block) - begin);
    read_from(parts_.nested_absmax, begin, outer);
    for (std::int64_t i = 0; i < count; ++i) {
      // Rounded twice, which a fused product and sum would not be.
      const volatile float product =
          nested_map_[codes[i]] * outer[(first + i) / parts_.nested_block - begin];
      factors[i] = product + parts_.offset;
    }
    bytes += count + std::ssize(outer) * std::int64_t{sizeof(float)};
    return factors;
  }

  FourBits parts_;
  std::array<float, 16> map_{};
  std::array<float, 256> nested_map_{};
};

/// A number of the JSON object, or `otherwise` if it is no number.
double number_in(const nlohmann::json& state, const char* key, double otherwise) {
  const auto found = state.find(key);
  return found != state.end() && found->is_number() ? found->get<double>() : otherwise;
}

class Int8Rows final : public PackedRows {
 public:
  Int8Rows(Tensor codes, Tensor scales, std::vector<std::string> names, std::int64_t cols)
      : PackedRows(std::move(names)), codes_(codes), scales_(scales), cols_(cols) {}

  StoredType type() const override { return StoredType::f32; }

  std::int64_t read(std::int64_t row, std::int64_t col, std::span<std::byte> out) const override {
    constexpr float kLargestCode = 127;
    const std::int64_t count = std::ssize(out) / bytes_of(type());
    std::vector<std::int8_t> codes(count);
    std::vector<float> values(count);
    read_from(codes_, row * cols_ + col, codes);
    std::array<float, 1> scale{};
    read_from(scales_, row, scale);
    for (std::int64_t i = 0; i < count; ++i)
      values[i] = static_cast<float>(codes[i]) * scale[0] / kLargestCode;
    from_floats(type(), values, out);
    return count + std::int64_t{sizeof(float)};
  }

 private:
  Tensor codes_, scales_;
  std::int64_t cols_;
};

/// The JSON of a quant_state; no object if the tensor holds none.
nlohmann::json read_state(const Tensor& tensor) {
  if (tensor.entry->type != StoredType::u8 || tensor.entry->bytes() > kMostState) return nullptr;
  std::string text(tensor.entry->bytes(), '\0');
  read_from(tensor, 0, text);
  return nlohmann::json::parse(text, nullptr, false);
}

}  // namespace

std::shared_ptr<const PackedRows> find_four_bits(const SafetensorsFolder& folder,
                                                 const std::string& name, const PackedShape& shape,
                                                 Differences& differences) {
  Tensor state;
  for (const char* const kind : kStates)
    if (!state.entry) state = folder.find(name + kind);
  if (!state.entry || shape.outer > 0) return nullptr;
  FourBits parts{.codes = folder.find(name),
                 .absmax = folder.find(name + ".absmax"),
                 .map = folder.find(name + ".quant_map"),
                 .nested_absmax = folder.find(name + ".nested_absmax"),
                 .nested_map = folder.find(name + ".nested_quant_map"),
                 .rows = shape.rows,
                 .cols = shape.cols};
  const nlohmann::json json = read_state(state);
  if (json.is_object()) {
    const auto block = [&](const char* key) {
      const double number = number_in(json, key, 0);
      return number >= 0 && number <= kMostBlock ? static_cast<std::int64_t>(number) : 0;
    };
    parts.block = block("blocksize");
    parts.nested_block = block("nested_blocksize");
    parts.offset = static_cast<float>(number_in(json, "nested_offset", std::nan("")));
  }
  const Shape matrix = shape.cols == 1 ? Shape{shape.rows} : Shape{shape.rows, shape.cols};
  if (parts.codes.entry && json.is_object() && json.value("shape", nlohmann::json()) == matrix &&
      parts.fits())
    return std::make_shared<FourBitRows>(parts, state.entry->name);
  differences.add(name, " and ", state.entry->name, " are not a matrix (", shape.rows, ", ",
                  shape.cols, ") in 4 bits of bitsandbytes: codes of half a byte, a quant_map of ",
                  "16, and an absmax for each block, F32 or nested");
  return nullptr;
}

std::shared_ptr<const PackedRows> find_int8(const SafetensorsFolder& folder,
                                            const std::string& name, const PackedShape& shape,
                                            Differences& differences) {
  constexpr std::string_view kWeight = "weight";
  if (!name.ends_with(kWeight) || shape.outer > 0) return nullptr;
  const std::string module = name.substr(0, name.size() - kWeight.size());
  const Tensor codes = folder.find(name), scales = folder.find(module + "SCB"),
               format = folder.find(name + "_format");
  if (!codes.entry || codes.entry->type != StoredType::i8 || !scales.entry) return nullptr;
  std::vector<std::string> names{name, scales.entry->name};
  std::array<std::uint8_t, 1> layout{};
  bool known = true;
  if (format.entry) {
    names.push_back(format.entry->name);
    known = format.entry->type == StoredType::u8 && format.entry->bytes() == 1;
    if (known) read_from(format, 0, layout);
  }
  if (!known || layout[0] != 0 || codes.entry->shape != Shape{shape.rows, shape.cols} ||
      !is(scales, StoredType::f32, {shape.rows}))
    differences.add(name, " and ", scales.entry->name, " are not a matrix (", shape.rows, ", ",
                    shape.cols, ") in 8 bits of bitsandbytes: I8 codes, row after row, and an F32 ",
                    "factor for each row");
  return std::make_shared<Int8Rows>(codes, scales, std::move(names), shape.cols);
}

}  // namespace axonn
