// Folders that bitsandbytes quantized: values to the bit, and refusals.
#include <array>
#include <bit>
#include <cstdint>
#include <string>
#include <vector>

#include <gmock/gmock.h>

#include "axonn/data/storage/safetensors/safetensors_source.h"

#include "tests/support/temporary_path.h"
#include "tests/support/write_safetensors.h"

using namespace axonn;
using namespace axonn::test;
using testing::HasSubstr;

namespace {

constexpr std::array<float, 16> kNf4 = {
    -1.0f,
    -0.6961928009986877f,
    -0.5250730514526367f,
    -0.39491748809814453f,
    -0.28444138169288635f,
    -0.18477343022823334f,
    -0.09105003625154495f,
    0.0f,
    0.07958029955625534f,
    0.16093020141124725f,
    0.24611230194568634f,
    0.33791524171829224f,
    0.44070982933044434f,
    0.5626170039176941f,
    0.7229568362236023f,
    1.0f,
};

/// The tensors of a folder, whose bytes it keeps.
class Tensors {
 public:
  template <typename T>
  void set(const std::string& name, StoredType type, std::vector<std::int64_t> shape,
           const std::vector<T>& values) {
    const auto bytes = std::as_bytes(std::span(values));
    remove(name);
    all_.push_back(
        {{.name = name, .type = type, .shape = std::move(shape)}, {bytes.begin(), bytes.end()}});
  }
  void remove(const std::string& name) {
    std::erase_if(all_, [&](const auto& one) { return one.first.name == name; });
  }
  void set_state(const std::string& json, const std::string& kind = "nf4") {
    set("m.weight.quant_state.bitsandbytes__" + kind, StoredType::u8, {std::ssize(json)},
        std::vector<char>(json.begin(), json.end()));
  }
  void write(const TemporaryPath& folder) const {
    std::vector<SafetensorsTensor> tensors;
    for (const auto& [entry, bytes] : all_) tensors.push_back({entry, bytes});
    write_safetensors(folder / "model.safetensors", tensors);
  }

 private:
  std::vector<std::pair<SafetensorsEntry, std::vector<std::byte>>> all_;
};

SafetensorsSource quantized(const TemporaryPath& folder, const StoredParameter& parameter,
                            const StoredName& name = {{"m.weight"}}) {
  return {SafetensorsFolder(folder.path()),
          {parameter},
          {.of = [=](const std::string&) { return name; },
           .passed_over = [](std::string_view) { return false; },
           .config = "config.json"}};
}

std::vector<float> values_of(SafetensorsSource& source, const StoredParameter& p) {
  std::vector<float> all(p.count());
  source.read_slice(p.name, {.rows = p.rows, .cols = p.cols, .end = p.count()}, all);
  return all;
}

/// m.weight (5, 39): codes of 98 bytes, of blocks of 64 the last of 3; nested factors of two.
constexpr std::int64_t kOut = 5, kIn = 39, kBlocks = 4;
const StoredParameter kMatrix{"p", kOut, kIn};

unsigned code_at(std::int64_t i) { return static_cast<unsigned>(i * 7 + i / 16) % 16; }

Tensors four_bits(bool nested) {
  Tensors all;
  std::vector<std::uint8_t> codes((kOut * kIn + 1) / 2);
  for (std::int64_t i = 0; i < kOut * kIn; ++i)
    codes[i / 2] |= static_cast<std::uint8_t>(code_at(i) << (i % 2 == 0 ? 4 : 0));
  all.set("m.weight", StoredType::u8, {std::ssize(codes), 1}, codes);
  all.set("m.weight.quant_map", StoredType::f32, {16}, std::vector(kNf4.begin(), kNf4.end()));
  if (nested) {
    std::vector<float> map(256);
    for (int i = 0; i < 256; ++i) map[i] = static_cast<float>(i) / 100 - 1;
    all.set("m.weight.absmax", StoredType::u8, {kBlocks},
            std::vector<std::uint8_t>{0, 255, 9, 130});
    all.set("m.weight.nested_absmax", StoredType::f32, {1}, std::vector{0.3f});
    all.set("m.weight.nested_quant_map", StoredType::f32, {256}, map);
  } else {
    all.set("m.weight.absmax", StoredType::f32, {kBlocks}, std::vector{0.5f, 3.0f, 0.1f, 7.0f});
  }
  all.set_state(nested ? R"({"quant_type": "nf4", "blocksize": 64, "dtype": "float32",
                            "shape": [5, 39], "nested_blocksize": 256,
                            "nested_dtype": "float32", "nested_offset": 0.7})"
                       : R"({"quant_type": "nf4", "blocksize": 64, "shape": [5, 39]})");
  return all;
}

float factor_at(std::int64_t block, bool nested) {
  if (!nested) return std::array{0.5f, 3.0f, 0.1f, 7.0f}[block];
  const float code = static_cast<float>(std::array{0, 255, 9, 130}[block]) / 100 - 1;
  return static_cast<float>(static_cast<double>(static_cast<float>(double{code} * 0.3f)) + 0.7f);
}

std::string refusal_of(const Tensors& tensors) {
  const TemporaryPath folder;
  tensors.write(folder);
  try {
    quantized(folder, kMatrix);
  } catch (const UsageError& error) {
    return error.what();
  }
  return "";
}

}  // namespace

TEST(Bitsandbytes, ABlockOfNf4HasTheBitsOfTheReference) {
  constexpr std::string_view kPacked =
      "039e14ae15bf16cf27d028d039e14ae15bf16cf27d038d039e14ae15bf16cf27";
  std::vector<std::uint8_t> codes;
  for (std::size_t i = 0; i < kPacked.size(); i += 2)
    codes.push_back(std::stoi(std::string(kPacked.substr(i, 2)), nullptr, 16));
  Tensors all;
  all.set("m.weight", StoredType::u8, {32, 1}, codes);
  all.set("m.weight.quant_map", StoredType::f32, {16}, std::vector(kNf4.begin(), kNf4.end()));
  all.set("m.weight.absmax", StoredType::f32, {1}, std::vector{54 / 1024.0f});
  all.set_state(R"({"quant_type": "nf4", "blocksize": 64, "dtype": "bfloat16", "shape": [2, 32]})");
  const TemporaryPath folder;
  all.write(folder);
  const StoredParameter matrix{"p", 2, 32};
  SafetensorsSource source = quantized(folder, matrix);
  std::vector<std::uint32_t> bits;
  for (const float value : values_of(source, matrix))
    bits.push_back(std::bit_cast<std::uint32_t>(value));
  bits.resize(8);
  EXPECT_THAT(bits, testing::ElementsAre(0xbd580000, 0xbcaa9ab7, 0x3c0b0b30, 0x3d1c289f, 0xbd1660ad,
                                         0xbc75c1e2, 0x3c54a41a, 0x3d1c289f));
}

TEST(Bitsandbytes, BlocksOfFourBitsGoOnFromRowToRow) {
  for (const bool nested : {false, true}) {
    const TemporaryPath folder;
    four_bits(nested).write(folder);
    SafetensorsSource source = quantized(folder, kMatrix);
    const std::vector<float> all = values_of(source, kMatrix);
    for (std::int64_t i = 0; i < std::ssize(all); ++i)
      ASSERT_EQ(all[i], kNf4[code_at(i)] * factor_at(i / 64, nested)) << i << nested;
    std::vector<float> part(3 * 5);  // columns 7 to 11 of rows 1 to 3
    source.read_slice("p", {.row = 1, .rows = 3, .col = 7, .cols = 5, .end = 15}, part);
    for (std::int64_t i = 0; i < 15; ++i)
      EXPECT_EQ(part[i], all[(1 + i / 5) * kIn + 7 + i % 5]) << i;
  }
}

TEST(Bitsandbytes, CodesMayLieInAnyType) {
  Tensors all = four_bits(false);
  all.set("m.weight", StoredType::bf16, {49, 1}, std::vector<std::uint16_t>(49, 0xf00f));
  const TemporaryPath folder;
  all.write(folder);
  SafetensorsSource source = quantized(folder, kMatrix);
  const std::vector<float> values = values_of(source, kMatrix);
  EXPECT_THAT(std::vector(values.begin(), values.begin() + 4),
              testing::ElementsAre(-0.5f, 0.5f, 0.5f, -0.5f));
}

TEST(Bitsandbytes, AMatrixThatFloatsWouldTransposeIsStoredAsOutputsByInputs) {
  const TemporaryPath folder;
  four_bits(false).write(folder);
  SafetensorsSource plain = quantized(folder, kMatrix),
                    transposed =
                        quantized(folder, kMatrix, {.names = {"m.weight"}, .transposed = true});
  EXPECT_EQ(values_of(transposed, kMatrix), values_of(plain, kMatrix));
}

TEST(Bitsandbytes, RowsOfAJoinedMatrixAreRead) {
  const TemporaryPath folder;
  four_bits(false).write(folder);
  SafetensorsSource plain = quantized(folder, kMatrix);
  const std::vector<float> all = values_of(plain, kMatrix);
  StoredName name;
  name.joined = {.names = {"m.weight"}, .rows = kOut, .first = 1, .step = 2};
  const StoredParameter rows{"p", 2, kIn};
  SafetensorsSource source = quantized(folder, rows, name);
  const std::vector<float> got = values_of(source, rows);
  for (std::int64_t i = 0; i < rows.count(); ++i)
    EXPECT_EQ(got[i], all[(1 + i / kIn * 2) * kIn + i % kIn]) << i;
}

TEST(Bitsandbytes, Int8IsMultipliedByTheFactorOfItsRow) {
  Tensors all;
  std::vector<std::int8_t> codes;
  for (int i = 0; i < kOut * kIn; ++i)
    codes.push_back(static_cast<std::int8_t>(i * 37 % 255 - 127));
  const std::vector<float> scales{0.3f, 1, 2e-3f, 7, 11};
  all.set("m.weight", StoredType::i8, {kOut, kIn}, codes);
  all.set("m.SCB", StoredType::f32, {kOut}, scales);
  all.set("m.weight_format", StoredType::u8, {}, std::vector<std::uint8_t>{0});
  const TemporaryPath folder;
  all.write(folder);
  SafetensorsSource source = quantized(folder, kMatrix);
  const std::vector<float> got = values_of(source, kMatrix);
  for (std::int64_t i = 0; i < std::ssize(got); ++i)
    EXPECT_EQ(got[i], static_cast<float>(codes[i]) * scales[i / kIn] / 127) << i;
  all.set("m.weight_format", StoredType::u8, {}, std::vector<std::uint8_t>{1});
  EXPECT_THAT(refusal_of(all), HasSubstr("m.weight and m.SCB are not a matrix (5, 39) in 8 bits"));
  all.remove("m.weight_format");
  EXPECT_EQ(refusal_of(all), "") << "older folders have none";
}

TEST(Bitsandbytes, RefusesTensorsThatDoNotFit) {
  const auto refused = HasSubstr("are not a matrix (5, 39) in 4 bits of bitsandbytes");
  const std::string state = R"({"blocksize": 64, "shape": [5, 39]})";
  for (const char* const wrong :
       {R"({"blocksize": 64, "shape": [39, 5]})", R"({"blocksize": 0, "shape": [5, 39]})",
        R"({"blocksize": 48, "shape": [5, 39]})", R"({"blocksize": 1e30, "shape": [5, 39]})",
        R"({"blocksize": "64", "shape": [5, 39]})", R"({"blocksize": 64})", "[]", "{"}) {
    Tensors all = four_bits(false);
    all.set_state(wrong);
    EXPECT_THAT(refusal_of(all), refused) << wrong;
  }
  for (const char* const missing :
       {"m.weight.absmax", "m.weight.quant_map", "m.weight", "m.weight.nested_quant_map"}) {
    Tensors all = four_bits(true);
    all.remove(missing);
    EXPECT_THAT(refusal_of(all), refused) << missing;
  }
  Tensors few = four_bits(false);
  few.set("m.weight.absmax", StoredType::f32, {3}, std::vector<float>(3));
  EXPECT_THAT(refusal_of(few), refused);
  few = four_bits(false);
  few.set("m.weight", StoredType::u8, {97, 1}, std::vector<std::uint8_t>(97));
  EXPECT_THAT(refusal_of(few), refused);
  few = four_bits(true);
  few.set_state(R"({"blocksize": 64, "shape": [5, 39], "nested_blocksize": 256})");
  EXPECT_THAT(refusal_of(few), refused) << "without nested_offset";
}
