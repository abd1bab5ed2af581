#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

#include <gmock/gmock.h>

#include "axonn/compute/ops/backend.h"
#include "axonn/compute/tensor/quantization.h"
#include "axonn/foundation/base/check.h"

#include "tests/compute/ops/harness.h"
#include "tests/support/sanitized.h"

using namespace axonn;
using reference::Matrix;
using testing_support::sanitized;

namespace {

struct Case {
  reference::AttentionShape shape;  // positions: of the longest sequence
  std::int64_t entries;
  DType type;
  bool codes = false;  // whether keys and values are kept as codes
};

/// Rows of heads of D columns, each in blocks of 32 or of what is left, as q8_0 has them in
/// `type`: multiples of a block's largest size / 127, rounded to f16.
Matrix as_codes(const Matrix& rows, std::int64_t D, DType type) {
  Matrix out = rows;
  for (std::int64_t r = 0; r < rows.rows; ++r)
    for (std::int64_t begin = 0, end; begin < rows.cols; begin = end) {
      end = std::min(begin + 32, (begin / D + 1) * D);
      float most = 0;
      for (std::int64_t c = begin; c < end; ++c)
        most = std::max(most, std::abs(static_cast<float>(rows(r, c))));
      const float step = most / 127, inverse = most > 0 ? 1 / step : 0;
      for (std::int64_t c = begin; c < end; ++c)
        out(r, c) = stored_as(type, stored_as(DType::f16, step) *
                                        std::round(static_cast<float>(rows(r, c)) * inverse));
    }
  return out;
}

/// Sequences of tokens for the cache, compared with attention over each whole sequence.
class Generated {
 public:
  Generated(const Case& c, std::vector<std::int64_t> lengths)
      : c_(c),
        lengths_(std::move(lengths)),
        keys_(slots() * c.shape.kv_heads * c.entries, columns(c), type_of_kept(c)),
        values_(slots() * c.shape.kv_heads * c.entries, columns(c), type_of_kept(c)) {
    for (std::int64_t s = 0; s < slots(); ++s) {
      const std::string name = "sequence " + std::to_string(s);
      const std::int64_t T = lengths_[s], kv = c.shape.kv_heads * c.shape.head_dim;
      reference::AttentionShape shape = c.shape;
      shape.positions = T;
      q_.push_back(random_values(name + " q", T, c.shape.heads * c.shape.head_dim, c.type));
      k_.push_back(random_values(name + " k", T, kv, c.type));
      v_.push_back(random_values(name + " v", T, kv, c.type));
      const auto seen = [&](const Matrix& made) {
        return c.codes ? as_codes(made, c.shape.head_dim, c.type) : made;
      };
      const reference::AttentionResult want = attention(q_[s], seen(k_[s]), seen(v_[s]), shape);
      want_.push_back(want.out);
      stats_.push_back(want.lse);
    }
  }

  std::int64_t slots() const { return std::ssize(lengths_); }

  /// Computes the tokens at these (sequence, position) in one call; sequence -1 is a row without a
  /// slot. Slots are the sequences in reverse order.
  Matrix step(Backend& backend, const std::vector<std::pair<int, int>>& tokens) {
    std::vector<std::int32_t> slots_of, positions;
    for (const auto& [sequence, position] : tokens) {
      slots_of.push_back(sequence < 0 ? -1 : static_cast<std::int32_t>(slots() - 1 - sequence));
      positions.push_back(position);
    }
    const Operand slots_at(slots_of), at(positions), q(rows(q_, tokens), c_.type, 3),
        k(rows(k_, tokens), c_.type, 1), v(rows(v_, tokens), c_.type),
        out(std::ssize(tokens), c_.shape.heads * c_.shape.head_dim, c_.type, 2),
        stats(std::ssize(tokens), c_.shape.heads, DType::f32, 1);
    const auto keep = [&](const Operand& kept, const Operand& inp) {
      backend.run(ops::KeepHeads{.kept = kept,
                                 .inp = inp,
                                 .slots = slots_at,
                                 .positions = at,
                                 .entries = c_.entries,
                                 .head_dim = c_.shape.head_dim});
    };
    keep(keys_, k);
    keep(values_, v);
    backend.cached_attention({.q = q,
                              .keys = keys_,
                              .values = values_,
                              .out = out,
                              .stats = stats,
                              .slots = slots_at,
                              .positions = at,
                              .entries = c_.entries,
                              .longest = c_.shape.positions,
                              .heads = c_.shape.heads,
                              .kv_heads = c_.shape.kv_heads,
                              .head_dim = c_.shape.head_dim,
                              .group = c_.shape.group,
                              .first_query = c_.shape.first_query,
                              .window = c_.shape.window,
                              .chunks = c_.shape.chunks,
                              .scale = static_cast<float>(c_.shape.scale),
                              .cap = static_cast<float>(c_.shape.cap)});
    EXPECT_TRUE(out.gap_untouched());
    // As in attention_test.cpp; p is not rounded here.
    const double terms = static_cast<double>(c_.shape.head_dim + c_.shape.positions + 16);
    EXPECT_TRUE(close(out, rows(want_, tokens), stored(c_.type, 2 * terms * rounding(DType::f32))));
    if (std::ranges::all_of(slots_of, [](int slot) { return slot >= 0; })) {
      EXPECT_TRUE(close(stats, rows(stats_, tokens), stored(DType::f32, 1e-5)));
    }
    return out.values();
  }

  /// Computes all tokens: in each step one of every sequence that still has one.
  void all(Backend& backend) {
    for (int t = 0; t < c_.shape.positions; ++t) {
      std::vector<std::pair<int, int>> tokens;
      for (int s = 0; s < slots(); ++s)
        if (t < lengths_[s]) tokens.emplace_back(s, t);
      step(backend, tokens);
      if (testing::Test::HasFailure()) FAIL() << "position " << t;
    }
  }

 private:
  static std::int64_t columns(const Case& c) {
    return c.codes ? HeadCodes::bytes(c.shape.head_dim) : c.shape.head_dim;
  }
  static DType type_of_kept(const Case& c) { return c.codes ? DType::u8 : c.type; }

  static Matrix rows(const std::vector<Matrix>& of,
                     const std::vector<std::pair<int, int>>& tokens) {
    Matrix out(std::ssize(tokens), of.front().cols);
    for (std::int64_t r = 0; r < out.rows; ++r)
      for (std::int64_t c = 0; c < out.cols && tokens[r].first >= 0; ++c)
        out(r, c) = of[tokens[r].first](tokens[r].second, c);
    return out;
  }

  Case c_;
  std::vector<std::int64_t> lengths_;
  Operand keys_, values_;
  std::vector<Matrix> q_, k_, v_, want_, stats_;
};

constexpr auto kTypes = kModelTypes;

/// The bytes of random heads of D columns, two of a row, kept as codes.
Matrix kept_codes(Backend& backend, const Matrix& heads, std::int64_t D, DType type) {
  const std::int64_t R = heads.rows;
  std::vector<std::int32_t> slots(R), positions(R, 0);
  std::iota(slots.begin(), slots.end(), 0);
  const Operand slot(slots), position(positions), inp(heads, type),
      kept(2 * R, HeadCodes::bytes(D), DType::u8);
  backend.run(ops::KeepHeads{
      .kept = kept, .inp = inp, .slots = slot, .positions = position, .entries = 1, .head_dim = D});
  return kept.values();
}

}  // namespace

TEST(CachedAttention, OfOneTokenAtATimeEqualsAttentionOverTheWholeSequences) {
  const auto backend = test_backend();
  for (DType type : kTypes) {
    Generated({{20, 3, 3, 16, 1, 0, 0.25}, 20, type}, {20, 7, 1, 13}).all(*backend);
    Generated({{130, 6, 2, 40, 3, 0, 0.15}, 150, type}, {130, 64}).all(*backend);
    Generated({{70, 20, 1, 5, 20, 0, 0.5}, 70, type}, {70}).all(*backend);
    Generated({{66, 3, 2, 80, 4, 3, 0.1}, 66, type}, {65, 66}).all(*backend);
  }
}

TEST(CachedAttention, WithACapOfScoresEqualsAttentionOverTheWholeSequences) {
  const auto backend = test_backend();
  for (DType type : kTypes) {
    reference::AttentionShape shape{130, 6, 2, 40, 3, 0, 0.5};
    shape.cap = 0.7;
    Generated({shape, 150, type}, {130, 64}).all(*backend);
  }
}

TEST(CachedAttention, OfLongSequencesEqualsAttentionOverAllStretches) {
  const auto backend = test_backend();
  const int length = sanitized() ? 300 : 700;  // longer than a stretch
  for (DType type : kTypes)
    for (std::int64_t window : {0, length * 9 / 10}) {
      Generated long_ones({{length, 2, 1, 8, 2, 0, 0.3, window}, length, type}, {length});
      std::vector<std::pair<int, int>> tokens;
      for (int t = 0; t < length; ++t) tokens.emplace_back(0, t);
      long_ones.step(*backend, tokens);
    }
}

TEST(CachedAttention, OfManyRowsOfAWideHeadEqualsAttentionOverTheWholeSequences) {
  const auto backend = test_backend();
  // On a GPU: more stretches of keys than it keeps the results of at a time.
  constexpr int kSequences = 110, kTokens = 5;
  Generated many({{2000, 1, 1, 1000, 1, 0, 0.03}, kTokens, DType::f32},
                 std::vector<std::int64_t>(kSequences, kTokens));
  std::vector<std::pair<int, int>> tokens;
  for (int s = 0; s < kSequences; ++s)
    for (int t = 0; t < kTokens; ++t) tokens.emplace_back(s, t);
  many.step(*backend, tokens);
}

TEST(CachedAttention, WithAWindowNeedsNoMoreEntriesThanTheWindow) {
  const auto backend = test_backend();
  for (DType type : kTypes)
    for (std::int64_t window : {1, 5, 64, 70})
      Generated({{150, 2, 2, 8, 1, 0, 0.3, window}, window, type}, {150, 90}).all(*backend);
}

TEST(CachedAttention, WithinChunksEqualsThatOverTheWholeSequences) {
  const auto backend = test_backend();
  for (DType type : kTypes)
    for (std::int64_t chunk : {1, 5, 64}) {
      reference::AttentionShape shape{150, 2, 2, 8, 1, 0, 0.3, chunk};
      shape.chunks = true;
      Generated({shape, chunk, type}, {150, 90}).all(*backend);
      Generated({shape, 150, type}, {150, 90}).all(*backend);
    }
}

TEST(CachedAttention, TakesSeveralNewTokensOfASequenceAtOnce) {
  const auto backend = test_backend();
  for (DType type : kTypes) {
    Generated some({{40, 4, 2, 24, 2, 0, 0.2, 6}, 12, type}, {40, 30});
    some.step(*backend, {{0, 0}, {0, 1}, {0, 2}, {1, 0}});
    some.step(*backend, {{1, 1}, {0, 3}, {1, 2}, {1, 3}});
    some.step(*backend, {{1, 4}, {1, 5}, {1, 6}, {1, 7}, {1, 8}, {1, 9}, {1, 10}});
  }
}

TEST(CachedAttention, OfARowWithoutASlotIsZeroAndKeepsNothing) {
  const auto backend = test_backend();
  for (DType type : kTypes) {
    Generated two({{4, 2, 2, 8, 1, 0, 0.3}, 4, type}, {4, 4});
    two.step(*backend, {{0, 0}, {1, 0}});
    const Matrix out = two.step(*backend, {{0, 1}, {-1, 0}, {1, 1}});
    for (std::int64_t c = 0; c < out.cols; ++c) EXPECT_EQ(out(1, c), 0);
    two.step(*backend, {{0, 2}, {1, 2}});
  }
}

TEST(CachedAttention, OfARowHasTheSameBitsWhateverTheOtherRowsAre) {
  const auto backend = test_backend();
  for (DType type : kTypes) {
    const Case c{{9, 2, 2, 8, 1, 0, 0.3}, 9, type};
    Generated both(c, {9, 9}), alone(c, {9, 9});
    for (int t = 0; t < 9; ++t) {
      const Matrix two = both.step(*backend, {{1, t}, {0, t}}),
                   one = alone.step(*backend, {{0, t}});
      for (std::int64_t col = 0; col < one.cols; ++col) EXPECT_EQ(two(1, col), one(0, col));
    }
  }
}

namespace {

/// Expects the last of 600 rows to have the same bits alone and beside the others.
void expect_same_long_row(Backend& backend, std::int64_t head_dim, DType type, bool codes) {
  std::vector<std::pair<int, int>> tokens;
  for (int t = 0; t < 600; ++t) tokens.emplace_back(0, t);
  Generated some({{600, 2, 2, head_dim, 1, 0, 0.3}, 600, type, codes}, {600});
  const Matrix all = some.step(backend, tokens), last = some.step(backend, {{0, 599}});
  for (std::int64_t col = 0; col < last.cols; ++col) EXPECT_EQ(all(599, col), last(0, col));
}

/// Two rows of two heads, and slots of four entries.
CachedAttention small_attention(const Operand& q, const Operand& kept, const Operand& ids,
                                std::int64_t head_dim) {
  return {.q = q,
          .keys = kept,
          .values = kept,
          .out = q,
          .slots = ids,
          .positions = ids,
          .entries = 4,
          .longest = 1,
          .heads = 2,
          .kv_heads = 2,
          .head_dim = head_dim};
}

}  // namespace

TEST(CachedAttention, OfALongRowHasTheSameBitsWhateverTheOtherRowsAre) {
  const auto backend = test_backend();
  for (DType type : kTypes) expect_same_long_row(*backend, 8, type, false);
}

TEST(CachedAttention, RefusesACacheThatIsNotWholeSlots) {
  const auto backend = test_backend();
  const Operand q(2, 8, DType::f32), kept(15, 4, DType::f32), ids(std::vector<std::int32_t>{0, 0});
  const CachedAttention args = small_attention(q, kept, ids, 4);
  EXPECT_THAT([&] { backend->cached_attention(args); },
              testing::ThrowsMessage<Error>(testing::HasSubstr(
                  "keys is (15,4) f32, want whole slots of 2 heads of 4 entries")));
}

TEST(KeptCodes, AreTheBytesThatQuantizationWrites) {
  const auto backend = test_backend();
  constexpr std::int64_t kRows = 100, D = 96;  // work for several threads
  const QuantizedForm form{Quantization::q8_0, HeadCodes::kRecord};
  for (const DType type : kTypes) {
    const Matrix heads = random_values("heads", kRows, 2 * D, type);
    const std::vector<float> floats(heads.values.begin(), heads.values.end());
    std::vector<std::byte> records(form.bytes(std::ssize(floats)));
    quantize_records(form, floats, records);
    const Matrix got = kept_codes(*backend, heads, D, type);
    ASSERT_EQ(got.values.size(), records.size());
    EXPECT_EQ(kept_codes(*test_backend(3), heads, D, type).values, got.values) << "threads";
    for (std::size_t i = 0; i < records.size(); ++i)
      ASSERT_EQ(got.values[i], std::to_integer<int>(records[i])) << i;
  }
}

TEST(KeptCodes, OfTheLastColumnsOfAHeadAreABlockOfTheirOwn) {
  const auto backend = test_backend();
  for (const std::int64_t D : {1, 31, 33, 80}) {
    EXPECT_EQ(HeadCodes::bytes(D), D + 2 * ((D + 31) / 32));
    const Matrix heads = random_values("heads", 5, 2 * D, DType::f32);
    const Matrix got = kept_codes(*backend, heads, D, DType::f32);
    const std::int64_t last = (D - 1) / 32 * 32, count = D - last;
    for (std::int64_t row = 0; row < 10; ++row) {
      std::vector<float> values(count);
      std::vector<std::uint8_t> codes(count);
      for (std::int64_t i = 0; i < count; ++i)
        values[i] = static_cast<float>(heads(row / 2, row % 2 * D + last + i));
      f16 factor;
      put(factor, quantize_block(Quantization::q8_0, values, codes.data()).factor);
      const std::int64_t at = last / 32 * HeadCodes::kRecordBytes;
      EXPECT_EQ(got(row, at) + 256 * got(row, at + 1), factor.bits);
      for (std::int64_t i = 0; i < count; ++i) EXPECT_EQ(got(row, at + 2 + i), codes[i]) << D;
    }
  }
}

TEST(KeptCodes, OfValuesThatAreNotFiniteAreNotEither) {
  const auto backend = test_backend();
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  for (const float bad : {kInfinity, -kInfinity, std::numeric_limits<float>::quiet_NaN(), 1e9f}) {
    Matrix heads(1, 64);
    heads(0, 3) = bad;
    heads(0, 40) = 1;
    const Operand inp(heads, DType::f32), out(1, 64, DType::f32);
    backend->run(ops::RoundHeads{.out = out, .inp = inp, .head_dim = 64});
    const Matrix got = out.values();
    EXPECT_FALSE(std::isfinite(got(0, 3))) << bad;
    EXPECT_NEAR(got(0, 40), 1, 1e-3) << "of another block";
    EXPECT_EQ(got(0, 41), 0);
  }
}

TEST(RoundHeads, GivesTheValuesOfTheCodes) {
  const auto backend = test_backend();
  for (const DType type : kTypes)
    for (const std::int64_t D : {5, 32, 80, 128}) {
      const Matrix heads = random_values("heads", 40, 3 * D, type);
      const Operand inp(heads, type, 2), out(40, 3 * D, type, 1);
      backend->run(ops::RoundHeads{.out = out, .inp = inp, .head_dim = D});
      EXPECT_TRUE(close(out, as_codes(heads, D, type), {0, 0})) << D;
      backend->run(ops::RoundHeads{.out = inp, .inp = inp, .head_dim = D});
      EXPECT_EQ(inp.values().values, out.values().values) << "in place";
    }
}

/// As of values, with blocks that are whole, shorter, or one alone.
class CodedAttention : public testing::TestWithParam<DType> {
 protected:
  void SetUp() override {
    backend_ = test_backend();
    if (!backend_->reads_kept_codes()) GTEST_SKIP() << "this backend reads no codes";
  }
  std::unique_ptr<Backend> backend_;
};

TEST_P(CodedAttention, EqualsAttentionOverTheValuesOfTheCodes) {
  Generated({{20, 3, 3, 16, 1, 0, 0.25}, 20, GetParam(), true}, {20, 7, 1, 13}).all(*backend_);
  Generated({{130, 6, 2, 64, 3, 0, 0.15}, 150, GetParam(), true}, {130, 64}).all(*backend_);
  Generated({{70, 20, 1, 5, 20, 0, 0.5}, 70, GetParam(), true}, {70}).all(*backend_);
  Generated({{66, 3, 2, 80, 4, 3, 0.1}, 66, GetParam(), true}, {65, 66}).all(*backend_);
  reference::AttentionShape capped{130, 6, 2, 128, 3, 0, 0.5};
  capped.cap = 0.7;
  Generated({capped, 150, GetParam(), true}, {130, 64}).all(*backend_);
}

TEST_P(CodedAttention, SoItIsWithWindowsAndChunks) {
  for (const std::int64_t window : {1, 5, 64, 70}) {
    reference::AttentionShape shape{150, 4, 2, 40, 2, 0, 0.3, window};
    Generated({shape, window, GetParam(), true}, {150, 90}).all(*backend_);
    shape.chunks = true;
    Generated({shape, window, GetParam(), true}, {150, 90}).all(*backend_);
  }
}

TEST_P(CodedAttention, OfALongRowHasTheSameBitsWhateverTheOtherRowsAre) {
  expect_same_long_row(*backend_, 40, GetParam(), true);
}

INSTANTIATE_TEST_SUITE_P(Types, CodedAttention, testing::ValuesIn(kTypes),
                         [](const auto& type) { return std::string(name_of(type.param)); });

TEST(CachedAttention, RefusesCodesOfAnotherWidth) {
  const auto backend = test_backend();
  const Operand q(2, 80, DType::f32), kept(16, 46, DType::u8), values(16, 40, DType::f32),
      ids(std::vector<std::int32_t>{0, 0});
  CachedAttention args = small_attention(q, kept, ids, 40);
  const auto refuses = [&](std::string_view words) {
    EXPECT_THAT([&] { backend->cached_attention(args); },
                testing::ThrowsMessage<Error>(testing::HasSubstr(words)));
  };
  refuses("keys is (16,46) u8, want (16,44)");
  const Operand right(16, 44, DType::u8);
  args.keys = right;
  args.values = values;
  refuses("values is (16,40) f32, want u8");
}

TEST(ChunkStarts, AreTheFirstPositionOfTheChunkOrOfTheDocument) {
  constexpr std::int32_t kLength = 700, kChunk = 7;  // more rows than a team has
  std::vector<std::int32_t> positions, starts, whole, packed;
  for (std::int32_t row = 0; row < 2 * kLength; ++row) {
    const std::int32_t at = row % kLength, start = at / 30 * 30;
    positions.push_back(at - start);
    starts.push_back(start);
    whole.push_back(at - at % kChunk);
    packed.push_back(at - (at - start) % kChunk);
  }
  const auto backend = test_backend();
  const Operand at(positions), from(starts);
  Operand out(std::vector<std::int32_t>(2 * kLength));
  backend->run(ops::ChunkStarts{.out = out, .chunk = kChunk, .length = kLength});
  EXPECT_EQ(out.memory(), Operand(whole).memory());
  backend->run(ops::ChunkStarts{
      .out = out, .positions = at, .starts = from, .chunk = kChunk, .length = kLength});
  EXPECT_EQ(out.memory(), Operand(packed).memory());
}

TEST(ChunkStarts, OfBlocksOfRowsAreThoseOfTheirPlaceInTheSequence) {
  constexpr std::int32_t kBlock = kSequenceBlock, kChunk = 100;
  const std::vector<std::int32_t> blocks{3, 0, 5};  // a rank's, of sequences that ranks share
  std::vector<std::int32_t> positions, starts, want;
  for (const std::int32_t block : blocks)
    for (std::int32_t at = block * kBlock; at < (block + 1) * kBlock; ++at) {
      starts.push_back(at < 150 ? 0 : 150);
      positions.push_back(at - starts.back());
      want.push_back(at - positions.back() % kChunk);
    }
  const Operand of_rows(positions), from(starts), where(blocks);
  Operand out(std::vector<std::int32_t>(positions.size()));
  test_backend()->run(ops::ChunkStarts{.out = out,
                                       .positions = of_rows,
                                       .starts = from,
                                       .blocks = where,
                                       .chunk = kChunk,
                                       .length = 1});
  EXPECT_EQ(out.memory(), Operand(want).memory());
}
