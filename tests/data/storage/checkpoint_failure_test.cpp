#include <cstring>
#include <filesystem>

#include <gmock/gmock.h>
#include <signal.h>
#include <sys/resource.h>
#include <unistd.h>

#include "axonn/data/storage/checkpoint/checkpoint_reader.h"
#include "axonn/data/storage/checkpoint/checkpoint_saver.h"
#include "axonn/foundation/base/check.h"
#include "axonn/ranks/comm/self.h"
#include "axonn/ranks/comm/threads/threads.h"

#include "tests/data/storage/model_state.h"
#include "tests/support/small_disk.h"
#include "tests/support/temporary_path.h"

using namespace axonn;
using namespace axonn::test;
using namespace axonn::testing_support;
using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::ThrowsMessage;
namespace fs = std::filesystem;

namespace {

/// While it exists, a write beyond this size of a file fails with EFBIG.
class FileSizeLimit {
 public:
  explicit FileSizeLimit(rlim_t bytes) {
    handler_ = ::signal(SIGXFSZ, SIG_IGN);
    ::getrlimit(RLIMIT_FSIZE, &before_);
    const rlimit now = {bytes, before_.rlim_max};
    ::setrlimit(RLIMIT_FSIZE, &now);
  }
  ~FileSizeLimit() {
    ::setrlimit(RLIMIT_FSIZE, &before_);
    ::signal(SIGXFSZ, handler_);
  }
  FileSizeLimit(const FileSizeLimit&) = delete;
  FileSizeLimit& operator=(const FileSizeLimit&) = delete;

 private:
  rlimit before_{};
  sighandler_t handler_;
};

/// A vector of `count` elements, all owned.
struct Vector {
  explicit Vector(std::int64_t count) : values(static_cast<std::size_t>(count), 2.0F) {}
  std::vector<StateBlock> block(std::int64_t begin, std::int64_t total) {
    const auto count = static_cast<std::int64_t>(values.size());
    const Slice mine = {.row = 0,
                        .rows = total,
                        .col = 0,
                        .cols = 1,
                        .begin = begin,
                        .end = begin + count,
                        .offset = 0,
                        .owned = true};
    return {{.name = "block",
             .count = count,
             .parameters = {{{"v", total, 1}, {mine}}},
             .buffers = {{"master", values.data()}}}};
  }
  std::vector<float> values;
};

/// Saves on four ranks, with a vector of `each` elements per rank. Returns every rank's error
/// message.
std::vector<std::string> save_vectors(const std::string& folder, std::int64_t step,
                                      std::int64_t each) {
  std::vector<std::string> told(4);
  run_ranks(4, [&](Communicator& world) {
    Vector mine(each);
    CheckpointSaver saver({.folder = folder, .keep = 1});
    try {
      saver.begin(world, step, mine.block(each * world.rank(), 4 * each), {});
      saver.finish(world);
    } catch (const Error& error) {
      told[static_cast<std::size_t>(world.rank())] = error.what();
    }
    EXPECT_FALSE(saver.pending());
    EXPECT_TRUE(saver.written());
  });
  return told;
}

constexpr std::int64_t kPage = 4096;

}  // namespace

TEST(FailedCheckpoint, OnADiskWithTooLittleRoomFailsBeforeWritingAndKeepsTheOlderOne) {
  const TemporaryPath folder;
  const SmallDisk disk(folder / "disk", std::to_string(64 * kPage));
  if (!disk.mounted()) GTEST_SKIP() << kNoMount;
  ASSERT_THAT(save_vectors(folder / "disk", 1, 4 * kPage / 4), testing::Each(""));
  const auto told = save_vectors(folder / "disk", 2, 16 * kPage / 4);
  for (const std::string& message : told)
    EXPECT_THAT(message, AllOf(HasSubstr("step-2 failed on rank 0: it needs 262"),
                               HasSubstr("has room for"), HasSubstr("free space")));
  EXPECT_THAT(names_in(folder / "disk"), ElementsAre("latest", "step-1"));
  EXPECT_EQ(CheckpointReader(folder / "disk").step(), 1);
}

TEST(FailedCheckpoint, OnADiskThatFillsUpFailsOnAllRanksAndKeepsTheOlderOne) {
  const TemporaryPath folder;
  // Each file needs a page more than its bytes, which the check of free space cannot know.
  const std::int64_t each = 8 * kPage / 4, pages = 6 + 4 * 8 + 1;
  const SmallDisk disk(folder / "disk", std::to_string(pages * kPage));
  if (!disk.mounted()) GTEST_SKIP() << kNoMount;
  ASSERT_THAT(save_vectors(folder / "disk", 1, 1), testing::Each(""));  // 4 files, index, latest
  const auto told = save_vectors(folder / "disk", 2, each);
  EXPECT_THAT(told, testing::Each(AllOf(HasSubstr("step-2 failed on rank "),
                                        HasSubstr("cannot write "), HasSubstr("rank-0000"),
                                        HasSubstr("No space left on device; free space"))));
  EXPECT_THAT(told, testing::Each(told[0]));
  EXPECT_THAT(names_in(folder / "disk"), ElementsAre("latest", "step-1"));
  EXPECT_THAT(save_vectors(folder / "disk", 3, 1), testing::Each(""));
}

TEST(FailedCheckpoint, OnOneRankFailsOnAllRanksAndLeavesOnlyTheOlderOne) {
  const TemporaryPath folder;
  save_vectors(folder.path(), 1, 10);
  run_ranks(4, [&](Communicator& world) {
    const bool large = world.rank() == 2;
    Vector mine(large ? 4000 : 10);
    CheckpointSaver saver({.folder = folder.path()});
    world.barrier();
    std::unique_ptr<FileSizeLimit> limit;
    if (world.rank() == 0) limit = std::make_unique<FileSizeLimit>(8192);
    world.barrier();
    const auto save = [&] {
      saver.begin(world, 2, mine.block(world.rank() * 10 + (world.rank() > 2) * 3990, 4030), {});
      saver.finish(world);
    };
    EXPECT_THAT(save, ThrowsMessage<Error>(AllOf(HasSubstr("step-2 failed on rank 2: "),
                                                 HasSubstr("rank-00002.safetensors"),
                                                 HasSubstr("File too large"))));
    world.barrier();
    limit.reset();
    world.barrier();
    EXPECT_THAT(names_in(folder.path()), ElementsAre("latest", "step-1"));
    world.barrier();
    EXPECT_NO_THROW(save());
  });
  EXPECT_EQ(CheckpointReader(folder.path()).step(), 2);
}

TEST(FailedCheckpoint, ThatCannotBePublishedFailsOnAllRanks) {
  const TemporaryPath folder;
  fs::create_directory(folder / "latest");  // a folder where a file belongs
  EXPECT_THAT(save_vectors(folder.path(), 1, 10),
              testing::Each(AllOf(HasSubstr("failed on rank 0: cannot write"),
                                  HasSubstr("latest: it is a folder"))));
}

TEST(FailedCheckpoint, InAFolderWithoutWritePermissionNamesTheFolderAndTheCause) {
  const TemporaryPath folder;
  spill(folder / "file", "");
  EXPECT_THAT(save_vectors(folder / "file/checkpoints", 1, 10),
              testing::Each(AllOf(HasSubstr("cannot make the folder"), HasSubstr("file"))));
  if (::geteuid() != 0) {
    fs::permissions(folder.path(), fs::perms::owner_read | fs::perms::owner_exec);
  } else {
    fs::permissions(folder.path(),
                    fs::perms::all & ~fs::perms::group_write & ~fs::perms::others_write);
    ASSERT_EQ(::seteuid(65534), 0);
  }
  const auto told = save_vectors(folder / "new", 1, 10);
  if (::getuid() == 0) {
    ASSERT_EQ(::seteuid(0), 0);
  }
  fs::permissions(folder.path(), fs::perms::owner_all);
  EXPECT_THAT(told, testing::Each(AllOf(HasSubstr("cannot make the folder"),
                                        HasSubstr("Permission denied; change the permissions"))));
}

TEST(Checkpoint, LeftUnfinishedByADeadJobIsIgnoredAndRemovedByTheNextSave) {
  const TemporaryPath folder;
  save_vectors(folder.path(), 1, 10);
  fs::create_directory(folder / "step-2.tmp-0123456789abcdef");
  spill(folder / "step-2.tmp-0123456789abcdef/rank-00000.safetensors", "half");
  spill(folder / "latest.tmp-0123456789abcdef", "st");
  fs::create_directory(folder / "step-2.tmp-mine");
  fs::create_directory(folder / "other.tmp-0123456789abcdef");
  EXPECT_EQ(CheckpointReader(folder.path()).step(), 1);
  save_vectors(folder.path(), 2, 10);
  EXPECT_THAT(names_in(folder.path()),
              ElementsAre("latest", "other.tmp-0123456789abcdef", "step-2", "step-2.tmp-mine"));
}

TEST(Checkpoint, SavingKeepsTheNewestKAndThoseOfLaterSteps) {
  const TemporaryPath folder;
  const SaverOptions keep = {.keep = 2};
  save_model(folder.path(), {2, 1, 1, 1}, 1000, keep);
  for (int step : {8, 9, 10, 11}) save_model(folder.path(), {2, 1, 1, 1}, step, keep);
  EXPECT_THAT(names_in(folder.path()), ElementsAre("latest", "step-10", "step-1000", "step-11"));
  EXPECT_EQ(CheckpointReader(folder.path()).step(), 11);
  save_model(folder.path(), {2, 1, 1, 1}, 12, {.keep = 0});
  EXPECT_EQ(names_in(folder.path()).size(), 5);
}

TEST(Checkpoint, OfAnExistingStepReplacesIt) {
  const TemporaryPath folder;
  save_vectors(folder.path(), 1, 10);
  save_vectors(folder.path(), 1, 20);
  EXPECT_THAT(names_in(folder.path()), ElementsAre("latest", "step-1"));
  EXPECT_EQ(CheckpointReader(folder.path()).index().parameters[0].rows, 80);
}

TEST(Checkpoint, IsFinishedWithoutTheRankThatFailedWhileItWasWritten) {
  for (const int failing : {0, 2}) {
    const TemporaryPath folder;
    const auto run = [&](Communicator& world) {
      Vector mine(1000);
      CheckpointSaver saver({.folder = folder.path()});
      saver.begin(world, 1, mine.block(world.rank() * 1000, 4000), {});
      try {
        AXONN_CHECK(world.rank() != failing, "broken");
        world.barrier();
      } catch (const Error&) {
        EXPECT_EQ(saver.finish_alone(), world.rank() == 0);
        EXPECT_FALSE(saver.pending());
        throw;
      }
    };
    EXPECT_THAT([&] { run_ranks(4, run); }, ThrowsMessage<Error>(HasSubstr("broken")));
    EXPECT_THAT(names_in(folder.path()), ElementsAre("latest", "step-1"));
    EXPECT_EQ(CheckpointReader(folder.path()).index().ranks, 4);
    EXPECT_THAT(names_in(folder / "step-1"),
                ElementsAre("index.json", "rank-00000.safetensors", "rank-00001.safetensors",
                            "rank-00002.safetensors", "rank-00003.safetensors"));
  }
}

TEST(Checkpoint, ThatIsNotFinishedIsRemovedWithItsSaver) {
  const TemporaryPath folder;
  const auto world = make_self();
  {
    Vector mine(1000);
    CheckpointSaver saver({.folder = folder.path()});
    saver.begin(*world, 1, mine.block(0, 1000), {});
  }
  EXPECT_THAT(names_in(folder.path()), testing::IsEmpty());
}
