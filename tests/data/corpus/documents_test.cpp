#include "axonn/data/corpus/documents.h"

#include <filesystem>

#include <gmock/gmock.h>

#include "axonn/foundation/base/check.h"

#include "tests/support/data_files.h"

using namespace axonn;
using namespace axonn::test;

namespace {

std::shared_ptr<const Documents> write(const std::string& path) {
  DocumentWriter writer(path, "memory");
  writer.append(std::vector<std::int32_t>{~5, 6, ~7, 8, 0});
  writer.append(std::vector<std::int32_t>{});
  writer.append(std::vector<std::int32_t>{~0, 1});
  return writer.finish();
}

}  // namespace

TEST(Documents, StoreWhichTokensAreLearnedIncludingTokenZero) {
  const TempFolder folder;
  for (const std::string& path : {std::string(), folder.path("d.bin")}) {
    const auto documents = write(path);
    ASSERT_EQ(documents->count(), 3);
    EXPECT_EQ(documents->tokens(), 7);
    EXPECT_THAT(documents->coded(0), testing::ElementsAre(~5, 6, ~7, 8, 0));
    EXPECT_TRUE(documents->coded(1).empty());
    EXPECT_EQ(documents->learned(0), 3);
    EXPECT_EQ(documents->learned(2), 1);
    EXPECT_EQ(token_of(~0), 0);
    EXPECT_FALSE(is_learned(~0));
    EXPECT_TRUE(is_learned(0));
    EXPECT_THROW(documents->coded(3), Error);
  }
}

TEST(Documents, RefuseAFileIfAnyByteOfTheTablesIsChangedOrMissing) {
  const TempFolder folder;
  const std::string path = folder.path("d.bin");
  write(path);
  const std::string good = read_file(path);
  for (std::size_t i = 32; i < good.size(); ++i) {  // after 28 bytes of tokens and 4 of padding
    if (i >= 32 + 32 + 12 && i < 32 + 32 + 16) continue;  // padding
    std::string bad = good;
    bad[i] = static_cast<char>(bad[i] ^ 1);
    folder.file("d.bin", bad);
    EXPECT_THROW(const Documents read(path), UsageError) << i;
  }
  for (std::size_t size = 0; size < good.size(); ++size) {
    folder.file("d.bin", good.substr(0, size));
    EXPECT_THROW(const Documents read(path), UsageError) << size;
  }
  folder.file("d.bin", good);
  EXPECT_NO_THROW(const Documents read(path));
}

TEST(Documents, ThatAreCutShortWhileTheyAreOpenAreAnErrorWithTheirName) {
  const TempFolder folder;
  const auto documents = write(folder.path("d.bin"));
  std::filesystem::resize_file(folder.path("d.bin"), 0);
  EXPECT_THAT([&] { documents->coded(0); },
              testing::ThrowsMessage<UsageError>(testing::HasSubstr("d.bin is cut short")));
}
