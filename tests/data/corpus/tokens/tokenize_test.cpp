#include "axonn/data/corpus/tokens/tokenize.h"

#include <chrono>
#include <condition_variable>
#include <filesystem>
#include <mutex>
#include <random>
#include <set>
#include <thread>

#include <gmock/gmock.h>

#include "axonn/data/corpus/synthetic/synthetic.h"
#include "axonn/data/corpus/tokens/token_file.h"
#include "axonn/foundation/base/check.h"
#include "axonn/foundation/base/files.h"
#include "axonn/foundation/base/host.h"

#include "tests/data/text/small_bpe.h"

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

/// Notes the threads that encode. Each waits until `wanted` have come, or `patience` is over.
class ThreadNoter : public Tokenizer {
 public:
  ThreadNoter(std::int64_t wanted, std::chrono::milliseconds patience)
      : wanted_(wanted), patience_(patience) {
    tokens_ = {"x"};
  }
  std::int64_t threads() const { return std::ssize(threads_); }

 private:
  void append_tokens(std::string_view, std::vector<std::int32_t>&,
                     const EncodeOptions&) const override {
    std::unique_lock lock(mutex_);
    threads_.insert(std::this_thread::get_id());
    came_.notify_all();
    came_.wait_for(lock, patience_, [&] { return threads() >= wanted_; });
  }

  std::int64_t wanted_;
  std::chrono::milliseconds patience_;
  mutable std::mutex mutex_;
  mutable std::condition_variable came_;
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
  refused(folder.path("empty"), "have no .txt, .jsonl, .csv or .parquet files");
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
  refused({text}, "", "--out");
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
    const ThreadNoter alone(2, std::chrono::milliseconds(2)), three(3, std::chrono::seconds(30));
    tokenize(files, alone, sink);
    EXPECT_EQ(alone.threads(), 1);
    tokenize(files, three, sink, {.threads = 3});
    EXPECT_EQ(three.threads(), 3);
  }).join();
}

TEST(Tokenize, ATextThatIsCutShortMeanwhileIsAnErrorWithItsName) {
  TempFolder folder;
  const std::string path = folder.file("t.txt", synthetic_text(10'000'000, 1));
  const auto bytes = make_tokenizer("bytes");
  const TokenizeOptions options{.threads = 1, .report = [&](const TokenizeProgress&) {
                                  std::filesystem::resize_file(path, 0);
                                }};
  EXPECT_THAT([&] { tokenize_in_memory({path}, *bytes, options); },
              testing::ThrowsMessage<UsageError>(HasSubstr("t.txt is cut short")));
}

namespace {

/// Makes a token of each byte, and lets texts be cut at spaces only.
class CutAtSpaces : public Tokenizer {
 private:
  bool is_border(std::string_view text, std::size_t at) const override { return text[at] == ' '; }
  void append_tokens(std::string_view text, std::vector<std::int32_t>& tokens,
                     const EncodeOptions&) const override {
    for (const char byte : text) tokens.push_back(static_cast<unsigned char>(byte));
  }
};

}  // namespace

TEST(Tokenize, ATextWithoutAPlaceToCutIsOnePieceAndTheTextAfterItIsCutAgain) {
  TempFolder folder;
  const std::string whole(9'000'000, 'x'), text = whole + ' ' + synthetic_text(9'000'000, 1);
  std::vector<std::int64_t> pieces;
  const TokenSink sink{
      [&](std::span<const std::int32_t> piece) { pieces.push_back(std::ssize(piece)); }};
  EXPECT_EQ(tokenize({folder.file("t.txt", text)}, CutAtSpaces(), sink).tokens, std::ssize(text));
  EXPECT_EQ(pieces.front(), std::ssize(whole));
  EXPECT_EQ(pieces.size(), 4u);
}

namespace {

std::vector<std::int32_t> tokens_of(const TokenSource& source) {
  std::vector<std::int32_t> tokens(static_cast<std::size_t>(source.size()));
  source.read(0, tokens);
  return tokens;
}

}  // namespace

TEST(TokenizeCached, ContinuesWhereARunThatEndedHadCome) {
  TempFolder folder;
  const auto bpe = make_tokenizer(small_bpe(folder));
  const OnOneCore one;
  const std::int64_t each = 12'000'000;  // three batches
  std::vector<std::string> files;
  for (int i = 0; i < 3; ++i)
    files.push_back(folder.file(concat(i, ".txt"), synthetic_text(each, i)));
  const auto want = tokens_of(*tokenize_in_memory(files, *bpe));
  const TokenCache cache{.folder = folder.path("cache"), .part_seconds = 0};
  std::int64_t begun = -1;
  const auto open = [&](std::int64_t most) {
    begun = -1;
    const auto report = [&](const TokenizeProgress& progress) {
      EXPECT_EQ(progress.total_bytes, 3 * each);
      if (begun < 0) begun = progress.bytes;
      AXONN_CHECK(progress.bytes <= most, "the run ends");
    };
    return tokenize_cached(files, *bpe, cache, {.report = report});
  };
  EXPECT_THROW(open(each), Error);
  EXPECT_LT(begun, each / 2);
  EXPECT_THROW(open(2 * each), Error);
  EXPECT_GT(begun, each / 2) << "the first part is kept";
  EXPECT_EQ(tokens_of(*open(3 * each)), want);
  EXPECT_GT(begun, each);
  std::vector<std::int64_t> begins, wanted;
  open(0)->document_begins(0, std::ssize(want), begins);
  tokenize_in_memory(files, *bpe)->document_begins(0, std::ssize(want), wanted);
  EXPECT_EQ(wanted.size(), 3u);
  EXPECT_EQ(begins, wanted) << "parts that end inside a file begin no document";
  EXPECT_EQ(tokens_of(*open(0)), want) << "nothing is tokenised";
  EXPECT_EQ(begun, -1);
  for (const auto& entry : std::filesystem::directory_iterator(cache.folder))
    if (entry.path().string().ends_with("-2.bin")) std::filesystem::resize_file(entry, 10);
  EXPECT_EQ(tokens_of(*open(3 * each)), want);
  EXPECT_GT(begun, each / 2) << "parts before the damaged one are kept";
}

TEST(TokenizeCached, RanksThatDoNotMakeTheCacheWaitForItAndNeverChangeIt) {
  TempFolder folder;
  const std::vector<std::string> files{folder.file("t.txt", "hello")};
  const auto bytes = make_tokenizer("bytes");
  const TokenCache first{.folder = folder.path("cache")};
  const auto open = [&](double patience) {
    return tokenize_cached(
        files, *bytes, {.folder = first.folder, .makes = false, .patience_seconds = patience}, {});
  };
  EXPECT_THAT([&] { open(0.1); },
              testing::ThrowsMessage<UsageError>(HasSubstr("output.dir must be on a file system")));
  EXPECT_FALSE(path_exists(first.folder));
  {
    const std::jthread maker([&] {
      std::this_thread::sleep_for(std::chrono::milliseconds(100));
      tokenize_cached(files, *bytes, first, {});
    });
    EXPECT_EQ(open(600)->size(), 5);
  }
  std::set<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator(first.folder)) {
    names.insert(entry.path());
    std::filesystem::resize_file(entry, 3);  // as a client of NFS may see it for a while
  }
  EXPECT_THROW(open(0.1), UsageError);
  for (const std::string& name : names) EXPECT_EQ(std::filesystem::file_size(name), 3u) << name;
}

TEST(TokenizeCached, RemovesWhatKilledRunsLeftInTheCacheAndNoMore) {
  TempFolder folder;
  const auto bytes = make_tokenizer("bytes");
  const std::string left = folder.file("cache/tokens-0.bin.tmp-0123456789abcdef", "x"),
                    other = folder.file("cache/notes.tmp", "the user's");
  AtomicFile live(folder.path("cache/documents-1.bin"));
  tokenize_cached({folder.file("t.txt", "hello")}, *bytes, {.folder = folder.path("cache")}, {});
  EXPECT_FALSE(path_exists(left));
  EXPECT_TRUE(path_exists(other));
  EXPECT_NO_THROW(live.commit());
}
