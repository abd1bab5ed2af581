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
      : blocks_(blocks), scales_(scales), each_(cols / kMxBlock) {}

  StoredType type() const override { return StoredType::bf16; }

  std::int64_t read(std::int64_t row, std::int64_t col, std::span<std::byte> out) const override {
    const std::int64_t count = std::ssize(out) / bytes_of(type()), first = col / kMxBlock,
                       end = (col + count + kMxBlock - 1) / kMxBlock, at = row * each_ + first;
    std::vector<std::byte> blocks((end - first) * kMxBlockBytes), scales(end - first);
    blocks_.file->read(*blocks_.entry, at * kMxBlockBytes, blocks);
    scales_.file->read(*scales_.entry, at, scales);
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

 private:
  SafetensorsFolder::Tensor blocks_, scales_;
  std::int64_t each_;  // blocks of a row
};

}  // namespace

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
