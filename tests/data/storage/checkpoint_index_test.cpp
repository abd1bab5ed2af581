#include "axonn/data/storage/checkpoint/checkpoint_index.h"

#include <random>

#include <gmock/gmock.h>

#include "axonn/foundation/base/check.h"
#include "axonn/foundation/base/hash.h"

using namespace axonn;
using testing::HasSubstr;
using testing::ThrowsMessage;

namespace {

CheckpointIndex example() {
  CheckpointIndex index;
  index.step = 200;
  index.ranks = 2;
  index.kinds = {"master", "exp_avg"};
  index.parameters = {{"wte.weight", 251, 96}, {"a \"b\"", 7, 1}};
  index.texts = {{"state.json", {87, 0x0123456789abcdef}}};
  index.files = {{"rank-00000.safetensors",
                  kPieceBytes + 1,
                  {1, 0xffffffffffffffff},
                  {{{{0, {3, 10, 0, 48, 5, 100}}, {1, {0, 7, 0, 1, 0, 7}}},
                    {{"master", 264}, {"exp_avg", 672}}}}}};
  return index;
}

/// The same text with its checksum recomputed.
std::string resealed(std::string text) {
  const std::size_t tail = text.rfind(",\n\"xxh3\"");
  text.resize(tail);
  return text + ",\n\"xxh3\": \"" + hex_of(xxh3(text)) + "\"}\n";
}

/// The same with codes of 8 bits: of 95 and 7 values, so of two blocks.
CheckpointIndex coded_example() {
  CheckpointIndex index = example();
  index.files[0].blocks[0].coded = {{"exp_avg", {ValueCode::dynamic, 4096}}};
  return index;
}

std::string replaced(const std::string& from, const std::string& to,
                     const CheckpointIndex& index = example()) {
  std::string text = to_text(index);
  const std::size_t at = text.find(from);
  EXPECT_NE(at, text.npos) << from;
  return resealed(text.replace(at, from.size(), to));
}

}  // namespace

TEST(CheckpointIndex, ReadsWhatItWrote) {
  EXPECT_EQ(parse_index(to_text(example()), "index.json"), example());
  EXPECT_EQ(parse_index(to_text({}), "index.json"), CheckpointIndex());
  EXPECT_EQ(parse_index(to_text(coded_example()), "index.json"), coded_example());
}

TEST(CheckpointIndex, HasAnotherVersionOnlyIfItHasCodes) {
  EXPECT_THAT(to_text(example()), HasSubstr("\"version\": 1,"));
  EXPECT_THAT(to_text(coded_example()), HasSubstr("\"version\": 2,"));
}

TEST(CheckpointIndex, WithInconsistentCodesIsRefusedWithTheReason) {
  const std::vector<std::array<std::string, 3>> cases = {
      {"[\"dynamic\",4096]", "[\"unknown\",4096]", "it has values of type \"unknown\""},
      {"[\"dynamic\",4096]", "[\"dynamic\",4194300]", "is too short for its slices of exp_avg"},
      {"[\"dynamic\",4096]", "[\"dynamic\",4098]", "does not begin at a multiple of 4 bytes"},
      {"[\"dynamic\",4096]", "[\"dynamic\"]", "its JSON does not have"},
      {"\"exp_avg\":672", "\"exp_avg\":4193800", "is too short for its slices of exp_avg"},
      {"\"coded\":{\"exp_avg\"", "\"coded\":{\"other\"", "other in rank-00000.safetensors has a"}};
  for (const auto& [from, to, reason] : cases)
    EXPECT_THAT(([&, text = replaced(from, to, coded_example())] { parse_index(text, "F"); }),
                ThrowsMessage<UsageError>(HasSubstr(reason)))
        << to;
}

TEST(CheckpointIndex, IsRefusedIfAnyByteIsChangedOrCutOff) {
  const std::string good = to_text(example());
  for (std::size_t i = 0; i < good.size(); ++i) {
    std::string bad = good;
    bad[i] = static_cast<char>(bad[i] ^ 4);
    EXPECT_THAT([&] { parse_index(bad, "F"); },
                ThrowsMessage<UsageError>(HasSubstr("F is altered")));
    EXPECT_THAT([&] { parse_index(good.substr(0, i), "F"); },
                ThrowsMessage<UsageError>(HasSubstr("cut short")));
  }
}

TEST(CheckpointIndex, WithARightChecksumButInconsistentContentsIsRefusedWithTheReason) {
  const std::vector<std::array<std::string, 3>> cases = {
      {"\"version\": 1", "\"version\": 3",
       "it has version 3, but this program reads versions 1 and 2"},
      {"axonn checkpoint", "another format", "its \"format\" is not \"axonn checkpoint\""},
      {"\"step\": 200", "\"step\": -200", "found -200, expected a count"},
      {"\"step\": 200", "\"step\": 99999999999999999999", "expected a count of 0 or more"},
      {"\"step\": 200", "\"stop\": 200", "its JSON does not have the expected structure"},
      {"[\"wte.weight\",251,96]", "[\"wte.weight\",251]", "its JSON does not have"},
      {"251,96", "4611686018427387904,96", "wte.weight has too many elements"},
      {"rank-00000.safetensors", "../rank-00000",
       "is not the name of a file in the checkpoint's folder"},
      {"state.json", "..", "is not the name of a file in the checkpoint's folder"},
      {"0,3,10,0,48,5,100", "5,3,10,0,48,5,100", "a parameter that is not listed"},
      {"0,3,10,0,48,5,100", "0,250,10,0,48,5,100", "a slice of wte.weight in rank-00000"},
      {"0,3,10,0,48,5,100", "0,3,10,0,48,5,481", "a slice of wte.weight in rank-00000"},
      {"0,3,10,0,48,5,100", "0,3,10,0,48,5,4", "a slice of wte.weight in rank-00000"},
      {"0,3,10,0,48,5,100", "0,3,10,0,48,5", "does not have seven numbers for each slice"},
      {"\"exp_avg\":672", "\"exp_avg\":4193900", "is too short for its slices of exp_avg"},
      {"\"exp_avg\":672", "\"exp_avg\":674", "does not begin at a multiple of 4 bytes"},
      {"\"bytes\":4194305", "\"bytes\":8388609", "has 2 checksums for 8388609 bytes"},
      {"0123456789abcdef", "0123456789ABCDEF", "16 hex digits"}};
  for (const auto& [from, to, reason] : cases)
    EXPECT_THAT(([&, text = replaced(from, to)] { parse_index(text, "F"); }),
                ThrowsMessage<UsageError>(HasSubstr(reason)))
        << to;
}

TEST(CheckpointIndex, AnyTextWithARightChecksumIsReadOrIsAUsageError) {
  const std::string good = to_text(example());
  const std::string alphabet = "{}[]\",:0123456789eE.-\\ntruefalse \n";
  std::mt19937 random(5);
  int read = 0;
  for (int i = 0; i < 20'000; ++i) {
    std::string bad = good;
    for (unsigned n = 1 + random() % 3; n > 0; --n)
      bad[random() % (good.size() - 30)] = alphabet[random() % alphabet.size()];
    try {
      parse_index(resealed(bad), "F");
      ++read;
    } catch (const UsageError&) {
    }
  }
  EXPECT_GT(read, 0);
  EXPECT_LT(read, 20'000);
}

TEST(Merge, RenumbersTheParametersOfAPartAndRefusesOtherShapes) {
  CheckpointIndex whole = example(), part = example();
  std::swap(part.parameters[0], part.parameters[1]);
  part.parameters.push_back({"new", 3, 1});
  part.files[0].blocks[0].slices = {{2, {0, 3, 0, 1, 0, 3}}, {0, {0, 7, 0, 1, 0, 7}}};
  merge(whole, part);
  ASSERT_EQ(whole.parameters.size(), 3);
  EXPECT_EQ(whole.parameters[2].name, "new");
  EXPECT_EQ(whole.files.at(1).blocks[0].slices[0].parameter, 2);
  EXPECT_EQ(whole.files.at(1).blocks[0].slices[1].parameter, 1);
  part.parameters[0].rows = 8;
  EXPECT_THAT([&] { merge(whole, part); }, ThrowsMessage<Error>(HasSubstr("shape of a \"b\"")));
}
