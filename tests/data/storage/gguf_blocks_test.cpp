// Values of blocks of GGUF files: those of the package gguf 0.19, to the bit.
#include "axonn/data/storage/gguf_blocks.h"

#include <algorithm>
#include <bit>
#include <string>
#include <vector>

#include <gmock/gmock.h>

using namespace axonn;

namespace {

/// The package's values of a block whose byte i is 97 i + 13 but for factors in f16, of 0.06873 and
/// -0.009377: value 5, and the FNV-1a hash of the bytes of all.
struct RecordedBlock {
  std::string name;
  std::vector<std::size_t> factors;  ///< where they lie
  float fifth;
  std::uint64_t hash;
};

const std::vector<RecordedBlock> kRecorded = {
    {"Q4_0", {0}, -0.27490234375f, 0x388d12229350d17f},
    {"Q4_1", {0, 2}, 0.40297698974609375f, 0x368e7fd10679fb57},
    {"Q5_0", {0}, -0.5498046875f, 0xaf1646d6c4c55f7d},
    {"Q5_1", {0, 2}, 0.6778793334960938f, 0x2ac6c57e1abe1224},
    {"Q8_0", {0}, -5.22314453125f, 0x22e26f93f6af93e1},
    {"Q2_K", {80, 82}, 1.786865234375f, 0x55e8f53ad60d2d21},
    {"Q3_K", {108}, 0.412353515625f, 0x411908a7a501a467},
    {"Q4_K", {0, 2}, 2.5335769653320312f, 0x6ac0768ff600eab6},
    {"Q5_K", {0, 2}, 2.5335769653320312f, 0xc9337d7e5376c023},
    {"Q6_K", {208}, -7.010009765625f, 0xc2f953319c966458},
    {"IQ4_NL", {0}, -3.3675537109375f, 0x40a4461da7ca910d},
    {"IQ4_XS", {0}, 29.2083740234375f, 0x0dd7c34baf9b8cc9},
    {"MXFP4", {}, 0.375f, 0x11c795af95fe1be5},
};

std::uint64_t fnv(const std::vector<float>& values) {
  std::uint64_t hash = 14695981039346656037ULL;
  for (const float value : values)
    for (int byte = 0; byte < 4; ++byte)
      hash = (hash ^ (std::bit_cast<std::uint32_t>(value) >> 8 * byte & 255)) * 1099511628211ULL;
  return hash;
}

std::vector<float> values_of(const GgufBlocks& type, const std::vector<std::byte>& bytes) {
  std::vector<float> values(type.values);
  type.read(bytes.data(), values.data());
  return values;
}

}  // namespace

TEST(GgufBlocks, HaveTheValuesOfThePackage) {
  for (const auto& [name, factors, fifth, hash] : kRecorded) {
    const auto type = std::ranges::find(gguf_block_types(), name, &GgufBlocks::name);
    ASSERT_NE(type, gguf_block_types().end()) << name;
    std::vector<std::byte> bytes(type->bytes);
    for (std::size_t i = 0; i < bytes.size(); ++i) bytes[i] = std::byte(97 * i + 13);
    for (std::size_t i = 0; i < factors.size(); ++i) {
      const unsigned half = i == 0 ? 0x2c66 : 0xa0cd;
      bytes[factors[i]] = std::byte(half & 255);
      bytes[factors[i] + 1] = std::byte(half >> 8);
    }
    if (name == "MXFP4") bytes[0] = std::byte{125};
    const std::vector<float> values = values_of(*type, bytes);
    EXPECT_EQ(values[5], fifth) << name;
    EXPECT_EQ(fnv(values), hash) << name;
  }
}

TEST(GgufBlocks, OfNumbersAreSingleOnes) {
  const auto value = [](std::uint32_t number, std::vector<std::byte> bytes) {
    return values_of(*find_gguf_blocks(number), bytes)[0];
  };
  EXPECT_EQ(value(0, {std::byte{0}, std::byte{0}, std::byte{0x20}, std::byte{0xc1}}), -10);
  EXPECT_EQ(value(1, {std::byte{0}, std::byte{0x35}}), 0.3125);
  EXPECT_EQ(value(30, {std::byte{0x20}, std::byte{0xc1}}), -10);
}

TEST(GgufBlocks, OfOtherTypesAreNotRead) {
  EXPECT_EQ(find_gguf_blocks(16), nullptr) << "IQ2_XXS";
  EXPECT_THAT(gguf_block_names(), testing::StartsWith("F32, F16, Q4_0"));
  for (const GgufBlocks& type : gguf_block_types())
    EXPECT_EQ(find_gguf_blocks(type.number), &type) << type.name;
}
