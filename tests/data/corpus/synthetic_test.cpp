#include "axonn/data/corpus/synthetic/synthetic.h"

#include <algorithm>
#include <map>
#include <set>
#include <sstream>

#include <gmock/gmock.h>

#include "axonn/data/corpus/files/jsonl.h"
#include "axonn/foundation/base/check.h"
#include "axonn/foundation/base/random.h"

using namespace axonn;
using synthetic::World;

TEST(SyntheticText, IsTheRecordedTextToTheByte) {
  // Changes with every change of words or sentences; recorded losses must then be measured again.
  EXPECT_EQ(hash_text(synthetic_text(1'000'000, 1)), 18304160753266216752u);
}

TEST(SyntheticText, OfAnySizeIsThePrefixOfALargerOneAndDependsOnTheSeed) {
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

TEST(SyntheticText, DocumentsHaveAFewParagraphsAndAreDifferent) {
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
  std::map<std::string, std::set<std::string>> answers;
  const auto line_before = [&](std::size_t at) {
    const std::size_t begin = text.rfind('\n', at) + 1;
    return text.substr(begin, at - begin);
  };
  const std::string asked = "?\nAnswer: ", born = " was born in ", on = " on ";
  for (std::size_t at = text.find(asked); at != text.npos; at = text.find(asked, at + 1)) {
    const std::size_t begin = at + asked.size();
    answers[line_before(at)].insert(text.substr(begin, text.find('\n', begin) - begin));
  }
  int told = 0;
  for (std::size_t at = text.find(born); at != text.npos; at = text.find(born, at + 1)) {
    const std::string name = line_before(at);
    const std::size_t begin = at + born.size(), end = text.find_first_of(" .,", begin);
    if (text.compare(end, on.size(), on) != 0 || std::ranges::count(name, ' ') != 1) continue;
    ++told;
    answers["Question: Where was " + name + " born"].insert(name.substr(0, name.find(' ')) + born +
                                                            text.substr(begin, end - begin) + '.');
  }
  for (const auto& [question, given] : answers)
    EXPECT_EQ(given.size(), 1u) << question << "? " << *given.begin() << " / " << *given.rbegin();
  EXPECT_GT(answers.size(), 2000u);
  EXPECT_GT(told, 200);
}

TEST(SyntheticText, ConversationsAreQuestionsAndConsistentAnswers) {
  const std::string lines = synthetic_conversations(500, 1);
  EXPECT_EQ(lines, synthetic_conversations(500, 1));
  EXPECT_NE(lines, synthetic_conversations(500, 2));
  EXPECT_EQ(std::ranges::count(lines, '\n'), 500);
  std::map<std::string, std::string> answers;
  std::istringstream in(lines);
  for (std::string line; std::getline(in, line);) {
    const Conversation talk = parse_example(line, "").conversation;
    ASSERT_EQ(talk.messages.size() % 2, 0u);
    for (std::size_t i = 0; i < talk.messages.size(); i += 2) {
      EXPECT_EQ(talk.text(i, "role") + talk.text(i + 1, "role"), "userassistant");
      const std::string question = talk.text(i, "content"), answer = talk.text(i + 1, "content");
      const auto [known, first] = answers.emplace(question, answer);
      EXPECT_EQ(known->second, answer) << question;
    }
  }
  EXPECT_GT(answers.size(), 400u);
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
