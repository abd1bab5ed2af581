#include "axonn/data/synthetic/synthetic.h"

#include <initializer_list>
#include <utility>
#include <vector>

#include <nlohmann/json.hpp>

#include "axonn/base/check.h"
#include "axonn/data/synthetic/synthetic_words.h"

namespace axonn {

namespace {

using namespace synthetic;

/// "baker" -> "a baker". Goes by spelling, which is right for all words used here.
std::string with_article(std::string_view word) {
  const bool vowel = std::string_view("aeiou").find(word.front()) != std::string_view::npos;
  return (vowel ? "an " : "a ") + std::string(word);
}

/// Writes one document: picks sentences and fills in the facts of one person.
class Writer {
 public:
  Writer(const World& world, const Random& choices, std::int64_t document)
      : choices_(choices), next_(static_cast<std::uint64_t>(document) << kChoiceBits) {
    add_person(world, static_cast<std::int64_t>(below(World::kPeople)));
  }

  std::uint64_t below(std::uint64_t bound) { return choices_.below(next_++, bound); }
  std::string_view any(Words words) { return words[below(words.size())]; }
  bool chance(std::uint64_t percent) { return below(100) < percent; }

  /// The sentences of a paragraph: one of each kind, in this order.
  void paragraph(std::initializer_list<Words> kinds) {
    std::string_view space;
    for (Words kind : kinds) {
      text_ += std::exchange(space, " ");
      add(any(kind));
    }
    end_paragraph();
  }

  /// Returns the text written so far and clears it.
  std::string take() { return std::exchange(text_, {}); }

  /// Several different sentences of one kind, in random order.
  void several(Words kind, std::uint64_t count) {
    const std::uint64_t key = below(~std::uint64_t{0});
    for (std::uint64_t i = 0; i < count; ++i) {
      if (i > 0) text_ += ' ';
      add(kind[permute(i, kind.size(), key)]);
    }
  }

  /// Appends a template's text with the facts filled in.
  void add(std::string_view sentence) {
    while (!sentence.empty()) {
      const std::size_t open = std::min(sentence.find('{'), sentence.size());
      text_ += sentence.substr(0, open);
      sentence.remove_prefix(open);
      if (sentence.empty()) break;
      const std::size_t close = sentence.find('}');
      text_ += fact(sentence.substr(1, close - 1));
      sentence.remove_prefix(close + 1);
    }
  }

  void end_line() { text_ += '\n'; }
  void end_paragraph() { text_ += "\n\n"; }

  std::string finish() {
    text_ += "* * *\n\n";
    return std::move(text_);
  }

 private:
  static constexpr int kChoiceBits = 10;  // a document makes fewer than 1,024 choices

  void set(std::string_view key, std::string value) { facts_.emplace_back(key, std::move(value)); }
  void set(std::string_view key, std::string_view value) { set(key, std::string(value)); }
  void set(std::string_view key, int value) { set(key, std::to_string(value)); }

  void add_person(const World& world, std::int64_t id) {
    const Person person = world.person(id), other = world.person(person.friend_id);
    const Town home = world.town(person.home), birth = world.town(person.birth_town);
    const Meeting meeting = world.meeting_of(id);
    set("name", person.name());
    set("first", person.first);
    set("First", person.first);
    set("they", std::string_view(person.woman ? "she" : "he"));
    set("They", std::string_view(person.woman ? "She" : "He"));
    set("them", std::string_view(person.woman ? "her" : "him"));
    set("their", std::string_view(person.woman ? "her" : "his"));
    set("Their", std::string_view(person.woman ? "Her" : "His"));
    set("birth_town", birth.name);
    set("birth_river", birth.river);
    set("birth_date", concat(person.birth_month, ' ', person.birth_day, ", ", person.birth_year));
    set("birth_year", person.birth_year);
    set("job", person.profession);
    set("a_job", with_article(person.profession));
    set("hobby", person.hobby);
    set("animal", person.animal);
    set("an_animal", with_article(person.animal));
    set("animal_name", person.animal_name);
    set("food", person.food);
    set("moved", person.moved_year);
    set("home", home.name);
    set("river", home.river);
    set("county", home.county);
    set("known", home.known_for);
    set("market_day", home.market_day);
    set("founded", home.founded);
    set("friend", other.name());
    set("friend_first", other.first);
    set("a_friend_job", with_article(other.profession));
    set("friend_town", world.town(other.birth_town).name);
    set("met_at", meeting.occasion);
    set("met_town", world.town(meeting.town).name);
    set("met_year", meeting.year);
  }

  /// A fact of the person, or a random choice for a key that is not a fact.
  std::string_view fact(std::string_view key) {
    for (const auto& [name, value] : facts_)
      if (name == key) return value;
    if (key == "weekday") return any(kWeekdays);
    if (key == "month") return any(kMonths);
    if (key == "season") return any(kSeasons);
    if (key == "weather") return any(kWeather);
    if (key == "worry") return any(kWorries);
    fail(Where::here(), "synthetic text: no fact is called {", key, '}');
  }

  const Random& choices_;
  std::uint64_t next_;
  std::vector<std::pair<std::string_view, std::string>> facts_;
  std::string text_;
};

void life(Writer& writer) {
  writer.add("{name}");
  writer.end_paragraph();
  writer.paragraph({kBirth, kWork, kHome});
  writer.paragraph({kFriend, kCharacter});
  if (writer.chance(70)) writer.paragraph({kLeisure, kPet});
}

void town(Writer& writer) {
  writer.add("{home}");
  writer.end_paragraph();
  writer.paragraph({kTownFirst});
  writer.several(kTownMore, 2);
  writer.end_paragraph();
  writer.paragraph({kTownPeople, kWork, kLeisure});
}

void meeting(Writer& writer) {
  writer.paragraph({kMeeting});
  writer.paragraph({kSaid});
  writer.paragraph({kAnswered});
  if (writer.chance(50)) writer.paragraph({kSaid});
  writer.paragraph({kParted});
}

void letter(Writer& writer) {
  writer.add("{home}, ");
  writer.add(writer.any(kMonths));
  writer.add(concat(' ', 1 + writer.below(28), ", ", 1900 + writer.below(10)));
  writer.end_paragraph();
  writer.add("Dear {friend_first},");
  writer.end_paragraph();
  writer.paragraph({kLetterOpens});
  writer.several(kLetterNews, 2 + writer.below(4));
  writer.end_paragraph();
  writer.paragraph({kLetterCloses});
  writer.add("Yours, {first}");
  writer.end_paragraph();
}

void questions(Writer& writer) {
  const std::uint64_t key = writer.below(~std::uint64_t{0}), count = 2 + writer.below(4);
  for (std::uint64_t i = 0; i < count; ++i) {
    const std::string_view both = kQuestions[permute(i, kQuestions.size(), key)];
    const std::size_t bar = both.find('|');
    writer.add("Question: ");
    writer.add(both.substr(0, bar));
    writer.end_line();
    writer.add("Answer: ");
    writer.add(both.substr(bar + 1));
    writer.end_paragraph();
  }
}

void day(Writer& writer) {
  writer.paragraph({kMorning, kNoon});
  if (writer.chance(60)) writer.paragraph({kNoon, kCharacter});
  writer.paragraph({kEvening});
}

}  // namespace

SyntheticText::SyntheticText(std::uint64_t seed)
    : world_(seed),
      choices_(seed, "synthetic/document"),
      conversations_(seed, "synthetic/conversation") {}

std::string SyntheticText::document(std::int64_t index) const {
  AXONN_CHECK(index >= 0, "synthetic text: document ", index, " was asked for");
  Writer writer(world_, choices_, index);
  // Lives are the most frequent: they state the facts that other documents refer to.
  constexpr void (*kKinds[])(Writer&) = {life, life, town, meeting, letter, questions, day};
  kKinds[writer.below(std::size(kKinds))](writer);
  return writer.finish();
}

std::string SyntheticText::conversation(std::int64_t index) const {
  AXONN_CHECK(index >= 0, "synthetic text: conversation ", index, " was asked for");
  Writer writer(world_, conversations_, index);
  const std::uint64_t key = writer.below(~std::uint64_t{0}), count = 1 + writer.below(4);
  nlohmann::ordered_json messages = nlohmann::ordered_json::array();
  const auto say = [&](const char* role, std::string_view words) {
    writer.add(words);
    messages.push_back({{"role", role}, {"content", writer.take()}});
  };
  for (std::uint64_t i = 0; i < count; ++i) {
    const std::string_view both = kQuestions[permute(i, kQuestions.size(), key)];
    const std::size_t bar = both.find('|');
    say("user", both.substr(0, bar));
    say("assistant", both.substr(bar + 1));
  }
  return nlohmann::ordered_json{{"messages", messages}}.dump();
}

std::string synthetic_conversations(std::int64_t count, std::uint64_t seed) {
  AXONN_CHECK(count >= 0, "synthetic_conversations: ", count, " were asked for");
  const SyntheticText all(seed);
  std::string lines;
  for (std::int64_t index = 0; index < count; ++index) lines += all.conversation(index) + '\n';
  return lines;
}

std::string synthetic_text(std::int64_t bytes, std::uint64_t seed) {
  AXONN_CHECK(bytes >= 0, "synthetic_text: ", bytes, " bytes were asked for");
  const SyntheticText documents(seed);
  std::string text;
  for (std::int64_t index = 0; std::ssize(text) < bytes; ++index) text += documents.document(index);
  text.resize(static_cast<std::size_t>(bytes));
  return text;
}

}  // namespace axonn
