// Parquet files of tests/data/corpus/parquet, which make.py there wrote with Apache Arrow, and
// tables of comma-separated values.

#include "axonn/data/corpus/files/tables.h"

#include <filesystem>
#include <random>

#include <gmock/gmock.h>
#include <lz4.h>
#include <nlohmann/json.hpp>

#include "axonn/data/corpus/corpus.h"
#include "axonn/data/corpus/files/jsonl.h"
#include "axonn/data/corpus/files/text_reader.h"
#include "axonn/data/corpus/parquet/codecs.h"
#include "axonn/data/corpus/tokens/tokenize.h"
#include "axonn/foundation/base/check.h"
#include "axonn/foundation/base/files.h"

#include "tests/data/corpus/compress.h"
#include "tests/data/text/small_bpe.h"

using namespace axonn;
using namespace axonn::test;
using testing::AllOf;
using testing::AnyOf;
using testing::ElementsAre;
using testing::HasSubstr;

namespace {

std::string table_file(const std::string& name) { return AXONN_PARQUET_FILES "/" + name; }

std::string lines_of_table(const std::string& path, std::int64_t from = 0,
                           const ColumnChoice& columns = {}) {
  TextReader reader(path, columns);
  if (from > 0) reader.go_to(from, from);
  std::string text;
  while (!reader.at_end()) text += reader.lines(1);
  return text;
}

std::vector<nlohmann::json> rows_of(const std::string& lines) {
  std::vector<nlohmann::json> rows;
  for (std::size_t at = 0; at < lines.size();) {
    const std::size_t end = lines.find('\n', at);
    rows.push_back(nlohmann::json::parse(lines.substr(at, end - at)));
    at = end + 1;
  }
  return rows;
}

/// Members that are null, as those that are not there.
nlohmann::json without_nulls(nlohmann::json value) {
  if (value.is_object())
    for (auto at = value.begin(); at != value.end();)
      at = at->is_null() ? value.erase(at) : std::next(at);
  for (nlohmann::json& item : value)
    if (item.is_structured()) item = without_nulls(item);
  return value;
}

std::string table_fault(const std::string& path) {
  try {
    lines_of_table(path);
  } catch (const UsageError& error) {
    return error.what();
  }
  return "";
}

std::vector<std::int32_t> table_tokens(const std::vector<std::string>& files, TokenizeOptions how) {
  std::vector<std::int32_t> all;
  const auto bytes = make_tokenizer("bytes");
  tokenize(files, *bytes,
           {.append = [&](auto tokens) { all.insert(all.end(), tokens.begin(), tokens.end()); },
            .end_document = [&] { all.push_back(-1); }},
           how);
  return all;
}

}  // namespace

TEST(Parquet, RowsAreThoseThatArrowReads) {
  for (const char* name : {"types", "types_v2", "int96", "conversations", "conversations_v1",
                           "gzip", "brotli", "lz4", "none", "groups"}) {
    const auto got = rows_of(lines_of_table(table_file(std::string(name) + ".parquet")));
    const auto want = rows_of(read_text(table_file(std::string(name) + ".jsonl")));
    ASSERT_EQ(got.size(), want.size()) << name;
    for (std::size_t i = 0; i < got.size(); ++i)
      EXPECT_EQ(without_nulls(got[i]), without_nulls(want[i])) << name << ' ' << i;
  }
}

TEST(Parquet, AReaderGoesToAnyRow) {
  for (const char* name : {"conversations.parquet", "groups.parquet"}) {
    const std::string all = lines_of_table(table_file(name));
    std::size_t at = 0;
    for (std::int64_t row = 1; row < std::ranges::count(all, '\n'); ++row) {
      at = all.find('\n', at) + 1;
      EXPECT_EQ(lines_of_table(table_file(name), row), all.substr(at)) << name << ' ' << row;
    }
  }
  EXPECT_THAT([] { lines_of_table(table_file("groups.parquet"), 300); },
              testing::ThrowsMessage<UsageError>(HasSubstr("ends at or before row 300")));
}

TEST(Parquet, OnlyTheChosenColumnsAreRead) {
  const std::string lines = lines_of_table(table_file("conversations.parquet"), 0,
                                           [](std::string_view name) { return name == "matrix"; });
  EXPECT_THAT(lines, HasSubstr("{\"matrix\": [[1], null, [2, null, 3]]}"));
  EXPECT_THAT(lines, testing::Not(HasSubstr("messages")));
}

TEST(Parquet, EveryRankTokenizesItsRowGroups) {
  const std::vector<std::string> files{table_file("none.parquet"), table_file("groups.parquet")};
  const auto all = table_tokens(files, {});
  EXPECT_EQ(std::ranges::count(all, -1), 340);
  for (const int parts : {2, 3, 7}) {
    std::vector<std::int32_t> joined;
    int empty = 0;
    for (int part = 0; part < parts; ++part) {
      const auto some = table_tokens(files, {.part = part, .parts = parts});
      empty += some.empty();
      joined.insert(joined.end(), some.begin(), some.end());
    }
    EXPECT_EQ(joined, all) << parts;
    EXPECT_LT(empty, 3) << parts;
  }
}

TEST(Parquet, TrainsOnTextAndConversationsAsJsonLinesDo) {
  const auto tokens_of = [&](const std::string& ending) {
    DataConfig data;
    data.text = {table_file("groups" + ending)};
    const Corpus text = open_corpus(data, {});
    std::vector<std::int32_t> tokens(static_cast<std::size_t>(text.train[0].source->size()));
    text.train[0].source->read(0, tokens);
    return tokens;
  };
  EXPECT_EQ(tokens_of(".parquet"), tokens_of(".jsonl"));
  const auto examples_in = [&](const std::string& file) {
    return unread_keys(file, [](const Line& line) {
      EXPECT_EQ(parse_example(line.text, line.location).kind, Example::Kind::messages);
      return std::vector<std::string>{};
    });
  };
  EXPECT_THAT(examples_in(table_file("conversations.parquet")), testing::IsEmpty());
}

TEST(Parquet, DamageIsAnErrorWithTheFileAndTheRow) {
  const TempFolder folder;
  for (const char* name : {"types.parquet", "types_v2.parquet", "conversations.parquet"}) {
    const std::string good = read_text(table_file(name));
    std::mt19937 random(7);
    for (int i = 0; i < 400; ++i) {
      std::string bad = good;
      bad[random() % bad.size()] ^= static_cast<char>(1 << random() % 8);
      const std::string fault = table_fault(folder.file("x.parquet", bad));
      EXPECT_THAT(fault, AnyOf("", HasSubstr("x.parquet")));
    }
    for (std::size_t bytes = 0; bytes < good.size(); bytes += 61)
      EXPECT_THAT(table_fault(folder.file("x.parquet", good.substr(0, bytes))),
                  AllOf(HasSubstr("x.parquet is damaged, or no Parquet file"), HasSubstr("again")));
  }
  std::string bad = read_text(table_file("types.parquet"));
  bad[40] ^= 1;  // in the first page, which has a checksum
  EXPECT_THAT(table_fault(folder.file("x.parquet", bad)),
              AllOf(HasSubstr("x.parquet:1: "), HasSubstr("checksum")));
  EXPECT_THAT(table_fault(folder.file("x.parquet", "{\"text\": \"a\"}\n")),
              HasSubstr("no Parquet"));
}

TEST(Parquet, BlocksOfLz4AsHadoopWritesThemAreRead) {
  const std::string text(5000, 'a');
  std::string block(5000, '\0');
  block.resize(LZ4_compress_default(text.data(), block.data(), 5000, 5000));
  const auto big_endian = [](std::size_t n) {
    return std::string{0, 0, static_cast<char>(n >> 8), static_cast<char>(n)};
  };
  const std::string framed = big_endian(5000) + big_endian(block.size()) + block;
  using parquet::Codec;
  EXPECT_EQ(parquet::decompress(Codec::lz4_hadoop, framed + framed, 10'000), text + text);
  EXPECT_EQ(parquet::decompress(Codec::lz4_hadoop, block, 5000), text);
  EXPECT_ANY_THROW(parquet::decompress(Codec::lz4_hadoop, framed, 4999));
}

TEST(Csv, RowsAreObjectsWithTheNamesOfTheFirstRow) {
  const TempFolder folder;
  const std::string table =
      "\xef\xbb\xbfid,text,\"a \"\"name\"\"\"\r\n"
      "1,plain,\r\n"
      "2,\"two\nlines, and a \"\"quote\"\"\",\"\"\n"
      "\n"
      "3,caf\xc3\xa9";
  const std::string want =
      "{\"id\": \"1\", \"text\": \"plain\"}\n"
      "{\"id\": \"2\", \"text\": \"two\\nlines, and a \\\"quote\\\"\", \"a \\\"name\\\"\": \"\"}\n"
      "{\"id\": \"3\", \"text\": \"caf\xc3\xa9\"}\n";
  EXPECT_EQ(lines_of_table(folder.file("a.csv", table)), want);
  EXPECT_EQ(lines_of_table(folder.file("a.csv.gz", gzip(table))), want);
  EXPECT_EQ(lines_of_table(folder.file("a.TSV", "id\ttext\n7\ta, b\n")),
            "{\"id\": \"7\", \"text\": \"a, b\"}\n");
}

TEST(Csv, RowsThatCannotBeMeantAreRefusedWithTheirNumber) {
  const TempFolder folder;
  const auto fault = [&](const std::string& text) {
    return table_fault(folder.file("a.csv", text));
  };
  EXPECT_THAT(fault("a,b\n1,2\n1,2,3\n"), HasSubstr("a.csv: row 2 has 3 values for 2 columns"));
  EXPECT_THAT(fault("a\n\"x\" y\n"), HasSubstr("a.csv: row 1 has text behind the quote"));
  EXPECT_THAT(fault("a\n1\n\"x\n"), HasSubstr("a.csv: row 2 has a quote that does not end"));
  EXPECT_THAT(fault("a,a\n1,2\n"), HasSubstr("two columns with the name \"a\""));
  EXPECT_THAT(fault(""), HasSubstr("a.csv is empty"));
}

TEST(Csv, TextIsTheColumnOfTextField) {
  const TempFolder folder;
  const std::string file = folder.file("a.csv", "body,n\nab,1\nc,2\n");
  EXPECT_THAT(table_tokens({file}, {.field = "body"}), ElementsAre('a', 'b', -1, 'c', -1));
  EXPECT_THAT([&] { table_tokens({file}, {}); },
              testing::ThrowsMessage<UsageError>(HasSubstr("there is no \"text\"")));
}
