// An optimizer's state in few bits: codes of blocks of 256 values, and bf16 rounded at random.
#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>

#include <gmock/gmock.h>

#include "axonn/compute/tensor/dynamic_map.h"

#include "tests/compute/ops/harness.h"

using namespace axonn;
using reference::Matrix;

namespace {

const DynamicMap& map_with(bool is_signed) {
  return is_signed ? DynamicMap::of_signed() : DynamicMap::of_unsigned();
}

Matrix table_of(bool is_signed) {
  Matrix table(1, DynamicMap::kTable);
  std::ranges::copy(map_with(is_signed).table(), table.values.begin());
  return table;
}

/// FNV-1a of the little-endian floats of a map.
std::uint64_t hash_of_values(const DynamicMap& map) {
  std::uint64_t hash = 0xcbf29ce484222325U;
  for (const float value : map.table().first(256))
    for (int byte = 0; byte < 4; ++byte) {
      hash ^= std::bit_cast<std::uint32_t>(value) >> 8 * byte & 255;
      hash *= 0x100000001b3U;
    }
  return hash;
}

/// Values of many sizes, the largest of a block near `size`; of the squares without a sign.
Matrix moments(std::string_view name, std::int64_t n, bool is_signed, double size) {
  Matrix values = random_values(name, 1, n, DType::f32);
  for (double& value : values.values) {
    value = static_cast<float>(size * value * std::abs(value) * value * value);
    if (!is_signed) value = std::abs(value);
  }
  return values;
}

struct Coded {
  Matrix codes, absmax, values;
};

/// Makes the codes of values and reads them.
Coded coded(const Matrix& values, bool is_signed) {
  const std::int64_t n = values.cols, blocks = (n + 255) / 256;
  const Operand inp(values, DType::f32), codes(1, n, DType::u8), absmax(1, blocks, DType::f32),
      table(table_of(is_signed), DType::f32), out(1, n, DType::f32);
  const ops::DynamicBlocks made{.codes = codes, .absmax = absmax, .table = table};
  const auto backend = test_backend();
  backend->run(ops::EncodeDynamic{made, inp, is_signed});
  backend->run(ops::DecodeDynamic{out, made});
  return {codes.values(), absmax.values(), out.values()};
}

Matrix rounded(const Matrix& values, ops::RoundAtRandom args) {
  const Operand inp(values, DType::f32), out(values.rows, values.cols, DType::bf16);
  args.inp = inp;
  args.out = out;
  test_backend()->run(args);
  return out.values();
}

}  // namespace

TEST(DynamicMap, HasTheValuesOfBitsandbytes) {
  EXPECT_EQ(hash_of_values(DynamicMap::of_signed()), 0x1e28a45b2a45b220U);
  EXPECT_EQ(hash_of_values(DynamicMap::of_unsigned()), 0x5578dd4560cc7b77U);
  EXPECT_EQ(DynamicMap::of_signed().value(127), 0);
  EXPECT_EQ(DynamicMap::of_signed().value(0), -0.99296875F);
  EXPECT_EQ(DynamicMap::of_unsigned().value(0), 0);
  EXPECT_EQ(DynamicMap::of_unsigned().value(255), 1);
}

TEST(DynamicCodes, AreTheNearestToTheShareOfTheLargestSizeInTheBlock) {
  const std::int64_t n = 5 * 256 + 77;
  for (const bool is_signed : {true, false})
    for (const double size : {1.0, 3e-9}) {
      const Matrix values = moments("m", n, is_signed, size);
      const Coded got = coded(values, is_signed);
      for (std::int64_t i = 0; i < n; ++i) {
        const std::int64_t block = i / 256 * 256;
        double most = 0;
        for (std::int64_t k = block; k < std::min(n, block + 256); ++k)
          most = std::max(most, std::abs(values.values[k]));
        ASSERT_EQ(got.absmax.values[i / 256], most);
        const auto distance = [&](double code) {
          return std::abs(map_with(is_signed).value(static_cast<std::uint8_t>(code)) * most -
                          values.values[i]);
        };
        double nearest = distance(0);
        for (int code = 1; code < 256; ++code) nearest = std::min(nearest, distance(code));
        const double code = got.codes.values[i];
        // The share is rounded once, and the middle of two values once.
        if (is_signed || code > 1) {
          ASSERT_LE(distance(code), nearest + 2e-7 * most) << i;
        }
        ASSERT_EQ(
            static_cast<float>(got.values.values[i]),
            map_with(is_signed).value(static_cast<std::uint8_t>(code)) * static_cast<float>(most));
      }
    }
}

TEST(DynamicCodes, OfSquaresHaveTheCodeOfZeroForZeroAlone) {
  Matrix squares(1, 256);
  squares.values[0] = 1;
  squares.values[1] = 1e-12;
  squares.values[2] = 0;
  const Coded got = coded(squares, false);
  EXPECT_EQ(got.codes.values[0], 255);
  EXPECT_EQ(got.codes.values[1], 1);
  EXPECT_EQ(got.codes.values[2], 0);
}

TEST(DynamicCodes, OfABlockOfZerosAreZeros) {
  for (const bool is_signed : {true, false}) {
    const Coded got = coded(Matrix(1, 300), is_signed);
    EXPECT_THAT(got.values.values, testing::Each(0.0)) << is_signed;
  }
}

TEST(DynamicCodes, OfTheHostAreThoseOfTheDevice) {
  for (const bool is_signed : {true, false}) {
    const Matrix values = moments("h", 256, is_signed, 0.01);
    const Coded got = coded(values, is_signed);
    const std::vector<float> floats(values.values.begin(), values.values.end());
    std::vector<std::uint8_t> codes(floats.size());
    map_with(is_signed).encode(floats, static_cast<float>(got.absmax.values[0]), codes);
    EXPECT_TRUE(std::ranges::equal(codes, got.codes.values)) << is_signed;
  }
}

TEST(RoundAtRandom, GivesANeighbourAsOftenAsItIsNear) {
  // Three quarters of the way from 1 to the next bf16, which is 1 + 2^-7.
  const std::int64_t rows = 100, cols = 1000;
  const Matrix got = rounded(Matrix(rows, cols, 1 + 0.75 * 0x1p-7), {.key = 5});
  double up = 0;
  for (const double value : got.values) {
    ASSERT_TRUE(value == 1 || value == 1 + 0x1p-7) << value;
    up += value > 1 ? 1 : 0;
  }
  const double n = rows * cols;
  EXPECT_NEAR(up / n, 0.75, 5 * std::sqrt(0.75 * 0.25 / n));  // five standard deviations
}

TEST(RoundAtRandom, KeepsWhatIsABf16AndInfinity) {
  Matrix values(1, 4);
  values.values = {-1.5, 0, std::numeric_limits<double>::infinity(), 0x1p-100};
  for (const std::uint64_t key : {1, 2, 3})
    EXPECT_EQ(rounded(values, {.key = key}).values, values.values);
}

TEST(RoundAtRandom, OfAPieceEqualsThatPieceOfTheWhole) {
  const Matrix values = random_values("r", 40, 300, DType::f32);
  const Matrix whole = rounded(values, {.key = 99}), other = rounded(values, {.key = 98});
  Matrix piece(20, 100);
  for (std::int64_t r = 0; r < 20; ++r)
    for (std::int64_t c = 0; c < 100; ++c) piece(r, c) = values(13 + r, 70 + c);
  const Matrix part = rounded(piece, {.key = 99, .first_row = 13, .first_col = 70});
  for (std::int64_t r = 0; r < 20; ++r)
    for (std::int64_t c = 0; c < 100; ++c) ASSERT_EQ(part(r, c), whole(13 + r, 70 + c));
  EXPECT_NE(whole.values, other.values);
}
