#include "axonn/data/storage/checkpoint/state_hash.h"

#include <cstring>
#include <limits>

#include <gmock/gmock.h>

#include "axonn/foundation/base/check.h"
#include "axonn/foundation/base/sha256.h"
#include "axonn/ranks/comm/self.h"

#include "tests/data/storage/model_state.h"
#include "tests/support/temporary_path.h"

using namespace axonn;
using namespace axonn::test;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::Key;
using testing::ThrowsMessage;

namespace {

/// Saves one (4, 3) matrix, and a kind with its first column alone.
void save(const std::string& folder, std::vector<float> values, std::vector<float> column,
          const std::string& name = "weight") {
  const auto slice = [](std::int64_t cols) {
    return Slice{.rows = 4, .cols = cols, .end = 4 * cols, .owned = true};
  };
  const std::vector<StateBlock> blocks = {{.name = "block",
                                           .count = 12,
                                           .parameters = {{{name, 4, 3}, {slice(3)}}},
                                           .buffers = {{"master", values.data()}}},
                                          {.name = "factors",
                                           .count = 4,
                                           .parameters = {{{name, 4, 3}, {slice(1)}}},
                                           .buffers = {{"exp_avg_sq_row", column.data()}}}};
  const auto world = make_self();
  CheckpointSaver saver({.folder = folder});
  saver.begin(*world, 1, blocks, {});
  saver.finish(*world);
}

std::vector<float> counting(std::size_t count) {
  std::vector<float> values(count);
  for (std::size_t i = 0; i < count; ++i) values[i] = static_cast<float>(i) / 3;
  return values;
}

/// By the definition in state_hash.h.
std::string defined_hash(const std::string& name, std::int64_t rows, std::int64_t cols,
                         const std::vector<float>& values) {
  std::string bytes = name + '\0';
  for (const std::int64_t size : {rows, cols})
    for (int i = 0; i < 8; ++i) bytes += static_cast<char>(size >> 8 * i & 255);
  bytes.append(reinterpret_cast<const char*>(values.data()), 4 * values.size());
  Sha256 hash;
  hash.append(std::as_bytes(std::span(bytes)));
  return hash.finish();
}

}  // namespace

TEST(StateHash, IsThatOfTheDefinitionForWholeParametersAndForTheirFactors) {
  const TemporaryPath folder;
  save(folder.path(), counting(12), counting(4));
  const StateHash hash = hash_of_state(CheckpointReader(folder.path()));
  EXPECT_EQ(hash.step, 1);
  EXPECT_THAT(hash.kinds, ElementsAre(Key("exp_avg_sq_row"), Key("master")));
  EXPECT_EQ(hash.kinds.at("master"), defined_hash("weight", 4, 3, counting(12)));
  EXPECT_EQ(hash.kinds.at("exp_avg_sq_row"), defined_hash("weight", 4, 1, counting(4)));
}

TEST(StateHash, IsTheSameForEveryGridThatWroteTheState) {
  const ModelStateOptions model{.experts = 4};
  std::optional<StateHash> one;
  for (const GridShape& grid :
       {GridShape{}, GridShape{2, 1, 2, 1}, GridShape{2, 2, 2, 1}, GridShape{6, 1, 1, 2},
        GridShape{1, 1, 4, 3}, GridShape{1, 1, 4, 1, 1, 4}}) {
    const TemporaryPath folder;
    save_model(folder.path(), grid, 7, {}, model);
    const StateHash hash = hash_of_state(CheckpointReader(folder.path()));
    if (!one) one = hash;
    EXPECT_EQ(hash, *one) << to_string(grid);
  }
  EXPECT_EQ(one->kinds.size(), 3);
  EXPECT_EQ(one->step, 7);
}

TEST(StateHash, ChangesWithOneBitANameOrTheSignOfZero) {
  const auto hash = [](std::vector<float> values, const std::string& name = "weight") {
    const TemporaryPath folder;
    save(folder.path(), std::move(values), counting(4), name);
    return hash_of_state(CheckpointReader(folder.path()));
  };
  const StateHash before = hash(counting(12));
  std::vector<float> one_bit = counting(12), zero = counting(12);
  one_bit[11] = std::nextafter(one_bit[11], 100.0f);
  zero[0] = -0.0f;
  for (const StateHash& other : {hash(one_bit), hash(zero), hash(counting(12), "other")}) {
    EXPECT_NE(other.kinds.at("master"), before.kinds.at("master"));
    EXPECT_NE(other.state, before.state);
  }
  EXPECT_EQ(hash(one_bit).kinds.at("exp_avg_sq_row"), before.kinds.at("exp_avg_sq_row"));
}

TEST(StateDifferences, CountBitsAndSignsOfZeroAndRefuseOtherParameters) {
  const TemporaryPath a, b, c;
  std::vector<float> values = counting(12);
  save(a.path(), values, counting(4));
  values[0] = -0.0f;
  values[5] += 0.5f;
  save(b.path(), values, counting(4));
  save(c.path(), values, counting(4), "other");
  const auto found = differences(CheckpointReader(a.path()), CheckpointReader(b.path()));
  ASSERT_EQ(found.size(), 2);
  EXPECT_EQ(found[0].kind, "exp_avg_sq_row");
  EXPECT_EQ(found[0].different, 0);
  EXPECT_EQ(found[0].values, 4);
  EXPECT_EQ(found[1].values, 12);
  EXPECT_EQ(found[1].different, 2);
  EXPECT_EQ(found[1].zeros, 1);
  EXPECT_FLOAT_EQ(static_cast<float>(found[1].largest), 0.5f);
  EXPECT_THAT([&] { differences(CheckpointReader(a.path()), CheckpointReader(c.path())); },
              ThrowsMessage<UsageError>(HasSubstr("hold other parameters")));
}

TEST(StateDifferences, OfAValueThatIsNoNumberAreNotANumber) {
  const TemporaryPath a, b;
  std::vector<float> values = counting(12);
  save(a.path(), values, counting(4));
  values[3] = std::numeric_limits<float>::quiet_NaN();
  save(b.path(), values, counting(4));
  const auto found = differences(CheckpointReader(a.path()), CheckpointReader(b.path()));
  EXPECT_EQ(found[1].different, 1);
  EXPECT_TRUE(std::isnan(found[1].largest));
}
