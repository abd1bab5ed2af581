#include <cstring>
#include <set>
#include <span>
#include <vector>

#include <gmock/gmock.h>

#include "axonn/compute/ops/backend.h"
#include "axonn/compute/ops/mend_bit.h"
#include "axonn/foundation/base/random.h"

#include "tests/compute/ops/harness.h"

using namespace axonn;
using reference::Matrix;

namespace {

/// The checksums of runs of bytes, as plain loops.
std::vector<std::int64_t> word_sums(const std::vector<char>& bytes,
                                    const std::vector<double>& bounds) {
  std::vector<std::int64_t> sums;
  for (std::size_t i = 0; i + 1 < bounds.size(); ++i) {
    std::uint64_t sum = 0;
    const auto begin = static_cast<std::int64_t>(bounds[i]),
               end = static_cast<std::int64_t>(bounds[i + 1]);
    for (std::int64_t at = begin; at < end;) {
      const std::int64_t size = end - at < 4 ? 1 : 4;
      std::uint64_t word = 0;
      for (std::int64_t k = 0; k < size; ++k)
        word |= std::uint64_t{static_cast<unsigned char>(bytes[at + k])} << 8 * k;
      const std::int64_t j = (end - begin) / 4 - (at - begin) / 4 > 0
                                 ? (at - begin) / 4
                                 : (end - begin) / 4 + (at - begin) % 4;
      sum += word * word_factor(static_cast<std::uint32_t>(j));
      at += size;
    }
    sums.push_back(static_cast<std::int64_t>(sum));
  }
  return sums;
}

std::vector<std::int64_t> word_sums(Backend& backend, const Operand& inp,
                                    const std::vector<double>& bounds) {
  const auto count = std::ssize(bounds) - 1;
  Matrix ends(1, count + 1);
  ends.values = bounds;
  const Operand out(1, count, DType::i64), of(ends, DType::i64);
  backend.run(ops::WordSums{out, inp, of});
  std::vector<std::int64_t> sums(count);
  std::memcpy(sums.data(), out.memory().data(), count * 8);
  return sums;
}

}  // namespace

TEST(WordSums, AreThoseOfThePlainLoopOverRunsOfBytesOfAnyType) {
  const auto backend = test_backend();
  for (const DType type : {DType::f32, DType::bf16}) {
    const Operand inp(random_values("x", 1, 70'000, type), type);
    const double end = 70'000.0 * static_cast<double>(bytes_of(type));
    for (const std::vector<double>& bounds :
         {std::vector<double>{0, end}, {0, 4, 4, 70'000, end}, {0, 65'536, 131'072, end}})
      EXPECT_EQ(word_sums(*backend, inp, bounds), word_sums(inp.memory(), bounds));
  }
  Matrix values(1, 4099);
  for (int i = 0; i < 4099; ++i) values(0, i) = i * 37 % 256;
  const Operand codes(values, DType::u8);
  for (const std::vector<double>& bounds : {std::vector<double>{0, 4099}, {0, 4096, 4099}})
    EXPECT_EQ(word_sums(*backend, codes, bounds), word_sums(codes.memory(), bounds));
}

TEST(WordSums, ChangeWithEachBitAndWithEachTwo) {
  const auto backend = test_backend();
  const Matrix values = random_values("x", 1, 4, DType::f32);
  const auto sum_with = [&](int one, int other) {
    Matrix bytes(1, 16);
    const Operand plain(values, DType::f32);
    const std::vector<char> memory = plain.memory();
    for (int i = 0; i < 16; ++i) {
      int byte = static_cast<unsigned char>(memory[i]);
      for (const int bit : {one, other})
        if (bit >= 0 && bit / 8 == i) byte ^= 1 << bit % 8;
      bytes(0, i) = byte;
    }
    return word_sums(*backend, Operand(bytes, DType::u8), {0, 16}).front();
  };
  const std::int64_t right = sum_with(-1, -1);
  for (int one = 0; one < 128; ++one) {
    EXPECT_NE(sum_with(one, -1), right) << one;
    for (int other = one + 1; other < 128; ++other) EXPECT_NE(sum_with(one, other), right) << one;
  }
}

TEST(WordSums, HaveAnotherFactorForEachWordOfARun) {
  std::set<std::uint32_t> factors;
  for (std::uint32_t j = 0; j < 100'000; ++j) {
    factors.insert(word_factor(j));
    ASSERT_EQ(word_factor(j) % 2, 1) << j;
  }
  EXPECT_EQ(factors.size(), 100'000);
}

namespace {

/// The sum of a run of bytes, and the run in memory.
struct FlippedBytes {
  std::vector<char> bytes;
  std::int64_t sum() const {
    return word_sums(bytes, {0.0, static_cast<double>(bytes.size())}).front();
  }
  void flip(std::int64_t bit) { bytes[bit / 8] = static_cast<char>(bytes[bit / 8] ^ 1 << bit % 8); }
  bool mend(std::int64_t right) {
    return mend_bit(std::as_writable_bytes(std::span(bytes)), sum(), right);
  }
};

FlippedBytes random_run(std::int64_t size) {
  FlippedBytes run;
  const Random random(size, "run");
  for (std::int64_t i = 0; i < size; ++i)
    run.bytes.push_back(static_cast<char>(random.below(i, 256)));
  return run;
}

}  // namespace

TEST(MendBit, SetsEachBitOfARunRight) {
  for (const std::int64_t size : {1, 4, 7, 258}) {
    const FlippedBytes right = random_run(size);
    for (std::int64_t bit = 0; bit < 8 * size; ++bit) {
      FlippedBytes run = right;
      run.flip(bit);
      ASSERT_TRUE(run.mend(right.sum())) << bit;
      ASSERT_EQ(run.bytes, right.bytes) << bit;
    }
    FlippedBytes same = right;
    EXPECT_FALSE(same.mend(right.sum()));
  }
}

TEST(MendBit, LeavesRunsWithMoreFlippedBitsAsTheyAre) {
  const FlippedBytes right = random_run(65'536);
  const std::int64_t sum = right.sum(), bits = 8 * std::ssize(right.bytes);
  const Random random(1, "flips");
  // Of one word, of the same bit of two words, as a broken wire makes them, and of any two.
  for (std::int64_t i = 0; i < 600; ++i) {
    const std::int64_t one = random.below(3 * i, bits), word = one / 32 * 32;
    std::int64_t other = random.below(3 * i + 1, bits);
    if (i % 3 == 0) other = word + other % 32;
    if (i % 3 == 1) other = other / 32 * 32 + one % 32;
    if (other == one) continue;
    FlippedBytes run = right;
    run.flip(one);
    run.flip(other);
    const FlippedBytes before = run;
    ASSERT_FALSE(run.mend(sum)) << one << ' ' << other;
    ASSERT_EQ(run.bytes, before.bytes);
  }
}
