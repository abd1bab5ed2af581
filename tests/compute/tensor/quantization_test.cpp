// Codes and factors of quantized values: those of bitsandbytes and ggml, to the bit.
#include "axonn/compute/tensor/quantization.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <limits>
#include <string>
#include <tuple>
#include <vector>

#include <gmock/gmock.h>

#include "axonn/foundation/base/check.h"

#include "tests/support/some_records.h"

using namespace axonn;
using testing::HasSubstr;

namespace {

/// 64 multiples of 1/1024, which f32 and bf16 hold exactly.
std::vector<float> example() {
  std::vector<float> values;
  for (int i = 0; i < 64; ++i) values.push_back(static_cast<float>((29 * i + 5) % 111 - 55) / 1024);
  return values;
}

QuantizedValues quantized(Quantization kind, std::int64_t block, std::span<const float> values) {
  QuantizedValues out;
  quantize(kind, block, values, out);
  return out;
}

/// The bytes of a record, the factor's first.
std::string record_of(Quantization kind, const QuantizedValues& values) {
  const QuantizedForm form{kind, std::ssize(values.codes)};
  std::vector<std::byte> bytes(form.record_bytes());
  write_record(form, values.codes, values.of_block(0), bytes.data());
  std::string text;
  for (const std::byte byte : bytes)
    for (const unsigned digit :
         {std::to_integer<unsigned>(byte) >> 4, std::to_integer<unsigned>(byte) & 15})
      text += "0123456789abcdef"[digit];
  return text;
}

std::vector<int> signed_codes(const QuantizedValues& values) {
  std::vector<int> codes;
  for (const std::uint8_t code : values.codes) codes.push_back(static_cast<std::int8_t>(code));
  return codes;
}

}  // namespace

TEST(Quantization, ABlockOfNf4HasTheCodesOfBitsandbytes) {
  const std::vector<float> values = example();
  const QuantizedValues out = quantized(Quantization::nf4, 64, values);
  EXPECT_EQ(std::bit_cast<std::uint32_t>(out.factors[0]), 0x3d580000);
  std::string digits;
  for (const std::uint8_t code : out.codes) digits += "0123456789abcdef"[code];
  EXPECT_EQ(digits, "039e14ae15bf16cf27d028d039e14ae15bf16cf27d038d039e14ae15bf16cf27");
  double squares = 0;
  for (int i = 0; i < 64; ++i) {
    const double off = double{out.value(Quantization::nf4, i, 64)} - values[i];
    squares += off * off;
  }
  EXPECT_NEAR(squares, 0.00047506957168079824, 1e-12);
}

TEST(Quantization, ATieOfNf4TakesTheLowerCode) {
  // Halfway between the values of codes i and i + 1, as CUDA's kernels have them.
  constexpr std::array<std::uint32_t, 15> kThresholds = {
      0xbf591cd8, 0xbf1c5270, 0xbeeb8480, 0xbeadea76, 0xbe703cec,
      0xbe0d38bc, 0xbd3a7871, 0x3d22faff, 0x3df64862, 0x3e5067e0,
      0x3e9582d4, 0x3ec753f9, 0x3f006d04, 0x3f248daf, 0x3f5c89da};
  for (int i = 0; i < 15; ++i) {
    const auto at = std::bit_cast<float>(kThresholds[i]);
    std::vector<float> values(64, 1.0f);  // so that the factor is 1
    values[1] = at;
    values[2] = std::nextafter(at, 2.0f);
    values[3] = std::nextafter(at, -2.0f);
    const QuantizedValues out = quantized(Quantization::nf4, 64, values);
    EXPECT_THAT(std::vector(out.codes.begin(), out.codes.begin() + 4),
                testing::ElementsAre(15, i, i + 1, i))
        << i;
  }
}

TEST(Quantization, Fp4TakesTheNearestOfItsValues) {
  std::vector<float> values(64, 0.0f);
  const std::array sizes{0.0f, 0.003f, 0.08f, 0.09f, 0.2f, 0.28f,
                         0.3f, 0.45f,  0.6f,  0.8f,  0.9f, 1.0f};
  for (std::size_t i = 0; i < sizes.size(); ++i) {
    values[2 * i] = 3 * sizes[i];
    values[2 * i + 1] = -3 * sizes[i];
  }
  const QuantizedValues out = quantized(Quantization::fp4, 64, values);
  EXPECT_EQ(out.factors[0], 3);
  for (std::size_t i = 0; i < values.size(); ++i) {
    float least = 9;
    for (unsigned code = 0; code < 16; ++code)
      least = std::min(least, std::abs(3 * FourBitValues::fp4(code) - values[i]));
    EXPECT_NEAR(
        std::abs(out.value(Quantization::fp4, static_cast<std::int64_t>(i), 64) - values[i]), least,
        1e-7)
        << i;
  }
}

TEST(Quantization, Q8HasTheBytesOfGgml) {
  const std::vector<float> values = example();
  const QuantizedValues out = quantized(Quantization::q8_0, 32, std::span(values).first(32));
  EXPECT_THAT(signed_codes(out),
              testing::ElementsAre(-118, -49, 19, 87, -106, -38, 31, 99, -94, -26, 42, 111, -82,
                                   -14, 54, 122, -71, -2, 66, -127, -59, 9, 78, -115, -47, 21, 89,
                                   -103, -35, 33, 101, -92));
  EXPECT_EQ(record_of(Quantization::q8_0, out).substr(0, 4), "ce0e");
}

TEST(Quantization, ABlockOfQ4HasTheBytesOfGguf) {  // recorded from the package gguf 0.19
  const std::vector<float> values = example();
  const QuantizedValues out = quantized(Quantization::q4_0, 32, std::span(values).first(32));
  EXPECT_THAT(out.codes, testing::ElementsAre(1, 5, 9, 13, 1, 6, 10, 14, 2, 6, 11, 15, 3, 7, 11, 15,
                                              4, 8, 12, 0, 4, 9, 13, 1, 5, 9, 14, 1, 6, 10, 14, 2));
  EXPECT_EQ(record_of(Quantization::q4_0, out), "c01e4185c90d4196da1e5296eb1f63a7eb2f");
  EXPECT_EQ(out.value(Quantization::q4_0, 5, 32), -0.01318359375f);
}

TEST(Quantization, ABlockOfQ5HasTheBytesOfGguf) {  // recorded from the package gguf 0.19
  const std::vector<float> values = example();
  const QuantizedValues out = quantized(Quantization::q5_0, 32, std::span(values).first(32));
  EXPECT_EQ(record_of(Quantization::q5_0, out), "c01acccc6666710a820b931ba41ca43db53ec64ed74f");
  EXPECT_EQ(out.codes[5], 11);
  EXPECT_EQ(out.value(Quantization::q5_0, 5, 32), -0.01647949218750f);
}

TEST(Quantization, BlocksWithALeastValueHaveTheBytesOfGguf) {  // recorded from gguf 0.19
  const std::vector<float> values = example();
  const auto quantized_as = [&](Quantization kind) {
    return quantized(kind, 32, std::span(values).first(32));
  };
  const QuantizedValues four = quantized_as(Quantization::q4_1),
                        five = quantized_as(Quantization::q5_1);
  EXPECT_EQ(record_of(Quantization::q4_1, four), "111fc0aa3175c90d4185c91e5296da1e63a7eb2f");
  EXPECT_EQ(record_of(Quantization::q5_1, five),
            "d71ac0aacccc646671fa820b831b941ca42db53eb64ec74f");
  EXPECT_EQ(four.least[0], -0.052734375f);
  EXPECT_EQ(four.value(Quantization::q4_1, 5, 32), -0.018230438232421875f);
  EXPECT_EQ(five.value(Quantization::q5_1, 5, 32), -0.015996932983398438f);
}

TEST(Quantization, RecordsOfAPartHaveTheFactorsOfTheirBlockAndTheirOwnCodes) {
  const std::vector<float> values = example();
  for (const auto& [kind, factors, fifth] :
       {std::tuple{Quantization::q5_0, 2, true}, std::tuple{Quantization::q4_1, 4, false},
        std::tuple{Quantization::q5_1, 4, true}}) {
    const QuantizedValues all = quantized(kind, 32, std::span(values).first(32));
    for (const std::int64_t unit : {2, 4, 8, 16, 32}) {
      const QuantizedForm form{kind, unit};
      ASSERT_EQ(form.record_bytes(), factors + (fifth ? (unit + 7) / 8 : 0) + unit / 2);
      std::vector<std::byte> records(form.bytes(32), std::byte{255});
      for (std::int64_t i = 0; i < 32 / unit; ++i)
        write_record(form, std::span(all.codes).subspan(i * unit, unit), all.of_block(0),
                     records.data() + i * form.record_bytes());
      std::vector<float> back(32);
      read_values(form, records, 0, back);
      for (int i = 0; i < 32; ++i)
        EXPECT_EQ(back[i], all.value(kind, i, 32)) << name_of(kind) << ' ' << unit << ' ' << i;
    }
  }
}

TEST(Quantization, RecordsGiveBackTheCodesAndFactorsThatTheyWereMadeOf) {
  const std::vector<float> values = example();
  for (const Quantization kind : kCodes) {
    if (has_large_blocks(kind) || is_only_read(kind)) continue;
    const QuantizedForm form{kind, QuantizedForm::most_unit(kind)};
    const QuantizedValues all = quantized(kind, form.unit, values);
    std::vector<std::byte> records(form.bytes(64));
    quantize_records(form, values, records);
    QuantizedValues back;
    read_records(form, records, back);
    for (int i = 0; i < 64; ++i)
      EXPECT_EQ(back.value(kind, i, form.unit), all.value(kind, i, form.unit)) << name_of(kind);
    EXPECT_EQ(back.codes, all.codes) << name_of(kind);
    EXPECT_EQ(back.least, all.least) << name_of(kind);
  }
}

TEST(Quantization, AFactorOrALeastValueThatIsNotFiniteIsSeen) {
  for (const Quantization kind : kCodes) {
    if (!is_of_ggml(kind) || kind == Quantization::mxfp4) continue;
    const QuantizedForm form{kind, QuantizedForm::most_unit(kind)};
    const auto records = testing_support::some_records(form, std::vector<float>(512, 1.0f));
    EXPECT_TRUE(has_finite_factors(form, records)) << name_of(kind);
    for (const std::int64_t place : testing_support::factor_places(kind))
      for (const int exponent : {0x7c, 0x7e, 0xfc}) {
        std::vector<std::byte> damaged = records;
        damaged[form.record_bytes() + place + 1] = std::byte(exponent);
        EXPECT_FALSE(has_finite_factors(form, damaged)) << name_of(kind) << ' ' << place;
      }
  }
}

TEST(Quantization, Mxfp4HasPowersOfTwoAndTheCodesOfItsSpecification) {
  const QuantizedForm form{Quantization::mxfp4, 32};
  ASSERT_EQ(form.record_bytes(), 17);
  std::vector<std::byte> record(17);
  for (int i = 0; i < 16; ++i) record[1 + i] = std::byte(i | (15 - i) << 4);
  const std::vector<float> sizes{0, 0.5f, 1, 1.5f, 2, 3, 4, 6};
  for (const int exponent : {0, 1, 100, 127, 128, 252}) {
    record[0] = std::byte(exponent);
    EXPECT_TRUE(has_finite_factors(form, record));
    std::vector<float> values(32);
    read_values(form, record, 0, values);
    for (int i = 0; i < 32; ++i) {
      const int code = i < 16 ? i : 31 - i;
      const float value = std::ldexp(sizes[code % 8], exponent - 127);
      EXPECT_EQ(values[i], code < 8 ? value : -value) << exponent << ' ' << i;
    }
    std::vector<std::byte> again(17);
    quantize_records(form, values, again);
    std::vector<float> same(32);
    read_values(form, again, 0, same);
    EXPECT_EQ(same, values) << exponent;
  }
  record[0] = std::byte(255);
  EXPECT_FALSE(has_finite_factors(form, record));
}

TEST(Quantization, Int8RoundsTiesToEvenAndHasAFactorForEachRow) {
  const std::vector<float> rows{127, 0.5f, 1.5f, -2.5f, 12.7f, 1.0f, -3.0f, 0.0f};
  const QuantizedValues out = quantized(Quantization::int8, 4, rows);
  EXPECT_THAT(out.factors, testing::ElementsAre(127, 12.7f));
  EXPECT_THAT(signed_codes(out), testing::ElementsAre(127, 0, 2, -2, 127, 10, -30, 0));
  EXPECT_EQ(out.value(Quantization::int8, 6, 4), -30 * 12.7f / 127);
}

TEST(Quantization, RoundsAsTheStandardLibraryDoesBesideEveryTie) {
  for (float tie = -126.5f; tie < 127; ++tie)
    for (const float x : {std::nextafter(tie, -200.0f), tie, std::nextafter(tie, 200.0f)}) {
      const std::vector<float> values{127, x};  // so the factor is 1
      EXPECT_EQ(signed_codes(quantized(Quantization::q8_0, 2, values))[1], std::round(x)) << x;
      EXPECT_EQ(signed_codes(quantized(Quantization::int8, 2, values))[1], std::nearbyint(x)) << x;
    }
}

TEST(Quantization, ABlockOfZerosStaysZero) {
  const std::vector<float> zeros(64);
  for (const Quantization kind :
       {Quantization::nf4, Quantization::fp4, Quantization::int8, Quantization::q8_0,
        Quantization::q4_0, Quantization::q5_0, Quantization::q4_1, Quantization::q5_1}) {
    const QuantizedValues out = quantized(kind, 32, zeros);
    EXPECT_THAT(out.factors, testing::Each(0));
    EXPECT_EQ(out.value(kind, 5, 32), 0);
  }
  EXPECT_THAT(quantized(Quantization::nf4, 64, zeros).codes, testing::Each(7));
}

TEST(Quantization, DenormalValuesOfNf4AreDividedByNoLessThanTheLibraryDoes) {
  std::vector<float> values(64, 0.0f);  // codes recorded from bitsandbytes 0.50
  const std::array denormal{-1e-39f, 4.1639e-40f, 3.69e-40f, -4.458e-40f, -4.788e-40f, 9.3e-40f};
  std::ranges::copy(denormal, values.begin());
  const QuantizedValues out = quantized(Quantization::nf4, 64, values);
  EXPECT_EQ(out.factors[0], 1e-39f);
  EXPECT_THAT(std::vector(out.codes.begin(), out.codes.begin() + 7),
              testing::ElementsAre(6, 8, 7, 7, 6, 8, 7));
}

TEST(Quantization, TheLastBlockMayBeShort) {
  std::vector<float> values(70, 0.5f);
  values[69] = -0.25f;
  const QuantizedValues out = quantized(Quantization::nf4, 64, values);
  EXPECT_THAT(out.factors, testing::ElementsAre(0.5f, 0.5f));
  EXPECT_EQ(out.value(Quantization::nf4, 69, 64), -0.5250730514526367f * 0.5f);
  const QuantizedForm form{Quantization::nf4, 8};
  std::vector<std::byte> record(form.record_bytes(), std::byte{255});
  write_record(form, std::span(out.codes).subspan(65, 5), {0.5f}, record.data());
  EXPECT_THAT(
      std::vector(record.begin() + 4, record.end()),
      testing::ElementsAre(std::byte{0x2f}, std::byte{0xf}, std::byte{0xf}, std::byte{0xf}));
}

TEST(Quantization, RefusesValuesWithoutACode) {
  for (const Quantization kind : {Quantization::nf4, Quantization::fp4, Quantization::int8,
                                  Quantization::q8_0, Quantization::q4_0, Quantization::q5_0,
                                  Quantization::q4_1, Quantization::q5_1, Quantization::mxfp4})
    for (const float bad : {std::nanf(""), std::numeric_limits<float>::infinity()}) {
      std::vector<float> values(32, 1.0f);
      values[30] = bad;
      EXPECT_THAT([&] { quantized(kind, 32, values); },
                  testing::ThrowsMessage<UsageError>(HasSubstr("cannot be quantized")));
    }
  EXPECT_THAT([] { quantized(Quantization::q8_0, 32, std::vector<float>(32, 1e8f)); },
              testing::ThrowsMessage<UsageError>(HasSubstr("q8_0 has no factor in f16")));
  for (const float least : {-1e5f, 1e5f}) {  // in f16 no least value, although factors are small
    std::vector<float> values(32, least);
    values[3] += 100;
    EXPECT_THAT([&] { quantized(Quantization::q5_1, 32, values); },
                testing::ThrowsMessage<UsageError>(HasSubstr("q5_1 has no factor in f16")));
  }
}

TEST(LargeBlocks, HoldValuesNearTheGivenOnesAndReadFromAnyOfThem) {
  std::vector<float> values;
  for (int i = 0; i < 512; ++i)
    values.push_back(std::sin(0.7f * static_cast<float>(i)) * (i % 3 == 0 ? 2.0f : 0.25f));
  for (const auto& [kind, bytes, most] :
       {std::tuple{Quantization::q3_k, 220, 0.45f}, std::tuple{Quantization::q4_k, 288, 0.17f},
        std::tuple{Quantization::q5_k, 352, 0.08f}, std::tuple{Quantization::q6_k, 420, 0.04f}}) {
    const QuantizedForm form{kind, 256};
    ASSERT_EQ(form.bytes(512), bytes);
    std::vector<std::byte> records(bytes);
    quantize_records(form, values, records);
    EXPECT_TRUE(has_finite_factors(form, records));
    std::vector<float> back(512), some(300);
    read_values(form, records, 0, back);
    read_values(form, records, 100, some);
    for (int i = 0; i < 512; ++i) ASSERT_NEAR(back[i], values[i], most) << i;
    EXPECT_EQ(some, std::vector(back.begin() + 100, back.begin() + 400));
  }
}

TEST(Quantization, BlocksThatAreOnlyReadAreNotMade) {
  int kinds = 0;
  for (const Quantization kind : kCodes) {
    if (!is_only_read(kind)) continue;
    ++kinds;
    const QuantizedForm form{kind, QuantizedForm::most_unit(kind)};
    const std::vector<float> values(256, 1.0f);
    std::vector<std::byte> records(form.bytes(256));
    const auto refused = testing::ThrowsMessage<UsageError>(
        testing::AllOf(HasSubstr("blocks of " + std::string(name_of(kind)) + " are read from GGUF"),
                       HasSubstr("take file, with a file that has them, or q3_k")));
    EXPECT_THAT([&] { quantize_records(form, values, records); }, refused);
    EXPECT_THAT([&] { quantized(kind, form.unit, values); }, refused);
  }
  EXPECT_EQ(kinds, 3);
}

/// A record whose scales and codes are known, by the layouts of ggml.
TEST(LargeBlocks, OfTwoBitsHaveAScaleAndALeastValueForEach16Values) {
  const QuantizedForm form{Quantization::q2_k, 256};
  ASSERT_EQ(form.record_bytes(), 84);
  std::vector<std::byte> record(84);
  record[81] = std::byte{0x3c};            // 1
  record[83] = std::byte{0x38};            // 1/2
  record[9] = std::byte{0x73};             // of values 144 to 159: scale 3, least value 7
  record[16 + 32 + 16] = std::byte{0x08};  // of value 144 + 32 code 2
  record[16 + 32 + 17] = std::byte{0x03};  // of value 145 code 3
  std::vector<float> values(256);
  read_values(form, record, 0, values);
  EXPECT_EQ(values[144], -3.5f);
  EXPECT_EQ(values[145], 9 - 3.5f);
  EXPECT_EQ(values[160], 0);
  record[11] = std::byte{0x02};
  read_values(form, record, 0, values);
  EXPECT_EQ(values[176], 4);
}

TEST(LargeBlocks, OfIq4XsHaveSixBitsOfAScaleForEach32ValuesOfATable) {
  const QuantizedForm form{Quantization::iq4_xs, 256};
  ASSERT_EQ(form.record_bytes(), 136);
  std::vector<std::byte> record(136);
  record[1] = std::byte{0x3c};
  record[3] = std::byte{0x0c};               // upper bits of scale 5: 3
  record[6] = std::byte{0x50};               // lower bits: 5, so the scale is 53 - 32
  record[8 + 5 * 16 + 2] = std::byte{0xf9};  // of value 162 code 9, of value 178 code 15
  std::vector<float> values(256);
  read_values(form, record, 0, values);
  EXPECT_EQ(values[162], 21 * 13);
  EXPECT_EQ(values[178], 21 * 113);
  EXPECT_EQ(values[163], 21 * -127);
  EXPECT_EQ(values[0], -32 * -127);
}

TEST(LargeBlocks, RefuseValuesThatTheirFactorsDoNotHold) {
  for (const Quantization kind : kCodes) {
    if (!has_large_blocks(kind) || is_only_read(kind)) continue;
    const QuantizedForm form{kind, 256};
    std::vector<std::byte> records(form.bytes(512));
    std::vector<float> values(512, 1.0f);
    values[300] = std::nanf("");
    EXPECT_THAT([&] { quantize_records(form, values, records); },
                testing::ThrowsMessage<UsageError>(HasSubstr("a weight is nan")));
    values[300] = 1e9f;
    EXPECT_THAT([&] { quantize_records(form, values, records); },
                testing::ThrowsMessage<UsageError>(testing::AllOf(
                    HasSubstr("a weight is 1e+09"), HasSubstr(std::string(name_of(kind))),
                    HasSubstr("no factor in f16"))));
  }
}
