#include <array>
#include <csignal>
#include <cstring>
#include <numeric>
#include <vector>

#include <gmock/gmock.h>
#include <sys/resource.h>

#include "axonn/data/corpus/tokens/token_file.h"
#include "axonn/foundation/base/check.h"

#include "tests/support/data_files.h"

using namespace axonn;
using namespace axonn::test;
using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;

namespace {

std::vector<std::int32_t> written_tokens(const TokenFile& file) {
  std::vector<std::int32_t> tokens(static_cast<std::size_t>(file.size()));
  file.read(0, tokens);
  return tokens;
}

/// While it exists, files cannot grow beyond this many bytes, as on a full disk.
class FileSizeLimit {
 public:
  explicit FileSizeLimit(rlim_t bytes) : handler_(std::signal(SIGXFSZ, SIG_IGN)) {
    getrlimit(RLIMIT_FSIZE, &before_);
    rlimit limit = before_;
    limit.rlim_cur = bytes;
    setrlimit(RLIMIT_FSIZE, &limit);
  }
  ~FileSizeLimit() {
    setrlimit(RLIMIT_FSIZE, &before_);
    std::signal(SIGXFSZ, handler_);
  }

 private:
  rlimit before_;
  void (*handler_)(int);
};

}  // namespace

TEST(TokenWriter, AnLlmcFileIsReadBack) {
  TempFolder folder;
  std::vector<std::int32_t> tokens(700'000);  // more than one buffer
  std::iota(tokens.begin(), tokens.end(), 0);
  for (auto& token : tokens) token %= 65'536;
  TokenWriter writer(folder.path("a.bin"), 65'536);
  writer.append(std::span(tokens).first(5));
  writer.end_document();
  writer.append(std::span(tokens).subspan(5));
  EXPECT_FALSE(std::filesystem::exists(folder.path("a.bin"))) << "half a file is visible";
  writer.finish();
  const TokenFile file(folder.path("a.bin"));
  EXPECT_EQ(file.documents(), std::nullopt);
  EXPECT_EQ(written_tokens(file), tokens);
  EXPECT_EQ(std::filesystem::file_size(folder.path("a.bin")), 1024 + 2 * tokens.size());
  EXPECT_EQ(folder.entries(), 1);
}

TEST(TokenWriter, AMegatronFileIsReadBackWithItsDocuments) {
  TempFolder folder;
  for (const auto& [vocab, type] :
       {std::pair{65'499, TokenType::u16}, std::pair{65'500, TokenType::i32},
        std::pair{200'000, TokenType::i32}}) {
    TokenWriter writer(folder.path("m"), vocab);
    writer.append(std::vector{1, 2});
    writer.append(std::vector{3});
    writer.end_document();
    writer.end_document();  // an empty one
    writer.append(std::vector{vocab - 1});
    writer.finish();
    const TokenFile file(folder.path("m"));
    EXPECT_EQ(file.type(), type);
    EXPECT_THAT(written_tokens(file), ElementsAre(1, 2, 3, vocab - 1));
    EXPECT_EQ(file.documents(), 3);
    std::array<std::int32_t, 3> lengths;
    std::memcpy(lengths.data(), read_file(folder.path("m.idx")).data() + 34, sizeof lengths);
    EXPECT_THAT(lengths, ElementsAre(3, 0, 1));
  }
  EXPECT_EQ(folder.entries(), 2);
}

TEST(TokenWriter, AFileWithoutTokensIsValid) {
  TempFolder folder;
  for (const char* name : {"a.bin", "m"}) {
    TokenWriter(folder.path(name), 256).finish();
    EXPECT_EQ(TokenFile(folder.path(name)).size(), 0);
  }
}

TEST(TokenWriter, WithoutFinishNothingIsLeftAndAnOlderFileStays) {
  TempFolder folder;
  folder.file("a.bin", "older");
  TokenWriter(folder.path("a.bin"), 256).append(std::vector{1, 2});
  TokenWriter(folder.path("m"), 256).append(std::vector{1, 2});
  EXPECT_EQ(read_file(folder.path("a.bin")), "older");
  EXPECT_EQ(folder.entries(), 1);
}

TEST(TokenWriter, AFullDiskIsAClearErrorAndLeavesNothingBehind) {
  TempFolder folder;
  const std::string older = folder.file("a.bin", "older");
  const std::vector<std::int32_t> tokens(2'000'000, 7);
  const auto write = [&](const std::string& path) {
    const FileSizeLimit limit(100'000);
    TokenWriter writer(path, 256);
    writer.append(tokens);
    writer.finish();
  };
  EXPECT_THAT([&] { write(older); },
              testing::ThrowsMessage<Error>(
                  AllOf(HasSubstr(" bytes to " + older), HasSubstr("File too large"))));
  EXPECT_THROW(write(folder.path("m")), Error);
  EXPECT_EQ(read_file(older), "older");
  EXPECT_EQ(folder.entries(), 1);
}

TEST(TokenWriter, RefusesTokensThatTheFormatCannotHold) {
  TempFolder folder;
  EXPECT_THAT([&] { TokenWriter(folder.path("a.bin"), 65'537); },
              testing::ThrowsMessage<UsageError>(HasSubstr("65537")));
  TokenWriter writer(folder.path("a.bin"), 256);
  EXPECT_THAT(
      [&] {
        writer.append(std::vector{1, 65'536});
      },
      testing::ThrowsMessage<UsageError>(
          AllOf(HasSubstr("token 1 is 65536"), HasSubstr("u16 holds 0 to 65535"))));
  EXPECT_THROW(writer.append(std::vector{-1}), UsageError);
}

TEST(TokenWriter, APathThatCannotBeWrittenIsRefusedByName) {
  TempFolder folder;
  EXPECT_THAT([&] { TokenWriter(folder.path("none/a.bin"), 256); },
              testing::ThrowsMessage<UsageError>(HasSubstr("none/a.bin: No such file")));
  std::filesystem::create_directory(folder.path("d.bin"));
  EXPECT_THAT([&] { TokenWriter(folder.path("d.bin"), 256); },
              testing::ThrowsMessage<UsageError>(HasSubstr("it is a folder")));
}
