#include "axonn/data/corpus/tokens/growing_tokens.h"

#include <filesystem>
#include <thread>

#include <gmock/gmock.h>
#include <unistd.h>

#include "axonn/data/corpus/corpus.h"
#include "axonn/foundation/base/check.h"

#include "tests/support/data_files.h"

using namespace axonn;
using namespace axonn::test;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::ThrowsMessage;

namespace {

/// A file of six bytes as tokens, of which some are written.
struct GrowingFile {
  TempFolder folder;
  std::string path = folder.file("t.bin", "abcdef");

  explicit GrowingFile(const std::string& line) { says(line); }
  void says(const std::string& line) const {
    std::filesystem::rename(folder.file("line", line), path + ".written");
  }
};

std::string writer(std::int64_t count) { return concat(count, ' ', getpid(), '\n'); }

}  // namespace

TEST(GrowingTokens, ReadsWhatIsWrittenAndWaitsForTheRest) {
  const GrowingFile growing(writer(3));
  const GrowingTokens tokens(growing.path, RawTokens::u8);
  EXPECT_EQ(tokens.size(), 6);
  std::vector<std::int32_t> read(3);
  tokens.read(0, read);
  EXPECT_THAT(read, ElementsAre('a', 'b', 'c'));
  std::jthread reader([&] { tokens.read(3, read); });
  growing.says(writer(5));
  growing.says(writer(6));
  reader.join();
  EXPECT_THAT(read, ElementsAre('d', 'e', 'f'));
}

TEST(GrowingTokens, ThatWillNotComeAreAnError) {
  const GrowingFile growing(concat("4 ", getpid(), " the data set ended\n"));
  const GrowingTokens tokens(growing.path, RawTokens::u8);
  std::vector<std::int32_t> read(4);
  tokens.read(0, read);
  EXPECT_THAT([&] { tokens.at(4); },
              ThrowsMessage<UsageError>(HasSubstr("4 tokens are there, and then: the data set")));
  growing.says("4 999999999\n");  // more than the kernel has
  EXPECT_THAT([&] { tokens.at(5); },
              ThrowsMessage<UsageError>(HasSubstr("the process 999999999 that wrote them has")));
  growing.says("four\n");
  EXPECT_THAT([&] { tokens.at(5); }, ThrowsMessage<UsageError>(HasSubstr("is no line of")));
}

TEST(GrowingTokens, AreTrainedOnInTheirOrderAloneAndNotFingerprinted) {
  const GrowingFile growing(writer(0));
  DataConfig data{.tokens = {growing.path}, .token_type = RawTokens::u8, .tokenizer = ""};
  EXPECT_THAT([&] { open_corpus(data, {}); },
              ThrowsMessage<UsageError>(HasSubstr("data.shuffle = false")));
  data.shuffle = false;
  data.validation = "0.5";
  EXPECT_THAT([&] { open_corpus(data, {}); },
              ThrowsMessage<UsageError>(HasSubstr("give a file as data.validation")));
  data.validation = "";
  const Corpus corpus = open_corpus(data, {});
  const std::string before = fingerprint(corpus);
  growing.says(writer(6));
  EXPECT_EQ(fingerprint(corpus), before);
  growing.folder.file("t.bin", "abcdefgh");  // of a run with more steps
  EXPECT_EQ(fingerprint(open_corpus(data, {})), before);
}
