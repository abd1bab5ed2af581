#include "axonn/data/tokenize.h"

#include <mutex>
#include <random>
#include <set>
#include <thread>

#include <gmock/gmock.h>

#include "axonn/base/check.h"
#include "axonn/base/files.h"
#include "axonn/base/host.h"
#include "axonn/data/synthetic/synthetic.h"
#include "axonn/data/token_file.h"

#include "tests/text/small_bpe.h"

using namespace axonn;
using namespace axonn::test;
using testing::ElementsAre;
using testing::HasSubstr;

namespace {

std::vector<std::int32_t> tokenized(const TokenFile& file) {
  std::vector<std::int32_t> tokens(static_cast<std::size_t>(file.size()));
  file.read(0, tokens);
  return tokens;
}

/// Notes the threads that encode.
class ThreadNoter : public Tokenizer {
 public:
  ThreadNoter() { tokens_ = {"x"}; }
  std::int64_t threads() const { return std::ssize(threads_); }

 private:
  void append_tokens(std::string_view, std::vector<std::int32_t>&,
                     const EncodeOptions&) const override {
    std::this_thread::sleep_for(std::chrono::milliseconds(2));  // leaves texts to other threads
    const std::lock_guard lock(mutex_);
    threads_.insert(std::this_thread::get_id());
  }

  mutable std::mutex mutex_;
  mutable std::set<std::thread::id> threads_;
};

}  // namespace

TEST(TextFiles, AFolderStandsForItsTxtFilesSortedByName) {
  TempFolder folder;
  const auto b = folder.file("t/b.txt", "b"), a = folder.file("t/sub/a.txt", "a"),
             c = folder.file("t/c.txt", "c"), other = folder.file("t/a.json", "{}");
  EXPECT_THAT(text_files({folder.path("t")}), ElementsAre(b, c, a));
  EXPECT_THAT(text_files({other, c}), ElementsAre(other, c));
  EXPECT_THAT(text_files({folder.path("t/*.txt")}), ElementsAre(b, c));
}

TEST(TextFiles, APathThatNamesNothingIsRefusedByName) {
  TempFolder folder;
  std::filesystem::create_directory(folder.path("empty"));
  const auto refused = [](const std::string& path, const std::string& why) {
    EXPECT_THAT([&] { text_files({path}); }, testing::ThrowsMessage<UsageError>(HasSubstr(why)));
  };
  refused(folder.path("none.txt"), "no file or folder " + folder.path("none.txt"));
  refused(folder.path("*.md"), "no file matches");
  refused(folder.path("empty"), "have no .txt files");
  refused("", "empty path");
  refused(std::string(5000, 'x'), "no file or folder");
}

TEST(Tokenize, PutsEndOfTextAfterEachFileUnlessItIsThere) {
  TempFolder folder;
  const auto bpe = make_tokenizer(small_bpe(folder));
  const std::vector<std::string> files{folder.file("a.txt", "hello"),
                                       folder.file("b.txt", "lll<|endoftext|>"),
                                       folder.file("c.txt", "")};
  std::vector<std::int32_t> tokens;
  int documents = 0;
  const TokenSink sink{[&](std::span<const std::int32_t> piece) {
                         tokens.insert(tokens.end(), piece.begin(), piece.end());
                       },
                       [&] { ++documents; }};
  const auto result = tokenize(files, *bpe, sink);
  EXPECT_THAT(tokens, ElementsAre(259, kSmallEnd, 257, 'l', kSmallEnd, kSmallEnd));
  EXPECT_EQ(documents, 3);
  EXPECT_EQ(result.tokens, 6);
  EXPECT_EQ(result.bytes, 21);
  EXPECT_EQ(result.total_bytes, 21);
}

TEST(TokenizeFiles, ManyPiecesGiveTheTokensOfTheWholeTextAndProgressGrows) {
  TempFolder folder;
  const std::string text = synthetic_text(10'000'000, 1);  // three pieces
  const auto bpe = make_tokenizer(small_bpe(folder));
  std::vector<std::int64_t> bytes;
  const auto result =
      tokenize_files(folder.path(), {folder.file("t.txt", text)}, folder.path("t.bin"),
                     {.report = [&](const TokenizeProgress& p) { bytes.push_back(p.bytes); }});
  auto want = bpe->encode(text);
  want.push_back(kSmallEnd);
  EXPECT_EQ(tokenized(TokenFile(folder.path("t.bin"))), want);
  EXPECT_EQ(result.tokens, std::ssize(want));
  ASSERT_EQ(bytes.size(), 3u);
  EXPECT_LT(bytes[0], bytes[1]);
  EXPECT_EQ(bytes[2], 10'000'000);
}

TEST(TokenizeFiles, ATextWithoutSpacesAndNewlinesIsCutIntoPieces) {
  TempFolder folder;
  std::string text;
  while (text.size() < 10'000'000) text += "人人生而自由，在尊嚴和權利上一律平等。";
  const auto bpe = make_tokenizer(small_bpe(folder));
  int pieces = 0;
  tokenize_files(folder.path(), {folder.file("t.txt", text)}, folder.path("t.bin"),
                 {.threads = 2, .report = [&](const TokenizeProgress&) { ++pieces; }});
  EXPECT_EQ(pieces, 3);
  auto want = bpe->encode(text);
  want.push_back(kSmallEnd);
  EXPECT_TRUE(tokenized(TokenFile(folder.path("t.bin"))) == want);
}

TEST(TokenizeFiles, RefusesInvalidJobsBeforeWritingAnything) {
  TempFolder folder;
  const std::string text = folder.file("t.txt", "hello");
  const auto refused = [](const std::vector<std::string>& files, const std::string& output,
                          const std::string& why) {
    EXPECT_THAT([&] { tokenize_files("bytes", files, output); },
                testing::ThrowsMessage<UsageError>(HasSubstr(why)));
  };
  refused({text}, text, "is one of the text files");
  const std::string bin = folder.file("t.bin", "hello");
  refused({bin}, folder.path("t"), "t.bin is one of the text files");
  std::filesystem::remove(bin);
  refused({}, folder.path("o.bin"), "--text");
  refused({text}, "", "--output");
  refused({folder.path("none")}, folder.path("o.bin"), "no file or folder");
  tokenize_files("bytes", {text}, folder.path("o.bin"));
  refused({folder.path("o.bin")}, folder.path("p.bin"), "is a token file, not text");
  EXPECT_EQ(folder.entries(), 2);
}

TEST(Describe, ShowsTheFactsOfATokenFile) {
  TempFolder folder;
  const auto bpe = make_tokenizer(small_bpe(folder));
  tokenize_files(folder.path(), {folder.file("t.txt", "hello\nworld")}, folder.path("m"));
  const TokenFile file(folder.path("m"));
  const std::string text = describe(file, bpe.get(), 3);
  for (const char* line :
       {"format     Megatron, u16\n", "tokens     6\n", "documents  1, 6", "smallest   10\n",
        "largest    264\n", "first      259 10 119\n", "text       \"hello\\nw\"\n"})
    EXPECT_THAT(text, HasSubstr(line));
  const auto bytes = make_tokenizer("bytes");
  EXPECT_THAT(describe(file, bytes.get()), HasSubstr("token 259 is not one of the 256 of bytes"));
}

TEST(Tokenize, UsesAsManyThreadsAsThereAreCoresThatItMayUse) {
  TempFolder folder;
  const std::vector<std::string> files(30, folder.file("t.txt", "x"));
  const TokenSink sink{[](std::span<const std::int32_t>) {}};
  std::thread([&] {
    ASSERT_TRUE(bind_this_thread({usable_cores().front()}));
    const ThreadNoter alone, three;
    tokenize(files, alone, sink);
    EXPECT_EQ(alone.threads(), 1);
    tokenize(files, three, sink, {.threads = 3});
    EXPECT_EQ(three.threads(), 3);
  }).join();
}
