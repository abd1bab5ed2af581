#include "axonn/data/synthetic.h"

#include <map>
#include <regex>
#include <set>

#include <gmock/gmock.h>

#include "axonn/base/check.h"
#include "axonn/base/random.h"

using namespace axonn;
using synthetic::World;

TEST(SyntheticText, IsTheRecordedTextToTheByte) {
  // Changes with every change of words or sentences; then every recorded loss has to be measured
  // again as well.
  EXPECT_EQ(hash_text(synthetic_text(1'000'000, 1)), 18304160753266216752u);
}

TEST(SyntheticText, OfAnySizeIsThePrefixOfALargerOneAndOtherSeedsTellOtherThings) {
  const std::string large = synthetic_text(50'000, 7);
  ASSERT_EQ(large.size(), 50'000u);
  for (std::int64_t bytes : {0, 1, 999, 49'999})
    EXPECT_EQ(synthetic_text(bytes, 7), large.substr(0, static_cast<std::size_t>(bytes)));
  EXPECT_NE(synthetic_text(1000, 8), large.substr(0, 1000));
  EXPECT_THROW(synthetic_text(-1, 7), Error);
}

TEST(SyntheticText, IsAsciiTextWithoutUnfilledFactsOrDoubleSpaces) {
  const std::string text = synthetic_text(3'000'000, 2);
  for (char c : text) ASSERT_TRUE(c == '\n' || (c >= ' ' && c <= '~')) << int{c};
  for (const char* wrong : {"{", "}", "|", "  ", " \n", "\n\n\n", " a a", " a e", " an b"})
    EXPECT_EQ(text.find(wrong), text.npos)
        << wrong << " in: " << text.substr(text.find(wrong) - 40, 80);
}

TEST(SyntheticText, DocumentsHaveAFewParagraphsAndAreNotAlike) {
  const SyntheticText texts(3);
  std::set<std::string> seen;
  std::size_t bytes = 0;
  for (int i = 0; i < 5000; ++i) {
    const std::string document = texts.document(i);
    EXPECT_TRUE(document.ends_with("\n\n* * *\n\n"));
    EXPECT_GE(document.size(), 100u) << document;
    EXPECT_LE(document.size(), 2000u) << document;
    bytes += document.size();
    seen.insert(document);
  }
  EXPECT_GT(seen.size(), 4950u);
  EXPECT_GT(bytes / 5000, 250u);
}

TEST(SyntheticText, NeverContradictsItself) {
  const std::string text = synthetic_text(5'000'000, 4);
  std::map<std::string, std::set<std::string>> told;
  const auto collect = [&](const char* pattern, const char* kind) {
    const std::regex regex(pattern);
    for (std::sregex_iterator at(text.begin(), text.end(), regex), end; at != end; ++at)
      told[kind + (*at)[1].str()].insert((*at)[2].str());
  };
  collect("([A-Z][a-z]+ [A-Z][a-z]+) was born in ([A-Z][a-z]+) on", "birth town ");
  collect("([A-Z][a-z]+ [A-Z][a-z]+) came into the world in ([A-Z][a-z]+) on", "birth town ");
  collect("Born in [A-Z][a-z]+ in ([0-9]+, )?", "ignored ");
  collect("When was ([A-Z][a-z]+ [A-Z][a-z]+) born\\?\nAnswer: \\S+ was born on ([^.]+)\\.",
          "date ");
  collect("([A-Z][a-z]+ [A-Z][a-z]+) was born in [A-Z][a-z]+ on ([^.]+)\\.", "date ");
  collect("profession of ([A-Z][a-z]+ [A-Z][a-z]+)\\?\nAnswer: \\S+ was an? (\\w+)", "job ");
  collect("was founded\\? ([A-Z][a-z]+)(.*)", "ignored ");
  collect("When was ([A-Z][a-z]+) founded\\?\nAnswer: It was founded in (\\d+)", "founded ");
  collect("\n([A-Z][a-z]+) was founded in (\\d+), where", "founded ");
  std::size_t facts = 0;
  for (const auto& [fact, values] : told) {
    if (fact.starts_with("ignored")) continue;
    EXPECT_EQ(values.size(), 1u) << fact << " is both " << *values.begin() << " and "
                                 << *values.rbegin();
    ++facts;
  }
  EXPECT_GT(facts, 1000u);
}

TEST(World, NamesAreUniqueAndFriendshipIsMutual) {
  const World world(5);
  std::set<std::string> people, towns;
  for (std::int64_t i = 0; i < World::kPeople; ++i) {
    const auto person = world.person(i);
    people.insert(person.name());
    EXPECT_NE(person.friend_id, i);
    EXPECT_EQ(world.person(person.friend_id).friend_id, i);
    EXPECT_EQ(world.meeting_of(i).year, world.meeting_of(person.friend_id).year);
    EXPECT_NE(person.birth_town, person.home);
    EXPECT_LT(person.moved_year, world.meeting_of(i).year + 12);
  }
  for (std::int64_t i = 0; i < World::kTowns; ++i) towns.insert(world.town(i).name);
  EXPECT_EQ(std::ssize(people), World::kPeople);
  EXPECT_EQ(std::ssize(towns), World::kTowns);
}
