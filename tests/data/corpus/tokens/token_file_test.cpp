#include "axonn/data/corpus/tokens/token_file.h"

#include <cstring>
#include <filesystem>
#include <random>

#include <gmock/gmock.h>

#include "axonn/foundation/base/check.h"

#include "tests/support/data_files.h"

using namespace axonn;
using namespace axonn::test;
using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;

namespace {

template <typename T>
std::string bytes_of_values(const std::vector<T>& values) {
  return {reinterpret_cast<const char*>(values.data()), values.size() * sizeof(T)};
}

template <typename T>
std::string bytes_of_value(T value) {
  return bytes_of_values<T>({value});
}

std::string llmc_bytes(const std::vector<std::uint16_t>& tokens) {
  std::vector<std::int32_t> header(256);
  header[0] = 20240520;
  header[1] = 1;
  header[2] = static_cast<std::int32_t>(tokens.size());
  return bytes_of_values(header) + bytes_of_values(tokens);
}

/// A Megatron index with sequences of these lengths, and documents that begin at these sequences.
std::string index_bytes(int type, int item, const std::vector<std::int32_t>& lengths,
                        const std::vector<std::int64_t>& documents) {
  std::vector<std::int64_t> offsets;
  std::int64_t offset = 0;
  for (std::int32_t length : lengths) {
    offsets.push_back(offset);
    offset += std::int64_t{length} * item;
  }
  return std::string("MMIDIDX\0\0", 9) + bytes_of_value<std::uint64_t>(1) +
         static_cast<char>(type) + bytes_of_value<std::uint64_t>(lengths.size()) +
         bytes_of_value<std::uint64_t>(documents.size()) + bytes_of_values(lengths) +
         bytes_of_values(offsets) + bytes_of_values(documents);
}

std::vector<std::int32_t> every_token(const TokenSource& source) {
  std::vector<std::int32_t> tokens(static_cast<std::size_t>(source.size()));
  source.read(0, tokens);
  return tokens;
}

std::string token_file_refusal(const std::string& path) {
  try {
    every_token(TokenFile(path));
    return {};
  } catch (const UsageError& error) {
    return error.what();
  }
}

template <typename T>
void put(std::string& bytes, std::size_t at, T value) {
  std::memcpy(bytes.data() + at, &value, sizeof value);
}

}  // namespace

TEST(TokenFile, ReadsLlmcTokensAtAnyPosition) {
  TempFolder folder;
  const TokenFile file(folder.file("a.bin", llmc_bytes({7, 65535, 0, 50256})));
  EXPECT_EQ(file.documents(), std::nullopt);
  EXPECT_EQ(file.size(), 4);
  EXPECT_THAT(every_token(file), ElementsAre(7, 65535, 0, 50256));
  EXPECT_EQ(file.at(1), 65535);
  EXPECT_FALSE(file.documents());
  std::vector<std::int32_t> two(2);
  file.read(2, two);
  EXPECT_THAT(two, ElementsAre(0, 50256));
  EXPECT_THROW(file.read(3, two), Error);
  EXPECT_THROW(file.read(-1, two), Error);
  EXPECT_THROW(file.at(4), Error);
}

TEST(TokenFile, ReadsEveryIntegerTypeOfMegatronByPrefixBinAndIdx) {
  TempFolder folder;
  const auto check = [&]<typename T>(T, int type) {
    const std::vector<T> tokens{1, 2, 100, 4, 5};
    folder.file("m.bin", bytes_of_values(tokens));
    folder.file("m.idx", index_bytes(type, sizeof(T), {2, 0, 3}, {0, 2, 3}));
    for (const char* name : {"m", "m.bin", "m.idx"}) {
      const TokenFile file(folder.path(name));
      EXPECT_EQ(bytes_of(file.type()), static_cast<std::int64_t>(sizeof(T)));
      EXPECT_THAT(every_token(file), ElementsAre(1, 2, 100, 4, 5)) << "type " << type;
      EXPECT_EQ(file.documents(), 2);
    }
  };
  check(std::uint8_t{}, 1);
  check(std::int8_t{}, 2);
  check(std::int16_t{}, 3);
  check(std::int32_t{}, 4);
  check(std::int64_t{}, 5);
  check(std::uint16_t{}, 8);
}

TEST(TokenFile, ReadsLlmcTokensOf32Bits) {
  const TempFolder folder;
  std::vector<std::uint32_t> header(256);
  header[0] = 20240801;
  header[1] = 7;
  header[2] = 3;
  const std::string bytes =
      bytes_of_values(header) + bytes_of_values<std::uint32_t>({128'009, 0, 70'000});
  const std::string path = folder.file("a.bin", bytes);
  EXPECT_TRUE(TokenFile::recognises(path));
  EXPECT_THAT(every_token(TokenFile(path)), ElementsAre(128'009, 0, 70'000));
  EXPECT_THAT(token_file_refusal(folder.file("a.bin", bytes.substr(0, 1032))),
              HasSubstr("counts 3 tokens, which makes 1036 bytes"));
}

TEST(TokenFile, ReadsNumpyArraysOfOneDimension) {
  const TempFolder folder;
  // As numpy.save() writes them: the header is padded to 64 bytes.
  const auto npy = [](std::string text, const std::string& values, char version = 1) {
    const std::size_t head = version == 1 ? 10 : 12;
    text.resize((text.size() + head + 64) / 64 * 64 - head - 1, ' ');
    text += '\n';
    const std::string size = version == 1 ? bytes_of_value(static_cast<std::uint16_t>(text.size()))
                                          : bytes_of_value(static_cast<std::uint32_t>(text.size()));
    return "\x93NUMPY" + std::string{version, 0} + size + text + values;
  };
  const auto header = [](const std::string& type, const std::string& shape) {
    return "{'descr': '" + type + "', 'fortran_order': False, 'shape': (" + shape + "), }";
  };
  const auto u16 = bytes_of_values<std::uint16_t>({5, 65'535});
  const auto path = [&](const std::string& bytes) { return folder.file("a.npy", bytes); };
  const std::string good = path(npy(header("<u2", "2,"), u16));
  EXPECT_TRUE(TokenFile::recognises(good));
  EXPECT_THAT(every_token(TokenFile(good)), ElementsAre(5, 65'535));
  EXPECT_THAT(every_token(TokenFile(path(npy(header("<u2", "2,"), u16, 2)))),
              ElementsAre(5, 65'535));
  EXPECT_THAT(
      every_token(TokenFile(path(
          npy(header("<u8", "2,"), bytes_of_values<std::uint64_t>({7, std::uint64_t{1} << 63}))))),
      ElementsAre(7, 2'147'483'647));
  const auto fault = [&](const std::string& text, const std::string& values) {
    return token_file_refusal(path(npy(text, values)));
  };
  EXPECT_THAT(fault(header("<f4", "1,"), u16), HasSubstr("a NumPy array of <f4; tokens are"));
  EXPECT_THAT(fault(header(">u2", "2,"), u16), HasSubstr("of >u2"));
  EXPECT_THAT(fault(header("<u2", "1, 2"), u16), HasSubstr("of shape (1, 2); tokens are of one"));
  EXPECT_THAT(fault(header("<u2", "3,"), u16), HasSubstr("counts 3 tokens of 2 bytes, but 4"));
  EXPECT_THAT(fault("{'shape': (2,)}", u16), HasSubstr("a.npy: is a NumPy array of {'shape'"));
  const std::string bytes = npy(header("<u2", "2,"), u16);
  for (std::size_t size = 6; size < bytes.size(); ++size)
    EXPECT_NE(token_file_refusal(path(bytes.substr(0, size))), "") << size;
}

TEST(TokenFile, ReadsTokensWithoutAHeaderIfTheirTypeIsTold) {
  const TempFolder folder;
  const std::string path =
      folder.file("train.bin", bytes_of_values<std::uint16_t>({50'256, 1, 65'535, 0}));
  EXPECT_THAT(token_file_refusal(path),
              AllOf(HasSubstr("train.bin: does not begin as a token file"),
                    HasSubstr("set data.token_type, for example to u16")));
  EXPECT_FALSE(TokenFile::recognises(path));
  EXPECT_TRUE(TokenFile::recognises(path, RawTokens::u16));
  EXPECT_THAT(every_token(TokenFile(path, RawTokens::u16)), ElementsAre(50'256, 1, 65'535, 0));
  EXPECT_THAT(every_token(TokenFile(path, RawTokens::u32)), ElementsAre(115'792, 65'535));
  EXPECT_THAT([&] { TokenFile(folder.file("odd.bin", "abc"), RawTokens::u16); },
              testing::ThrowsMessage<UsageError>(HasSubstr("has 3 bytes, no multiple of the 2")));
  const std::string llmc = folder.file("llmc.bin", llmc_bytes({7}));  // its header counts
  EXPECT_THAT(every_token(TokenFile(llmc, RawTokens::u32)), ElementsAre(7));
}

TEST(TokenFile, EveryCutOrLengthenedLlmcFileIsRefusedWithItsName) {
  TempFolder folder;
  const std::string good = llmc_bytes({1, 2, 3});
  for (std::size_t bytes = 0; bytes < good.size(); ++bytes)
    ASSERT_THAT(token_file_refusal(folder.file("a.bin", good.substr(0, bytes))), HasSubstr("a.bin"))
        << bytes;
  EXPECT_THAT(token_file_refusal(folder.file("a.bin", good + "x")),
              AllOf(HasSubstr("counts 3 tokens"), HasSubstr("1030 bytes"), HasSubstr("1031")));
}

TEST(TokenFile, AnAlteredFieldOfAnLlmcHeaderIsRefusedByName) {
  TempFolder folder;
  const auto with = [&](std::size_t field, std::int32_t value) {
    std::string bytes = llmc_bytes({1, 2, 3});
    put(bytes, 4 * field, value);
    return token_file_refusal(folder.file("a.bin", bytes));
  };
  EXPECT_THAT(with(0, 20240521), HasSubstr("does not begin as a token file of llm.c"));
  EXPECT_THAT(with(1, 2), HasSubstr("version 2"));
  EXPECT_THAT(with(2, 4), HasSubstr("counts 4 tokens"));
  EXPECT_THAT(with(2, -3), HasSubstr("counts -3 tokens"));
  EXPECT_THAT(with(2, 2147483647), HasSubstr("counts 2147483647 tokens"));
}

TEST(TokenFile, EveryCutOrLengthenedMegatronFileIsRefusedWithItsName) {
  TempFolder folder;
  const std::string index = index_bytes(8, 2, {2, 3}, {0, 1, 2}), tokens(10, '\1');
  folder.file("m.bin", tokens);
  for (std::size_t bytes = 0; bytes < index.size(); ++bytes) {
    folder.file("m.idx", index.substr(0, bytes));
    ASSERT_THAT(token_file_refusal(folder.path("m")), HasSubstr("m.idx")) << bytes;
  }
  folder.file("m.idx", index + "x");
  EXPECT_THAT(token_file_refusal(folder.path("m")), HasSubstr("m.idx"));
  folder.file("m.idx", index);
  ASSERT_EQ(token_file_refusal(folder.path("m")), "");
  for (std::size_t bytes : {0, 1, 8, 9, 11, 12}) {
    folder.file("m.bin", std::string(bytes, '\1'));
    EXPECT_THAT(token_file_refusal(folder.path("m")), HasSubstr("m.bin")) << bytes;
  }
}

TEST(TokenFile, AnAlteredFieldOfAMegatronIndexIsRefusedByName) {
  TempFolder folder;
  const std::string good = index_bytes(8, 2, {2, 3}, {0, 1, 2});
  folder.file("m.bin", std::string(10, '\1'));
  const auto with = [&](std::size_t at, auto value) {
    std::string bytes = good;
    put(bytes, at, value);
    folder.file("m.idx", bytes);
    return token_file_refusal(folder.path("m"));
  };
  EXPECT_THAT(with(0, 'X'), HasSubstr("MMIDIDX"));
  EXPECT_THAT(with(9, std::uint64_t{2}), HasSubstr("version 2"));
  EXPECT_THAT(with(17, std::uint8_t{7}), HasSubstr("f32"));
  EXPECT_THAT(with(17, std::uint8_t{6}), HasSubstr("f64"));
  EXPECT_THAT(with(17, std::uint8_t{0}), HasSubstr("type 0"));
  EXPECT_THAT(with(17, std::uint8_t{200}), HasSubstr("type 200"));
  EXPECT_THAT(with(17, std::uint8_t{4}), HasSubstr("sequence 1 begins at byte 4"));
  for (std::uint64_t huge :
       {std::uint64_t{3}, std::uint64_t{1} << 61, std::uint64_t{1} << 62, ~std::uint64_t{0}}) {
    EXPECT_THAT(with(18, huge), HasSubstr("sequences")) << huge;
    EXPECT_THAT(with(26, huge + 1), HasSubstr("document indices")) << huge;
  }
  // With overflow, these would give the right number of bytes.
  EXPECT_THAT(with(18, (std::uint64_t{1} << 62) + 2), HasSubstr("sequences"));
  EXPECT_THAT(with(26, (std::uint64_t{1} << 61) + 3), HasSubstr("document indices"));
  EXPECT_THAT(with(34, std::int32_t{-1}), HasSubstr("length of -1"));
  EXPECT_THAT(with(34, std::int32_t{3}), HasSubstr("sequence 1"));
  EXPECT_THAT(with(38, std::int32_t{2147483647}), HasSubstr("m.bin"));
  EXPECT_THAT(with(42, std::int64_t{2}), HasSubstr("sequence 0 begins at byte 2"));
  EXPECT_THAT(with(50, std::int64_t{-4}), HasSubstr("sequence 1 begins at byte -4"));
  EXPECT_THAT(with(58, std::int64_t{1}), HasSubstr("from 1 to 2"));
  EXPECT_THAT(with(66, std::int64_t{5}), HasSubstr("document index 2"));
  EXPECT_THAT(with(74, std::int64_t{3}), HasSubstr("from 0 to 3"));
}

TEST(TokenFile, RandomDamageToAnIndexNeverCrashes) {
  TempFolder folder;
  const std::string good = index_bytes(8, 2, {2, 3, 0, 4}, {0, 1, 4});
  folder.file("m.bin", std::string(18, '\1'));
  std::mt19937 engine(1);
  for (int trial = 0; trial < 2000; ++trial) {
    std::string bytes = good;
    for (int i = 0; i < 1 + trial % 3; ++i)
      bytes[engine() % bytes.size()] = static_cast<char>(engine());
    folder.file("m.idx", bytes);
    const std::string message = token_file_refusal(folder.path("m"));
    EXPECT_TRUE(message.empty() || message.find("/m.") != message.npos) << message;
  }
}

TEST(TokenFile, AMissingFileOrAFolderIsRefusedByName) {
  TempFolder folder;
  EXPECT_THAT(token_file_refusal(folder.path("none.bin")), HasSubstr("none.bin: No such file"));
  EXPECT_THAT(token_file_refusal(folder.path()), HasSubstr("not a regular file"));
  folder.file("m.bin", "ab");
  EXPECT_THAT(token_file_refusal(folder.path("m")), HasSubstr("m.idx: No such file"));
}

TEST(TokenFile, RecognisesTokenFilesButNotText) {
  TempFolder folder;
  folder.file("m.bin", "ab");
  folder.file("m.idx", "");
  EXPECT_TRUE(TokenFile::recognises(folder.path("m")));
  EXPECT_TRUE(TokenFile::recognises(folder.path("m.bin")));
  EXPECT_TRUE(TokenFile::recognises(folder.file("tokens", llmc_bytes({}))));
  EXPECT_FALSE(TokenFile::recognises(folder.file("text.txt", "hello")));
  EXPECT_FALSE(TokenFile::recognises(folder.file("short.txt", "h")));
  EXPECT_FALSE(TokenFile::recognises(folder.path("none")));
  EXPECT_FALSE(TokenFile::recognises(folder.path()));
}

TEST(TokenSource, ATokenOutOfRangeIsRefusedWithFilePositionAndRemedy) {
  TempFolder folder;
  const TokenFile file(folder.file("a.bin", llmc_bytes({1, 2, 300, 4})));
  std::vector<std::int32_t> tokens(3);
  EXPECT_NO_THROW(file.read_checked(1, tokens, 301));
  EXPECT_THAT([&] { file.read_checked(1, tokens, 300); },
              testing::ThrowsMessage<UsageError>(
                  AllOf(HasSubstr("token 2 of " + folder.path("a.bin") + " is 300"),
                        HasSubstr("300 tokens"), HasSubstr("at least 301"))));
  folder.file("m.bin", bytes_of_values<std::int64_t>({5, -7, std::int64_t{1} << 40}));
  folder.file("m.idx", index_bytes(5, 8, {3}, {0, 1}));
  const TokenFile wide(folder.path("m"));
  std::vector<std::int32_t> one(1);
  EXPECT_NO_THROW(wide.read_checked(0, one, 6));
  EXPECT_THROW(wide.read_checked(1, one, 6), UsageError);
  EXPECT_THROW(wide.read_checked(2, one, 6), UsageError) << "2^40 must not become 0";
}

TEST(JoinedTokens, ReadsAcrossItsPartsAndNamesThePart) {
  TempFolder folder;
  std::vector<std::shared_ptr<const TokenSource>> parts{
      std::make_shared<TokenFile>(folder.file("a.bin", llmc_bytes({0, 1, 2}))),
      std::make_shared<TokenFile>(folder.file("b.bin", llmc_bytes({}))),
      std::make_shared<MemoryTokens>("memory", std::vector<std::int32_t>{3}),
      std::make_shared<TokenFile>(folder.file("c.bin", llmc_bytes({4, 5})))};
  const JoinedTokens joined(parts);
  EXPECT_THAT(every_token(joined), ElementsAre(0, 1, 2, 3, 4, 5));
  for (std::int32_t i = 0; i < 6; ++i) EXPECT_EQ(joined.at(i), i);
  std::vector<std::int32_t> four(4);
  joined.read(1, four);
  EXPECT_THAT(four, ElementsAre(1, 2, 3, 4));
  EXPECT_EQ(joined.where(3), "token 0 of memory");
  EXPECT_EQ(joined.where(5), "token 1 of " + folder.path("c.bin"));
}

TEST(TokenFile, IsDescribedWithTheExtremesAnywhereInALargeFile) {
  TempFolder folder;
  std::vector<std::uint16_t> tokens(200'001, 5);
  tokens[70'000] = 9;
  tokens[200'000] = 2;
  const TokenFile file(folder.file("a.bin", llmc_bytes(tokens)));
  EXPECT_THAT(describe(file), HasSubstr("smallest   2\nlargest    9\n"));
}

TEST(TokenFile, ThatIsCutShortWhileItIsOpenIsAnErrorWithItsName) {
  TempFolder folder;
  const std::string path = folder.file("a.bin", llmc_bytes(std::vector<std::uint16_t>(100'000, 7)));
  const TokenFile file(path);
  std::filesystem::resize_file(path, 1024 + 2 * 10);
  std::vector<std::int32_t> tokens(8);
  file.read(2, tokens);
  EXPECT_THAT(tokens, testing::Each(7));
  EXPECT_THAT([&] { file.read(90'000, tokens); },
              testing::ThrowsMessage<UsageError>(HasSubstr("a.bin is cut short: it ends at byte")));
}

namespace {

std::vector<std::int64_t> begins(const TokenSource& source, std::int64_t begin, std::int64_t end) {
  std::vector<std::int64_t> found;
  source.document_begins(begin, end, found);
  return found;
}

}  // namespace

TEST(TokenFile, FindsTheBeginsOfDocumentsInAnIndex) {
  TempFolder folder;
  folder.file("m.bin", bytes_of_values<std::uint16_t>({0, 1, 2, 3, 4, 5, 6, 7, 8, 9}));
  // Documents of two sequences, of none, of one without tokens, and of one each.
  folder.file("m.idx", index_bytes(8, 2, {2, 1, 0, 4, 3}, {0, 2, 2, 3, 4, 5}));
  const TokenFile file(folder.path("m"));
  EXPECT_EQ(file.documents(), 5);
  EXPECT_TRUE(file.has_documents());
  EXPECT_THAT(begins(file, 0, 10), ElementsAre(0, 3, 7));
  EXPECT_THAT(begins(file, 1, 7), ElementsAre(3));
  EXPECT_THAT(begins(file, 3, 8), ElementsAre(3, 7));
  EXPECT_THAT(begins(file, 8, 10), ElementsAre());
  EXPECT_FALSE(TokenFile(folder.file("a.bin", llmc_bytes({0, 1}))).has_documents());

  const auto megatron = std::make_shared<TokenFile>(folder.path("m"));
  const auto memory = std::make_shared<MemoryTokens>("memory", std::vector<std::int32_t>{1, 2, 3},
                                                     std::vector<std::int64_t>{0, 2});
  const auto unknown = std::make_shared<TokenFile>(folder.path("a.bin"));
  const JoinedTokens joined({memory, megatron, memory}), cut({memory, megatron}, {false, true});
  EXPECT_TRUE(joined.has_documents());
  EXPECT_THAT(begins(joined, 0, 16), ElementsAre(0, 2, 3, 6, 10, 13, 15));
  EXPECT_THAT(begins(joined, 3, 14), ElementsAre(3, 6, 10, 13));
  EXPECT_THAT(begins(cut, 0, 13), ElementsAre(0, 2, 6, 10)) << "a part goes on with a document";
  EXPECT_FALSE(JoinedTokens({memory, unknown}).has_documents());
}
