#include "axonn/data/text/hub.h"

#include <filesystem>

#include <gmock/gmock.h>

using namespace axonn;

TEST(DownloadHint, IsGivenForNamesOnTheHubAlone) {
  EXPECT_THAT(download_hint("Qwen/Qwen3-0.6B"),
              testing::HasSubstr("'hf download Qwen/Qwen3-0.6B --local-dir Qwen3-0.6B'"));
  for (const char* path :
       {"gpt2", "out/a/b", "/Qwen/Qwen3", "./Qwen3", "../Qwen3", "Qwen/", "a/b c"})
    EXPECT_EQ(download_hint(path), "") << path;
  std::filesystem::create_directory("owner");
  EXPECT_EQ(download_hint("owner/model"), "") << "a folder of this name exists";
  std::filesystem::remove("owner");
}
