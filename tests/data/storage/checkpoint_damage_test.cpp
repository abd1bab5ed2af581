#include <filesystem>
#include <random>

#include <gmock/gmock.h>

#include "axonn/data/storage/checkpoint/checkpoint_index.h"
#include "axonn/foundation/base/check.h"

#include "tests/data/storage/model_state.h"
#include "tests/support/temporary_path.h"

using namespace axonn;
using namespace axonn::test;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::ThrowsMessage;
namespace fs = std::filesystem;

namespace {

/// Loads step-1 of the folder. Returns "" if every value is right, else the difference or the
/// error.
std::string read_step(const std::string& folder) {
  try {
    ModelState state({1, 1, 1, 1}, 0, {.vocab = 13});
    const CheckpointReader reader(folder + "/step-1");
    load_blocks(reader, state.blocks());
    return state.difference(1);
  } catch (const UsageError& error) {
    return error.what();
  }
}

void save_small(const std::string& folder, std::int64_t step = 1) {
  save_model(folder, {2, 1, 1, 1}, step, {.keep = 0}, {.vocab = 13});
}

}  // namespace

TEST(DamagedCheckpoint, IsRefusedWithTheFileNameIfAnyByteIsFlipped) {
  const TemporaryPath folder;
  save_small(folder.path());
  ASSERT_EQ(read_step(folder.path()), "");
  std::mt19937 random(1);
  for (const std::string& name : names_in(folder / "step-1")) {
    const std::string path = folder / "step-1/" + name, good = slurp(path);
    // Every one of the first and last 400 bytes, and every 37th in between.
    for (std::size_t i = 0; i < good.size(); i += i < 400 || i + 400 + 37 > good.size() ? 1 : 37) {
      const int bits = 1 << random() % 8;
      flip(path, i, bits);
      ASSERT_THAT(read_step(folder.path()), HasSubstr(name)) << "byte " << i;
      flip(path, i, bits);
    }
    ASSERT_EQ(slurp(path), good);
  }
  EXPECT_EQ(read_step(folder.path()), "");
}

TEST(DamagedCheckpoint, IsRefusedWithTheParameterNameIfAValueIsFlipped) {
  const TemporaryPath folder;
  save_small(folder.path());
  const std::string path = folder / "step-1/rank-00001.safetensors";
  std::string bytes = slurp(path);
  bytes.back() ^= 1;
  spill(path, bytes);
  EXPECT_THAT(read_step(folder.path()),
              testing::AllOf(HasSubstr(path + " is altered: bytes 0 to "), HasSubstr("weight")));
}

TEST(DamagedCheckpoint, IsRefusedWithTheFileNameIfAFileIsCutShortOrGrownOrMissing) {
  const TemporaryPath folder;
  save_small(folder.path());
  ASSERT_FALSE(names_in(folder / "step-1").empty());
  for (const std::string& name : names_in(folder / "step-1")) {
    const std::string path = folder / "step-1/" + name, good = slurp(path);
    for (std::size_t length = 0; length < good.size(); length += 1 + good.size() / 50) {
      spill(path, good.substr(0, length));
      ASSERT_THAT(read_step(folder.path()), HasSubstr(name)) << "cut to " << length;
    }
    spill(path, good + '\0');
    EXPECT_THAT(read_step(folder.path()), HasSubstr(name));
    fs::remove(path);
    EXPECT_THAT(read_step(folder.path()), HasSubstr(name));
    spill(path, good);
  }
}

TEST(DamagedCheckpoint, CutShortAfterOpeningIsAnErrorNotACrash) {
  const TemporaryPath folder;
  save_small(folder.path());
  const CheckpointReader reader(folder.path());
  fs::resize_file(folder / "step-1/rank-00000.safetensors", 5000);
  ModelState state({1, 1, 1, 1}, 0, {.vocab = 13});
  EXPECT_THAT(
      [&] { load_blocks(reader, state.blocks()); },
      ThrowsMessage<UsageError>(HasSubstr("rank-00000.safetensors has 5000 bytes instead")));
}

TEST(DamagedCheckpoint, IsSkippedWithAWarningForTheNewestIntactOneBeforeIt) {
  const TemporaryPath folder;
  for (int step : {10, 20, 30}) save_small(folder.path(), step);
  EXPECT_EQ(CheckpointReader(folder.path()).step(), 30);
  fs::resize_file(folder / "step-30/rank-00001.safetensors", 100);
  fs::remove(folder / "step-20/state.json");
  const CheckpointReader reader(folder.path());
  EXPECT_EQ(reader.step(), 10);
  EXPECT_THAT(reader.warnings(),
              ElementsAre(HasSubstr("step-30 is skipped: "), HasSubstr("state.json")));
  EXPECT_THAT([&] { CheckpointReader(folder / "step-30"); },
              ThrowsMessage<UsageError>(HasSubstr("cut short")));
  spill(folder / "step-10/index.json", "");
  EXPECT_THAT([&] { CheckpointReader(folder.path()); },
              ThrowsMessage<UsageError>(HasSubstr("holds no intact checkpoint")));
}

TEST(DamagedCheckpoint, WithAnInvalidLatestFileTheNewestStepIsReadWithAWarning) {
  const TemporaryPath folder;
  for (int step : {9, 10}) save_small(folder.path(), step);
  for (const char* text : {"", "step-", "step-1000", "step--1", "nonsense", "step-10x\n"}) {
    spill(folder / "latest", text);
    const CheckpointReader reader(folder.path());
    EXPECT_EQ(reader.step(), 10) << text;
    EXPECT_THAT(reader.warnings(), ElementsAre(HasSubstr("latest"))) << text;
  }
  fs::remove(folder / "latest");
  EXPECT_EQ(CheckpointReader(folder.path()).step(), 10);
}

TEST(DamagedCheckpoint, OfAnAbandonedRunAfterLatestIsIgnored) {
  const TemporaryPath folder;
  for (int step : {10, 30}) save_small(folder.path(), step);
  spill(folder / "latest", "step-10\n");
  const CheckpointReader reader(folder.path());
  EXPECT_EQ(reader.step(), 10);
  EXPECT_THAT(reader.warnings(), IsEmpty());
}

TEST(HasCheckpoint, IsFalseForAMissingOrEmptyFolderAndForAnUnfinishedCheckpoint) {
  const TemporaryPath folder;
  EXPECT_FALSE(has_checkpoint(folder / "none"));
  EXPECT_FALSE(has_checkpoint(folder.path()));
  fs::create_directory(folder / "step-5.tmp-0123456789abcdef");
  fs::create_directory(folder / "step-05");
  EXPECT_FALSE(has_checkpoint(folder.path()));
  EXPECT_THAT([&] { CheckpointReader(folder.path()); },
              ThrowsMessage<UsageError>(HasSubstr("holds no checkpoint")));
  save_small(folder.path());
  EXPECT_TRUE(has_checkpoint(folder.path()));
}
