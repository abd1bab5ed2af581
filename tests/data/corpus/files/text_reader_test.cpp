#include "axonn/data/corpus/files/text_reader.h"

#include <filesystem>

#include <gmock/gmock.h>

#include "axonn/data/corpus/corpus.h"
#include "axonn/data/corpus/synthetic/synthetic.h"
#include "axonn/data/corpus/tokens/token_file.h"
#include "axonn/data/corpus/tokens/tokenize.h"
#include "axonn/foundation/base/check.h"

#include "tests/data/corpus/compress.h"
#include "tests/data/text/small_bpe.h"

using namespace axonn;
using namespace axonn::test;
using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;

namespace {

std::string whole_text(const std::string& path, std::size_t at_once = 100'000) {
  TextReader reader(path);
  std::string text;
  while (!reader.at_end()) {
    const std::string_view piece = reader.peek(at_once);
    text += piece;
    reader.skip(piece.size());
  }
  return text;
}

std::string fault_of_file(const std::string& path) {
  try {
    whole_text(path);
  } catch (const UsageError& error) {
    return error.what();
  }
  return "";
}

std::vector<std::int32_t> tokens_in(const std::vector<std::string>& files,
                                    const Tokenizer& tokenizer,
                                    const TokenizeOptions& options = {}) {
  const auto source = tokenize_in_memory(files, tokenizer, options);
  std::vector<std::int32_t> tokens(static_cast<std::size_t>(source->size()));
  source->read(0, tokens);
  return tokens;
}

/// Each document as a JSON line with other keys around it.
std::string json_lines(const std::vector<std::string>& documents, const std::string& key = "text") {
  std::string lines;
  for (const std::string& document : documents)
    lines += concat(R"({"id": 1, "meta": {"text": 2}, ")", key, R"(": ")", document, "\"}\n");
  return lines;
}

}  // namespace

TEST(TextReader, DecompressesAllMembersAndFramesOfAnySizeWhateverTheFilesName) {
  const TempFolder folder;
  const std::string a = synthetic_text(1'500'000, 1), b = synthetic_text(700'001, 2);
  const std::string skippable("\x53\x2a\x4d\x18\x03\0\0\0abc", 11);
  for (const auto& [name, data] : std::vector<std::pair<std::string, std::string>>{
           {"t.txt", a + b},
           {"t.gz", gzip(a) + gzip("") + gzip(b)},
           {"padded.gz", gzip(a + b) + std::string(70'000, '\0')},
           {"t.zst", zstandard(a) + skippable + zstandard("") + zstandard(b)},
           {"skippable.zst", skippable + zstandard(a + b)},
           {"t.bz2", bzip2(a) + bzip2("") + bzip2(b)},
           {"t.xz", xz(a) + xz("") + xz(b) + std::string(8, '\0')},
           {"unnamed.txt", xz(a + b)},
           {"unnamed", zstandard(a + b)}}) {
    const std::string path = folder.file(name, data);
    for (const std::size_t at_once : {1'000u, 3'000'000u})
      EXPECT_TRUE(whole_text(path, at_once) == a + b) << name << ' ' << at_once;
    TextReader reader(path);
    reader.go_to(1'499'990, 7);
    EXPECT_EQ(reader.peek(20), (a + b).substr(1'499'990, 20)) << name;
    EXPECT_EQ(reader.line(), 7);
  }
  EXPECT_EQ(whole_text(folder.file("empty.txt.gz", gzip(""))), "");
  EXPECT_EQ(whole_text(folder.file("empty.txt.zst", zstandard(""))), "");
}

TEST(TextReader, AFileThatIsCutShortAnywhereIsAnErrorWithItsNameAndPlace) {
  const TempFolder folder;
  const std::string text = synthetic_text(3'000, 1);
  for (const auto& [name, data] : {std::pair{"t.gz", gzip(text) + gzip(text)},
                                   {"t.zst", zstandard(text) + zstandard(text)},
                                   {"t.bz2", bzip2(text) + bzip2(text)},
                                   {"t.xz", xz(text) + xz(text)}}) {
    const std::string path = folder.file(name, data);
    for (std::size_t bytes = data.size() - 1; bytes > 0; --bytes) {
      if (bytes == data.size() / 2) continue;  // a whole file
      std::filesystem::resize_file(path, bytes);
      EXPECT_THAT(fault_of_file(path), HasSubstr(name)) << bytes << " of " << data.size();
    }
  }
  const std::string zst = zstandard(text);
  EXPECT_THAT(fault_of_file(folder.file("u.zst", zst.substr(0, 900))),
              AllOf(HasSubstr("u.zst is cut short: it ends at byte 900, inside a Zstandard frame"),
                    HasSubstr("download it again")));
  EXPECT_THAT(fault_of_file(folder.file("v.gz", "")), HasSubstr("v.gz is empty"));
  EXPECT_THAT(fault_of_file(folder.file("v.zst", "text")), HasSubstr("v.zst is damaged at byte 0"));
}

TEST(TextReader, AChangedByteOrOtherDataBehindTheEndAreErrorsWithThePlace) {
  const TempFolder folder;
  const std::string text = synthetic_text(300'000, 1);
  for (const auto& [name, good] : {std::pair{"t.gz", gzip(text)},
                                   {"t.zst", zstandard(text)},
                                   {"t.bz2", bzip2(text)},
                                   {"t.xz", xz(text)}}) {
    int found = 0;
    for (int i = 1; i <= 20; ++i) {
      std::string data = good;
      data[data.size() * i / 21] ^= 0x10;
      const std::string why = fault_of_file(folder.file(name, data));
      found += why.find(concat(name, " is damaged at byte ")) != why.npos;
    }
    EXPECT_EQ(found, 20) << name;
    for (const std::string tail : {"x", "\x1f", "\x28\xb5"})
      EXPECT_THAT(fault_of_file(folder.file(name, good + tail)), HasSubstr(name));
  }
  EXPECT_THAT(fault_of_file(folder.file("z.gz", gzip("a") + std::string("\0\0x", 3))),
              HasSubstr("other data behind the end"));
}

TEST(Tokenize, CompressedTextGivesTheTokensOfTheText) {
  const TempFolder folder;
  const auto bpe = make_tokenizer(small_bpe(folder));
  const std::string a = synthetic_text(9'000'000, 1), b = "hello";
  const auto want = tokens_in({folder.file("a.txt", a), folder.file("b.txt", b)}, *bpe);
  TokenizeProgress last{};
  const TokenizeOptions options{.report = [&](const TokenizeProgress& p) { last = p; }};
  EXPECT_TRUE(tokens_in({folder.file("a.txt.gz", gzip(a)), folder.file("b.zst", zstandard(b))},
                        *bpe, options) == want);
  EXPECT_EQ(last.bytes, last.total_bytes);
  EXPECT_LT(last.bytes, std::ssize(a));
}

TEST(Tokenize, EachLineOfJsonIsADocumentWithItsEndWhereverTheFileIsCut) {
  const TempFolder folder;
  const auto bpe = make_tokenizer(small_bpe(folder));
  const std::string lines = R"({"text": "hello"})"
                            "\n\r\n  \n"
                            R"({"a": [1], "text": ""})"
                            "\r\n"
                            R"({"text": "l\u006cl<|endoftext|>", "b": null})";
  for (const std::string name : {"a.jsonl", "a.json", "a.ndjson", "a.json.gz", "a.jsonl.zst"}) {
    const std::string data = name.ends_with(".gz")    ? gzip(lines)
                             : name.ends_with(".zst") ? zstandard(lines)
                                                      : lines;
    EXPECT_THAT(tokens_in({folder.file(name, data)}, *bpe),
                ElementsAre(259, kSmallEnd, kSmallEnd, 257, 'l', kSmallEnd))
        << name;
  }
  const auto done =
      tokenize_files(folder.path(), {folder.path("a.jsonl.zst")}, folder.path("tokens"), {});
  EXPECT_EQ(done.tokens, 6);
  EXPECT_EQ(TokenFile(folder.path("tokens")).documents(), 3);
  EXPECT_THAT(tokens_in({folder.file("e.jsonl", "")}, *bpe), ElementsAre());

  std::vector<std::string> documents;  // lines of 20 bytes to 5 MB
  for (int i = 0; i < 3000; ++i) documents.push_back(concat("hello ", i));
  documents.insert(documents.begin() + 1000, std::string(5'000'000, 'h'));
  std::vector<std::int32_t> want;
  for (const std::string& document : documents) {
    bpe->encode_into(document, want);
    want.push_back(kSmallEnd);
  }
  EXPECT_TRUE(tokens_in({folder.file("m.jsonl.gz", gzip(json_lines(documents)))}, *bpe) == want);
  EXPECT_TRUE(tokens_in({folder.file("k.jsonl", json_lines(documents, "raw_content"))}, *bpe,
                        {.field = "raw_content"}) == want);
}

TEST(Tokenize, ALineWithoutItsTextIsRefusedWithFileLineAndKey) {
  const TempFolder folder;
  const auto bytes = make_tokenizer("bytes");
  const auto refused = [&](const std::string& line, const std::string& why) {
    const std::string path =
        folder.file("a.jsonl.gz", gzip("{\"text\": \"a\"}\n\n" + line + "\n{\"text\": \"b\"}\n"));
    EXPECT_THAT([&] { tokenize_in_memory({path}, *bytes); },
                testing::ThrowsMessage<UsageError>(HasSubstr("a.jsonl.gz:3: " + why)));
  };
  refused("{\"content\": \"x\"}",
          "there is no \"text\"; each line is a document, and data.text_field");
  refused("{\"text\": null}", "there is no string in \"text\"");
  refused("{\"text\": \"a", "this is not JSON: column 12: ");
  refused("{\"text\": \"\xff\"}", "byte 11 of the line is not UTF-8");
}

TEST(TokenizeCached, ContinuesInsideOfACompressedFileAndKnowsTheField) {
  const TempFolder folder;
  const auto bpe = make_tokenizer(small_bpe(folder));
  const OnOneCore one;
  std::vector<std::string> documents;
  for (int i = 0; i < 60'000; ++i)
    documents.push_back(concat("hello ", i, ' ', std::string(250, 'l')));
  const std::vector<std::string> files{
      folder.file("a.zst", zstandard(synthetic_text(12'000'000, 1))),
      folder.file("b.jsonl.zst", zstandard(json_lines(documents)))};
  int pieces = 0, reports = 0;
  const auto want = tokens_in(files, *bpe, {.report = [&](const TokenizeProgress&) { ++pieces; }});
  const TokenCache cache{.folder = folder.path("cache"), .part_seconds = 0};
  const auto open = [&](int most) {
    reports = 0;
    return tokenize_cached(files, *bpe, cache, {.report = [&](const TokenizeProgress& progress) {
                             EXPECT_LE(progress.bytes, progress.total_bytes);
                             AXONN_CHECK(++reports <= most, "the run ends");
                           }});
  };
  // The last piece of text and the first of lines are in one part.
  EXPECT_THROW(open(1), Error);
  EXPECT_THROW(open(2), Error) << "in the text";
  EXPECT_THROW(open(2), Error) << "in the lines";
  const auto source = open(100);
  EXPECT_EQ(reports, pieces - 4) << "parts that were made are kept";
  std::vector<std::int32_t> tokens(static_cast<std::size_t>(source->size()));
  source->read(0, tokens);
  EXPECT_TRUE(tokens == want);
  EXPECT_EQ(open(0)->size(), source->size()) << "nothing is tokenised";
  EXPECT_THROW(tokenize_cached(files, *bpe, cache, {.field = "other"}), UsageError);
}

TEST(Corpus, TextMayBeCompressedLinesAndAFolderHasThem) {
  const TempFolder folder;
  folder.file("d/a.jsonl.zst", zstandard(json_lines({"ab", "c"})));
  folder.file("d/b.txt.gz", gzip("de"));
  folder.file("d/c.json.gz", gzip(json_lines({"f"})));
  folder.file("d/info.json", "{\"about\": \"the others\"}");
  folder.file("d/d.md", "no text");
  const Corpus corpus =
      open_corpus({.text = {folder.path("d")},
                   .validation = folder.file("v.jsonl.gz", gzip(json_lines({"xy"})))},
                  {});
  const auto text_of = [&](const TokenStream& stream) {
    std::vector<std::int32_t> tokens(static_cast<std::size_t>(stream.size()));
    stream.source->read(stream.begin, tokens);
    return corpus.tokenizer->decode(tokens);
  };
  EXPECT_EQ(text_of(corpus.train[0]), "abcdef");
  EXPECT_EQ(text_of(corpus.validation[0]), "xy");
  const Corpus chats =
      open_corpus({.jsonl = {folder.file("t.jsonl.gz", gzip(json_lines({"one", "two", "three"})))},
                   .validation = ""},
                  {});
  EXPECT_EQ(chats.train_documents.documents->count(), 3);
}
