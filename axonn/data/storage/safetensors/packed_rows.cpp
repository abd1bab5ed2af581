#include "axonn/data/storage/safetensors/packed_rows.h"

#include <array>
#include <cmath>
#include <vector>

#include "axonn/data/storage/parameter_source.h"

namespace axonn {

namespace {

using Shape = std::vector<std::int64_t>;

constexpr std::int64_t kMxBlock = 32, kMxBlockBytes = kMxBlock / 2;
constexpr int kExponentBias = 127;
constexpr std::array<float, 16> kFp4 = {0,     0.5f,  1,  1.5f,  2,  3,  4,  6,
                                        -0.0f, -0.5f, -1, -1.5f, -2, -3, -4, -6};

class Mxfp4Rows final : public PackedRows {
 public:
  Mxfp4Rows(SafetensorsFolder::Tensor blocks, SafetensorsFolder::Tensor scales, std::int64_t cols)
      : PackedRows({blocks.entry->name, scales.entry->name}),
        blocks_(blocks),
        scales_(scales),
        each_(cols / kMxBlock) {}

  StoredType type() const override { return StoredType::bf16; }
  Quantization kind() const override { return Quantization::mxfp4; }

  std::int64_t read(std::int64_t row, std::int64_t col, std::span<std::byte> out) const override {
    const std::int64_t count = std::ssize(out) / bytes_of(type()), first = col / kMxBlock,
                       end = (col + count + kMxBlock - 1) / kMxBlock;
    const auto [blocks, scales] = read_blocks(row, first, end - first);
    std::vector<float> values(count);
    for (std::int64_t i = 0; i < count; ++i) {
      const std::int64_t from = col - first * kMxBlock + i;
      const auto two = std::to_integer<unsigned>(blocks[from / 2]);
      const int scale = std::to_integer<int>(scales[from / kMxBlock]);
      values[i] = std::ldexp(kFp4[from % 2 == 0 ? two & 15 : two >> 4], scale - kExponentBias);
    }
    from_floats(type(), values, out);
    return std::ssize(blocks) + std::ssize(scales);
  }

  /// A file has codes of neighbours in a byte, a record those of both halves of its block.
  std::int64_t read_records(std::int64_t row, std::int64_t begin,
                            std::span<std::byte> out) const override {
    constexpr std::int64_t kBytes = QuantizedForm{Quantization::mxfp4, kMxBlock}.record_bytes();
    const auto [blocks, scales] = read_blocks(row, begin, std::ssize(out) / kBytes);
    constexpr std::byte kLow{0x0f}, kHigh{0xf0};
    for (std::size_t block = 0; block < scales.size(); ++block) {
      const std::byte* const first = blocks.data() + block * kMxBlockBytes;
      const std::byte* const second = first + kMxBlockBytes / 2;
      std::byte* const to = out.data() + block * kBytes;
      to[0] = scales[block];
      for (std::int64_t i = 0; i < kMxBlockBytes / 2; ++i) {
        to[1 + 2 * i] = (first[i] & kLow) | second[i] << 4;
        to[2 + 2 * i] = first[i] >> 4 | (second[i] & kHigh);
      }
    }
    return std::ssize(blocks) + std::ssize(scales);
  }

 private:
  struct Blocks {
    std::vector<std::byte> codes, scales;
  };
  Blocks read_blocks(std::int64_t row, std::int64_t first, std::int64_t count) const {
    const std::int64_t at = row * each_ + first;
    Blocks read{std::vector<std::byte>(count * kMxBlockBytes), std::vector<std::byte>(count)};
    blocks_.file->read(*blocks_.entry, at * kMxBlockBytes, read.codes);
    scales_.file->read(*scales_.entry, at, read.scales);
    return read;
  }

  SafetensorsFolder::Tensor blocks_, scales_;
  std::int64_t each_;  // blocks of a row
};

constexpr std::int64_t kFp8Block = 128;

/// Sign, 4 bits of exponent with a bias of 7, 3 bits: no infinity, and NaN if all bits are set.
float from_e4m3(unsigned bits) {
  const int exponent = static_cast<int>(bits >> 3 & 15), fraction = static_cast<int>(bits & 7);
  if (exponent == 15 && fraction == 7) return std::nanf("");
  const float size = exponent == 0 ? std::ldexp(static_cast<float>(fraction), -9)
                                   : std::ldexp(static_cast<float>(8 + fraction), exponent - 10);
  return bits & 128 ? -size : size;
}

class Fp8Rows final : public PackedRows {
 public:
  Fp8Rows(SafetensorsFolder::Tensor values, SafetensorsFolder::Tensor scales, std::int64_t cols)
      : PackedRows({values.entry->name, scales.entry->name}),
        values_(values),
        scales_(scales),
        cols_(cols) {
    for (unsigned bits = 0; bits < table_.size(); ++bits) table_[bits] = from_e4m3(bits);
  }

  StoredType type() const override { return StoredType::f32; }

  std::int64_t read(std::int64_t row, std::int64_t col, std::span<std::byte> out) const override {
    const std::int64_t count = std::ssize(out) / bytes_of(type()), first = col / kFp8Block,
                       end = (col + count + kFp8Block - 1) / kFp8Block,
                       each = (cols_ + kFp8Block - 1) / kFp8Block;
    std::vector<std::byte> bytes(count);
    std::vector<float> scales(end - first), values(count);
    values_.file->read(*values_.entry, row * cols_ + col, bytes);
    scales_.file->read(*scales_.entry,
                       (row / kFp8Block * each + first) * std::int64_t{sizeof(float)},
                       std::as_writable_bytes(std::span(scales)));
    for (std::int64_t i = 0; i < count; ++i)
      values[i] =
          table_[std::to_integer<unsigned>(bytes[i])] * scales[(col + i) / kFp8Block - first];
    from_floats(type(), values, out);
    return count + (end - first) * std::int64_t{sizeof(float)};
  }

 private:
  SafetensorsFolder::Tensor values_, scales_;
  std::int64_t cols_;
  std::array<float, 256> table_;
};

}  // namespace

std::shared_ptr<const PackedRows> find_packed(const SafetensorsFolder& folder,
                                              const std::string& name, const PackedShape& shape,
                                              Differences& differences) {
  for (const auto find : {find_mxfp4, find_fp8, find_four_bits, find_int8})
    if (auto rows = find(folder, name, shape, differences)) return rows;
  return nullptr;
}

std::shared_ptr<const PackedRows> find_fp8(const SafetensorsFolder& folder, const std::string& name,
                                           const PackedShape& shape, Differences& differences) {
  const auto tensor = folder.find(name), scales = folder.find(name + "_scale_inv");
  if (!tensor.entry || tensor.entry->type != StoredType::f8_e4m3 || !scales.entry ||
      shape.transposed || shape.outer > 0)
    return nullptr;
  const auto blocks = [](std::int64_t count) { return (count + kFp8Block - 1) / kFp8Block; };
  if (tensor.entry->shape != Shape{shape.rows, shape.cols} ||
      scales.entry->type != StoredType::f32 ||
      scales.entry->shape != Shape{blocks(shape.rows), blocks(shape.cols)})
    differences.add(name, " and ", scales.entry->name, " are not a matrix (", shape.rows, ", ",
                    shape.cols, ") of F8_E4M3 with F32 factors of blocks of ", kFp8Block, " x ",
                    kFp8Block);
  return std::make_shared<Fp8Rows>(tensor, scales, shape.cols);
}

std::shared_ptr<const PackedRows> find_mxfp4(const SafetensorsFolder& folder,
                                             const std::string& name, const PackedShape& shape,
                                             Differences& differences) {
  const auto blocks = folder.find(name + "_blocks"), scales = folder.find(name + "_scales");
  if (!blocks.entry || !scales.entry) return nullptr;
  Shape wanted{shape.rows, shape.cols / kMxBlock};
  if (shape.outer > 0) wanted.insert(wanted.begin(), shape.outer);
  Shape of_blocks = wanted;
  of_blocks.push_back(kMxBlockBytes);
  const auto is = [](const SafetensorsFolder::Tensor& tensor, const Shape& extents) {
    return tensor.entry->type == StoredType::u8 && tensor.entry->shape == extents;
  };
  if (shape.cols % kMxBlock != 0 || !is(blocks, of_blocks) || !is(scales, wanted))
    differences.add(name, "_blocks and _scales are not those of MXFP4 for a tensor (", shape.outer,
                    ", ", shape.rows, ", ", shape.cols, "): U8 values (.., ", shape.cols / kMxBlock,
                    ", 16) and (.., ", shape.cols / kMxBlock, ")");
  return std::make_shared<Mxfp4Rows>(blocks, scales, shape.cols);
}

}  // namespace axonn
