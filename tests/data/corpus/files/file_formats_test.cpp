#include "axonn/data/corpus/files/file_formats.h"

#include <gmock/gmock.h>

#include "axonn/data/corpus/corpus.h"
#include "axonn/data/corpus/files/text_reader.h"
#include "axonn/foundation/base/check.h"
#include "axonn/foundation/base/files.h"

#include "tests/data/corpus/compress.h"
#include "tests/data/text/small_bpe.h"

using namespace axonn;
using namespace axonn::test;
using namespace std::string_literals;
using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::StartsWith;

namespace {

std::string format_fault_of(const std::string& path) {
  try {
    TextReader reader(path);
  } catch (const UsageError& error) {
    return error.what();
  }
  return "";
}

std::string bytes_with(std::string_view begin, std::size_t at = 0) {
  std::string bytes(600, '\0');
  bytes.replace(at, begin.size(), begin);
  return bytes;
}

}  // namespace

TEST(FileFormats, FilesThatAreNoTextAreRefusedByTheirFirstBytesWithARemedy) {
  const TempFolder folder;
  for (const auto& [bytes, name, remedy] :
       std::vector<std::tuple<std::string, const char*, const char*>>{
           {bytes_with("PAR1\x15\x04"), "a Parquet file", "mv FILE FILE.parquet"},
           {bytes_with("PARE\x15\x04"), "an encrypted Parquet file", "without encryption"},
           {bytes_with("ARROW1"), "an Arrow file", "datasets.Dataset.from_file('FILE')"},
           {bytes_with("\xff\xff\xff\xff\x10"), "an Arrow stream", "from_file"},
           {bytes_with("\x93NUMPY\x01"), "a NumPy array", "data.tokens"},
           {bytes_with("PK\x03\x04"), "a zip archive", "unpack it"},
           {bytes_with("ustar", 257), "a tar archive", "unpack it"},
           {"\xff\xfeh\0i\0"s, "text in UTF-16", "iconv -f UTF-16"},
           {"\xfe\xff\0h\0i"s, "text in UTF-16", "iconv -f UTF-16"},
           {"\xff\xfe\0\0h\0\0\0"s, "text in UTF-32", "iconv -f UTF-32"}}) {
    for (const char* ending : {"a.txt", "a.jsonl", "a.any"}) {
      const std::string path = folder.file(ending, bytes);
      std::string wanted = remedy;
      for (std::size_t at = 0; (at = wanted.find("FILE", at)) != wanted.npos; at += path.size())
        wanted.replace(at, 4, path);
      EXPECT_THAT(format_fault_of(path),
                  AllOf(StartsWith(path + " is " + name), HasSubstr(wanted.substr(0, 40))))
          << name;
    }
  }
}

TEST(FileFormats, AnArchiveInACompressedFileIsRefused) {
  const TempFolder folder;
  EXPECT_THAT(format_fault_of(folder.file("a.tar.gz", gzip(bytes_with("ustar", 257)))),
              HasSubstr("a.tar.gz is a tar archive"));
  EXPECT_THAT(format_fault_of(folder.file("a.parquet.zst", zstandard(bytes_with("PAR1\x15")))),
              HasSubstr("is a Parquet file"));
  EXPECT_THAT(format_fault_of(folder.file("a.tar.xz", xz(bytes_with("ustar", 257)))),
              HasSubstr("a.tar.xz is a tar archive"));
}

TEST(FileFormats, WordsThatBeginAsAFormatAreText) {
  const TempFolder folder;
  for (const char* text : {"PAR1 is a name", "RIFF", "GIF89a is a format", "BZh9 and words", "PK",
                           "GGUF is for models", "", "Obj", "\xef\xbb\xbfwith a mark", "é"})
    EXPECT_EQ(format_fault_of(folder.file("a.txt", text)), "") << text;
}

TEST(FileFormats, ABinaryFileInAFolderIsRefusedOrWarnedOf) {
  const TempFolder folder;
  folder.file("t/a.txt", "text");
  folder.file("t/b.txt", bytes_with("\x93NUMPY\x01"));
  const auto open = [&] { return open_corpus({.text = {folder.path("t")}}, {}).warnings; };
  EXPECT_THAT([&] { open(); }, testing::ThrowsMessage<UsageError>(HasSubstr(
                                   "b.txt is a token file, not text; give it as data.tokens")));
  folder.file("t/b.txt", "abc\0def"s);
  EXPECT_THAT(open(), ElementsAre(HasSubstr("b.txt: there are 1 NUL bytes in the first 7")));
  folder.file("t/b.txt", "caf\xe9 caf\xe9 caf\xe9 caf\xe9 too");
  EXPECT_THAT(open(), ElementsAre(HasSubstr("b.txt: 4 of the first 23 bytes are not UTF-8")));
  folder.file("t/b.txt", "café");
  EXPECT_THAT(open(), IsEmpty());
}

TEST(FileFormats, FilesOfAFolderThatAreNotReadAreNoted) {
  const TempFolder folder;
  for (const char* name : {"t/a.txt", "t/b.md", "t/deep/c.md", "t/Makefile", "t/.hidden.md"})
    folder.file(name, "text");
  EXPECT_THAT(open_corpus({.text = {folder.path("t")}}, {}).warnings,
              ElementsAre("data.text: 3 files of the folders are not read (2 with .md, 1 with no "
                          "ending); name them, or rename text to .txt"));
  EXPECT_THAT(open_corpus({.text = {folder.path("t/a.txt")}}, {}).warnings, IsEmpty());
}

TEST(FileFormats, EndingsAreComparedWithoutCase) {
  EXPECT_TRUE(is_json_lines("a.JSONL"));
  EXPECT_TRUE(is_json_lines("A.Ndjson.GZ"));
  EXPECT_TRUE(is_json_lines("a.PARQUET"));
  EXPECT_TRUE(is_json_lines("a.csv.xz"));
  EXPECT_FALSE(is_json_lines("a.jsonlx"));
  EXPECT_TRUE(is_text_name("a.TXT"));
  EXPECT_TRUE(is_text_name("a.JSON.Zst"));
  EXPECT_TRUE(is_text_name("a.tsv.bz2"));
  EXPECT_TRUE(is_text_name("a.parquet"));
  EXPECT_FALSE(is_text_name("a.JSON"));
}
