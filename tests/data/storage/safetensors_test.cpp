#include "axonn/data/storage/safetensors/safetensors.h"

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <random>

#include <gmock/gmock.h>

#include "axonn/foundation/base/check.h"

#include "tests/support/temporary_path.h"
#include "tests/support/write_safetensors.h"

using namespace axonn;
using namespace axonn::test;
using testing::HasSubstr;
using testing::ThrowsMessage;

namespace {

std::string with_length(const std::string& json, const std::string& data) {
  const std::uint64_t length = json.size();
  std::string bytes(8, '\0');
  std::memcpy(bytes.data(), &length, 8);
  return bytes + json + data;
}

SafetensorsHeader parse(const std::string& json, std::int64_t data_bytes) {
  return parse_safetensors_header(json, 8 + static_cast<std::int64_t>(json.size()) + data_bytes,
                                  "F");
}

std::vector<SafetensorsTensor> example_tensors(const std::string& data) {
  const auto bytes = std::as_bytes(std::span(data));
  return {{{.name = "a.weight", .type = StoredType::f32, .shape = {2, 3}}, bytes.first(24)},
          {{.name = "scalar", .type = StoredType::bf16, .shape = {}}, bytes.first(2)},
          {{.name = "empty", .type = StoredType::i64, .shape = {5, 0, 2}}, {}},
          {{.name = "\"quoted\" é", .type = StoredType::u8, .shape = {3}}, bytes.subspan(24, 3)}};
}

const SafetensorsEntry& entry_of(const SafetensorsFile& file, std::string_view name) {
  return *std::ranges::find(file.header().entries, name, &SafetensorsEntry::name);
}

constexpr const char* kGood =
    R"({"__metadata__":{"format":"pt"},"b":{"dtype":"F16","shape":[2],"data_offsets":[8,12]},)"
    R"("a":{"data_offsets":[0,8],"dtype":"I64","shape":[]}}   )";

}  // namespace

TEST(Safetensors, ReadsWhatItWroteWithScalarsAndEmptyTensors) {
  const TemporaryPath folder;
  const std::string data = "0123456789abcdefghijklmnopqrstuvwxyz";
  write_safetensors(folder / "t.safetensors", example_tensors(data));
  const SafetensorsFile file(folder / "t.safetensors");
  EXPECT_EQ(file.header().data_offset % 8, 0);
  EXPECT_THAT(slurp(folder / "t.safetensors"), HasSubstr(R"({"__metadata__":{"format":"pt"},)"));
  ASSERT_EQ(file.header().entries.size(), 4);
  for (const SafetensorsTensor& tensor : example_tensors(data)) {
    const SafetensorsEntry& entry = entry_of(file, tensor.entry.name);
    EXPECT_EQ(entry.type, tensor.entry.type);
    EXPECT_EQ(entry.shape, tensor.entry.shape);
    std::vector<std::byte> got(static_cast<std::size_t>(entry.bytes()));
    file.read(entry, 0, got);
    EXPECT_TRUE(std::ranges::equal(got, tensor.data)) << entry.name;
  }
  std::byte two[2];
  const SafetensorsEntry& weight = entry_of(file, "a.weight");
  file.read(weight, 22, two);
  EXPECT_EQ(two[1], std::byte{'n'});
  EXPECT_THAT([&] { file.read(weight, 23, two); },
              ThrowsMessage<Error>(HasSubstr("read of 2 bytes at 23 of \"a.weight\"")));
}

TEST(Safetensors, ReadsHeadersOfOtherWritersInAnyOrderWithPadding) {
  const SafetensorsHeader header = parse(kGood, 12);
  ASSERT_EQ(header.entries.size(), 2);
  EXPECT_EQ(header.entries[0].name, "a");
  EXPECT_EQ(header.entries[1], (SafetensorsEntry{"b", StoredType::f16, {2}, 8, 12}));
  EXPECT_EQ(parse("{}", 0).entries.size(), 0);
  EXPECT_EQ(parse("{}     \n", 0).data_offset, 16);
}

TEST(Safetensors, KnowsAllTypesOfTheFormat) {
  const std::vector<std::pair<std::string, int>> types = {
      {"BOOL", 1}, {"U8", 1},  {"I8", 1},  {"F8_E4M3", 1}, {"F8_E5M2", 1},
      {"I16", 2},  {"U16", 2}, {"F16", 2}, {"BF16", 2},    {"I32", 4},
      {"U32", 4},  {"F32", 4}, {"I64", 8}, {"U64", 8},     {"F64", 8}};
  for (const auto& [name, bytes] : types) {
    const auto header = parse(
        concat(R"({"a":{"dtype":")", name, R"(","shape":[3],"data_offsets":[0,)", 3 * bytes, "]}}"),
        3 * bytes);
    EXPECT_EQ(name_of(header.entries.at(0).type), name);
  }
}

TEST(Safetensors, RefusesEachFaultOfAHeaderByName) {
  const auto entry = [](const std::string& shape, const std::string& offsets) {
    return R"({"a":{"dtype":"F32","shape":)" + shape + R"(,"data_offsets":)" + offsets + "}}";
  };
  const std::string two = R"({"a":{"dtype":"U8","shape":[4],"data_offsets":[0,4]},"b":)";
  const std::vector<std::pair<std::string, std::string>> cases = {
      {"", "its header is not a JSON object"},
      {" {}", "its header is not a JSON object"},
      {"[]", "its header is not a JSON object"},
      {"{", "invalid JSON from byte"},
      {"{}x", "invalid JSON from byte"},
      {std::string("{}\0x", 4), "a zero byte"},
      {"{\"\xff\":1}", "invalid JSON from byte"},
      {R"({"a":1})", "a number is not expected there"},
      {R"({"a":null})", "null is not expected there"},
      {R"({"a":[1]})", "a list is not expected there"},
      {R"({"a":{}})", "entry \"a\": it has no dtype"},
      {R"({"a":{"dtype":"F32","shape":[1]}})", "it has no data_offsets"},
      {R"({"a":{"dtype":"F31","shape":[1],"data_offsets":[0,4]}})", "the dtype F31 is not known"},
      {R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4],"x":1}})", "key \"x\" is not known"},
      {R"({"a":{"dtype":"F32","dtype":"F32","shape":[1],"data_offsets":[0,4]}})", "comes twice"},
      {R"({"__metadata__":{"a":1}})", "a number is not expected there"},
      {R"({"__metadata__":{"a":{}}})", "an object is not expected there"},
      {R"({"__metadata__":"a"})", "a string is not expected there"},
      {R"({"__metadata__":{"a":"b","a":"c"}})", "the key \"a\" comes twice"},
      {entry("[1]", "[0]"), "data_offsets must be [begin, end]"},
      {entry("[1]", "[0,4,8]"), "data_offsets must be [begin, end]"},
      {entry("[1.0]", "[0,4]"), "a fraction is not expected there"},
      {entry("[-1]", "[0,4]"), "a negative number is not expected there"},
      {entry("[[1]]", "[0,4]"), "a list is not expected there"},
      {entry("{}", "[0,4]"), "an object is not expected there"},
      {entry("[1]", "[4,0]"), "do not match the size of its shape in F32"},
      {entry("[2]", "[0,4]"), "do not match the size of its shape in F32"},
      {entry("[9223372036854775808]", "[0,4]"), "is out of range"},
      {entry("[4294967296,4294967296,4294967297]", "[0,4]"), "do not match the size of its shape"},
      {entry("[1]", "[1,5]"), "begins at byte 1 of the data, but the entry before it ends at 0"},
      {two + R"({"dtype":"U8","shape":[4],"data_offsets":[3,7]}})",
       "the entry before it ends at 4"},
      {two + R"({"dtype":"U8","shape":[4],"data_offsets":[5,9]}})",
       "the entry before it ends at 4"},
      {two + R"({"dtype":"U8","shape":[9],"data_offsets":[4,13]}})", "cut short"},
      {R"({"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]}})", "its header describes 1"}};
  for (const auto& [json, reason] : cases)
    EXPECT_THAT(([&, text = json] { parse(text, 4); }),
                ThrowsMessage<UsageError>(HasSubstr(reason)))
        << json;
}

TEST(Safetensors, RefusesDeepNestingWithoutUsingTheStack) {
  const std::string deep(1 << 20, '[');
  EXPECT_THROW(parse(R"({"a":{"shape":)" + deep, 0), UsageError);
  std::string objects;
  for (int i = 0; i < 100'000; ++i) objects += R"({"a":)";
  EXPECT_THROW(parse(objects, 0), UsageError);
}

TEST(Safetensors, RefusesALengthBeyondTheFileWithoutAllocatingIt) {
  const TemporaryPath folder;
  const std::string path = folder / "t.safetensors";
  for (std::uint64_t length : {std::uint64_t{3}, std::uint64_t{1} << 20, std::uint64_t{100'000'000},
                               std::uint64_t{100'000'001}, ~std::uint64_t{0}}) {
    std::string bytes(8, '\0');
    std::memcpy(bytes.data(), &length, 8);
    spill(path, bytes + "{}");
    EXPECT_THAT(
        [&] { SafetensorsFile file(path); },
        ThrowsMessage<UsageError>(HasSubstr(
            length > 100'000'000 ? "but the format allows at most 100000000" : "cut short")));
  }
}

TEST(Safetensors, CutAtAnyLengthIsAUsageErrorThatNamesTheFile) {
  const TemporaryPath folder;
  const std::string path = folder / "t.safetensors", good = with_length(kGood, "0123456789ab");
  spill(path, good);
  EXPECT_NO_THROW(SafetensorsFile{path});
  for (std::size_t length = 0; length < good.size(); ++length) {
    spill(path, good.substr(0, length));
    EXPECT_THAT([&] { SafetensorsFile file(path); },
                ThrowsMessage<UsageError>(HasSubstr("t.safetensors")))
        << length;
  }
}

TEST(Safetensors, AnyHeaderIsReadOrIsAUsageError) {
  const std::string good = kGood, alphabet = "{}[]\",:0123456789eE.-\\ \n\xc3\xff";
  std::mt19937 random(3);
  int read = 0;
  for (int i = 0; i < 50'000; ++i) {
    std::string bad = good;
    for (unsigned n = 1 + random() % 3; n > 0; --n) {
      const std::size_t at = random() % bad.size();
      switch (random() % 3) {
        case 0:
          bad[at] = alphabet[random() % alphabet.size()];
          break;
        case 1:
          bad.erase(at, 1 + random() % 4);
          break;
        default:
          bad.insert(at, good.substr(random() % good.size(), 1 + random() % 20));
          break;
      }
    }
    try {
      const SafetensorsHeader header = parse(bad, 12);
      std::int64_t at = 0;  // the entries that were read are consistent
      for (const SafetensorsEntry& entry : header.entries) {
        ASSERT_EQ(entry.begin, at);
        at = entry.end;
      }
      ASSERT_TRUE(at == 12) << bad;
      ++read;
    } catch (const UsageError&) {
    }
  }
  EXPECT_GT(read, 0);
  EXPECT_LT(read, 50'000);
}

TEST(Safetensors, RefusesToWriteTensorsThatItWouldNotRead) {
  const TemporaryPath folder;
  const std::string path = folder / "t.safetensors", data(8, 'x');
  const auto bytes = std::as_bytes(std::span(data));
  const auto tensor = [&](const std::string& name, std::int64_t count) {
    return SafetensorsTensor{{.name = name, .type = StoredType::f32, .shape = {count}}, bytes};
  };
  EXPECT_THAT([&] { write_safetensors(path, {tensor("a", 3)}); },
              ThrowsMessage<Error>(HasSubstr("\"a\" needs 12 bytes for its shape and got 8")));
  EXPECT_THAT(
      [&] {
        write_safetensors(path, {tensor("a", 2), tensor("a", 2)});
      },
      ThrowsMessage<Error>(HasSubstr("the same name")));
  EXPECT_THAT([&] { write_safetensors(path, {tensor("__metadata__", 2)}); },
              ThrowsMessage<Error>(HasSubstr("cannot be named")));
  EXPECT_FALSE(std::filesystem::exists(path));
}
