#include "axonn/run/train/tokenize_on_ranks.h"

#include <algorithm>

#include <gmock/gmock.h>

#include "axonn/data/corpus/synthetic/synthetic.h"
#include "axonn/foundation/base/check.h"
#include "axonn/ranks/comm/texts.h"
#include "axonn/ranks/comm/threads/threads.h"

#include "tests/data/corpus/compress.h"
#include "tests/data/text/small_bpe.h"
#include "tests/support/data_files.h"

using namespace axonn;
using namespace axonn::test;
using testing::AllOf;
using testing::HasSubstr;

namespace {

/// Tokenizes by so many ranks. Returns what each of them threw.
std::vector<std::string> tokenized(int ranks, const std::string& tokenizer,
                                   const std::vector<std::string>& text,
                                   const std::string& output) {
  std::vector<std::string> faults(ranks);
  run_ranks(ranks, [&](Communicator& world) {
    try {
      tokenize_on_ranks(world, tokenizer, text, output, {.threads = 1});
    } catch (const AgreedError& error) {
      faults[world.rank()] = error.what();
    }
  });
  return faults;
}

/// Lines of JSON with documents of any length, some blank.
std::string json_lines(int count) {
  std::string lines;
  for (int i = 0; i < count; ++i) {
    const std::string text = synthetic_text(1 + 97 * i % 1500, i);
    std::string escaped;
    for (const char c : text) escaped += c == '\n' ? "\\n" : c == '"' ? "\\\"" : std::string(1, c);
    lines += "{\"text\": \"" + escaped + "\"}\n" + (i % 7 == 0 ? "\n" : "");
  }
  return lines;
}

}  // namespace

TEST(TokenizeOnRanks, GivesTheSameBytesForAnyNumberOfRanks) {
  const TempFolder folder, out;
  small_bpe(folder);
  std::string words, chinese;  // whose tokens change if a word is cut
  while (words.size() < 100'000) words += "hello world hell world ";
  while (chinese.size() < 30'000) chinese += "人人生而自由，在尊嚴和權利上一律平等。 hello";
  const std::vector<std::string> text{folder.file("0-empty.txt", ""),
                                      folder.file("a.txt", words),
                                      folder.file("b.jsonl", json_lines(80)),
                                      folder.file("c-empty.txt", ""),
                                      folder.file("d.txt.gz", gzip(words)),
                                      folder.file("e.txt", "hello<|endoftext|>"),
                                      folder.file("f.txt", chinese),
                                      folder.file("g.jsonl.zst", zstandard(json_lines(20))),
                                      folder.file("h.txt", "x"),
                                      folder.file("i-no-newline.jsonl", R"({"text": "hello"})")};
  for (const char* name : {"llmc.bin", "megatron"}) {
    tokenize_files(folder.path(), text, folder.path(name));
    for (const int ranks : {1, 2, 3, 7, 16}) {
      SCOPED_TRACE(testing::Message() << name << ", " << ranks << " ranks");
      for (const std::string& fault : tokenized(ranks, folder.path(), text, out.path(name)))
        EXPECT_EQ(fault, "");
      for (const char* ending : {"", ".bin", ".idx"})
        EXPECT_TRUE(read_file(out.path(name) + ending) == read_file(folder.path(name) + ending))
            << ending;
    }
  }
  EXPECT_EQ(out.entries(), 3) << "nothing but llmc.bin, megatron.bin and megatron.idx";
}

TEST(TokenizeOnRanks, OfFewerBytesThanRanksSomeEncodeNothing) {
  const TempFolder folder;
  const std::vector<std::string> files{folder.file("t.txt", "ab")};
  tokenize_files("bytes", files, folder.path("one"));
  tokenized(5, "bytes", files, folder.path("five"));
  for (const char* ending : {".bin", ".idx"})
    EXPECT_EQ(read_file(folder.path("five") + ending), read_file(folder.path("one") + ending));
}

TEST(TokenizeOnRanks, OfFilesWithoutTextIsAnErrorAndLeavesNothing) {
  const TempFolder folder, out;
  const std::vector<std::string> files{folder.file("t.txt", "")};
  EXPECT_THAT([&] { tokenize_files("bytes", files, out.path("tokens")); },
              testing::ThrowsMessage<UsageError>(HasSubstr("t.txt: no text to tokenize")));
  for (const std::string& fault : tokenized(3, "bytes", files, out.path("tokens")))
    EXPECT_THAT(fault, HasSubstr("t.txt: no text to tokenize"));
  EXPECT_EQ(out.entries(), 0);
}

TEST(TokenizeOnRanks, AFaultOfOneRankEndsAllAndLeavesNothing) {
  const TempFolder folder, out;
  std::string lines = json_lines(60);
  const auto last = static_cast<std::size_t>(std::ranges::count(lines, '\n')) + 1;
  lines += "{\"text\": 5}\n";
  const std::vector<std::string> text{folder.file("t.jsonl", lines)};
  for (const int ranks : {2, 4})
    for (const std::string& fault : tokenized(ranks, "bytes", text, out.path("t.bin")))
      EXPECT_THAT(fault, AllOf(HasSubstr(concat("tokenizing failed on rank ", ranks - 1, ": ")),
                               HasSubstr(concat("t.jsonl:", last))));
  EXPECT_EQ(out.entries(), 0);
}
