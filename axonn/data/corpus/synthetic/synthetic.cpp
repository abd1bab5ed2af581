#include "axonn/data/corpus/synthetic/synthetic.h"

#include <cmath>
#include <initializer_list>
#include <utility>

#include <nlohmann/json.hpp>

#include "axonn/data/corpus/synthetic/synthetic_words.h"
#include "axonn/foundation/base/check.h"

namespace axonn {

using namespace synthetic;

namespace {

constexpr std::int64_t kRoom = 64;  // choices of a town, a person or a meeting

/// A key for permute(): a function of seed and name.
std::uint64_t key_of(std::uint64_t seed, std::string_view name) {
  return hash_text(name) ^ (seed * 0x9e3779b97f4a7c15ULL);
}

int between(Choices& choices, std::int64_t first, std::int64_t last) {
  return static_cast<int>(first + choices.below(last - first + 1));
}

/// "baker" -> "a baker". Goes by spelling, which is right for all words used here.
std::string with_article(std::string_view word) {
  const bool vowel = std::string_view("aeiou").find(word.front()) != std::string_view::npos;
  return (vowel ? "an " : "a ") + std::string(word);
}

/// Writes one document: picks sentences and fills in the facts of one person.
class Writer : public Choices {
 public:
  Writer(const World& world, const Random& choices, std::int64_t document)
      : Choices(choices, document, /*room=*/1024) {
    add_person(world, below(World::kPeople));
  }

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

  /// A paragraph of several different sentences of one kind, in random order.
  void several(Words kind, std::uint64_t count) {
    const std::uint64_t key = below(~std::uint64_t{0});
    for (std::uint64_t i = 0; i < count; ++i) {
      if (i > 0) text_ += ' ';
      add(kind[permute(i, kind.size(), key)]);
    }
    end_paragraph();
  }

  /// A paragraph of one sentence.
  void line(std::string_view sentence) {
    add(sentence);
    end_paragraph();
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

 private:
  void end_paragraph() { text_ += "\n\n"; }
  void set(std::string_view key, std::string_view value) { facts_.emplace_back(key, value); }
  void set(std::string_view key, int value) { set(key, std::to_string(value)); }

  void add_person(const World& world, std::int64_t id) {
    const Person person = world.person(id), other = world.person(person.friend_id);
    const Town home = world.town(person.home), birth = world.town(person.birth_town);
    const Meeting meeting = world.meeting_of(id);
    set("name", person.name());
    set("first", person.first);
    set("First", person.first);
    set("they", person.woman ? "she" : "he");
    set("They", person.woman ? "She" : "He");
    set("them", person.woman ? "her" : "him");
    set("their", person.woman ? "her" : "his");
    set("Their", person.woman ? "Her" : "His");
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

  std::vector<std::pair<std::string_view, std::string>> facts_;
  std::string text_;
};

void life(Writer& writer) {
  writer.line("{name}");
  writer.paragraph({kBirth, kWork, kHome});
  writer.paragraph({kFriend, kCharacter});
  if (writer.chance(70)) writer.paragraph({kLeisure, kPet});
}

void town(Writer& writer) {
  writer.line("{home}");
  writer.paragraph({kTownFirst});
  writer.several(kTownMore, 2);
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
  const std::string_view month = writer.any(kMonths);
  const std::uint64_t year = 1900 + writer.below(10), day = 1 + writer.below(28);
  writer.line(concat("{home}, ", month, ' ', day, ", ", year));
  writer.line("Dear {friend_first},");
  writer.paragraph({kLetterOpens});
  writer.several(kLetterNews, 2 + writer.below(4));
  writer.paragraph({kLetterCloses});
  writer.line("Yours, {first}");
}

/// Calls ask(question, answer) for `least` to `least` + 3 different questions.
template <typename F>
void for_questions(Writer& writer, std::uint64_t least, const F& ask) {
  const std::uint64_t key = writer.below(~std::uint64_t{0}), count = least + writer.below(4);
  for (std::uint64_t i = 0; i < count; ++i) {
    const std::string_view both = kQuestions[permute(i, std::size(kQuestions), key)];
    const std::size_t bar = both.find('|');
    ask(both.substr(0, bar), both.substr(bar + 1));
  }
}

void questions(Writer& writer) {
  for_questions(writer, 2, [&](std::string_view question, std::string_view answer) {
    writer.line(concat("Question: ", question, "\nAnswer: ", answer));
  });
}

void day(Writer& writer) {
  writer.paragraph({kMorning, kNoon});
  if (writer.chance(60)) writer.paragraph({kNoon, kCharacter});
  writer.paragraph({kEvening});
}

/// The beginnings of records: {p} a person, {t} a town, {s} a sum, {d} a day, {j} a trade.
constexpr std::string_view kOpenings[] = {
    "{p} of {t} owed {s} pounds since {d}.",
    "On {d} a {j} from {t} lent {s} pounds to {p}.",
    "To {p}, {j}, {s} pounds were left in {t} on {d}.",
    "{t}, {d}: {p}, a {j}, sold a field for {s} pounds.",
    "{p} bought {s} bricks of a {j} in {t} on {d}.",
    "A {j} in {t} let a house to {p} for {s} pounds on {d}.",
    "{d}: from {t} came {p}, who paid the {j} {s} pounds.",
    "Of {s} pounds, the {j} {p} took a half to {t} on {d}.",
};

/// Writes one record.
class Entry {
 public:
  Entry(const Random& choices, std::int64_t index) : choices_(choices, index, /*room=*/1024) {}

  void words(std::string_view text) { parts_.push_back({std::string(text), 0}); }

  void any(Words list) {
    parts_.push_back(
        {std::string(choices_.any(list)), std::log2(static_cast<double>(list.size()))});
  }

  /// Random digits; the first may be 0.
  void digits(int count) {
    std::string text;
    for (int i = 0; i < count; ++i) text += static_cast<char>('0' + choices_.below(10));
    parts_.push_back({std::move(text), count * std::log2(10.0)});
  }

  void person() {
    any(choices_.below(2) == 0 ? Words(kWomen) : Words(kMen));
    parts_.back().bits += 1;
    words(" ");
    any(kFamilies);
  }

  void opening() {
    std::string_view text = choices_.any(kOpenings);
    while (!text.empty()) {
      const std::size_t open = text.find('{');
      words(text.substr(0, open));
      if (open == std::string_view::npos) break;
      detail(text[open + 1]);
      text.remove_prefix(open + 3);
    }
  }

  std::vector<SyntheticRecords::Part> finish() { return std::move(parts_); }

 private:
  void detail(char kind) {
    switch (kind) {
      case 'p':
        return person();
      case 't':
        any(kTownBegins);
        return any(kTownEnds);
      case 's':
        return digits(3);
      case 'j':
        return any(kProfessions);
      case 'd':
        any(kMonths);
        words(" 18");
        return digits(2);
      default:
        fail(Where::here(), "synthetic records: no detail is called ", kind);
    }
  }

  Choices choices_;
  std::vector<SyntheticRecords::Part> parts_;
};

}  // namespace

World::World(std::uint64_t seed)
    : seed_(seed),
      towns_(seed, "synthetic/town"),
      people_(seed, "synthetic/person"),
      meetings_(seed, "synthetic/meeting") {}

Town World::town(std::int64_t id) const {
  const std::uint64_t names = std::size(kTownBegins) * std::size(kTownEnds);
  const std::uint64_t name = permute(id, names, key_of(seed_, "town names"));
  Choices choices(towns_, id, kRoom);
  Town town;
  town.name = std::string(kTownBegins[name / std::size(kTownEnds)]) +
              std::string(kTownEnds[name % std::size(kTownEnds)]);
  town.river = choices.any(kRivers);
  town.county = choices.any(kCounties);
  town.known_for = choices.any(kKnownFor);
  town.market_day = choices.any(kWeekdays);
  town.founded = between(choices, 1105, 1690);
  return town;
}

Person World::person(std::int64_t id) const {
  const std::uint64_t firsts = std::size(kWomen) + std::size(kMen);
  const std::uint64_t name =
      permute(id, firsts * std::size(kFamilies), key_of(seed_, "people's names"));
  const std::uint64_t first = name % firsts;
  Choices choices(people_, id, kRoom);
  Person person;
  person.woman = first < std::size(kWomen);
  person.first = person.woman ? kWomen[first] : kMen[first - std::size(kWomen)];
  person.family = kFamilies[name / firsts];
  person.birth_town = between(choices, 0, kTowns - 1);
  person.home = (person.birth_town + 1 + between(choices, 0, kTowns - 2)) % kTowns;
  person.birth_day = between(choices, 1, 28);
  person.birth_month = choices.any(kMonths);
  person.birth_year = between(choices, 1801, 1860);
  person.moved_year = person.birth_year + between(choices, 19, 30);
  person.profession = choices.any(kProfessions);
  person.hobby = choices.any(kHobbies);
  person.animal = choices.any(kAnimals);
  person.animal_name = choices.any(kAnimalNames);
  person.food = choices.any(kFoods);
  person.friend_id = id ^ 1;
  return person;
}

Meeting World::meeting_of(std::int64_t person) const {
  Choices choices(meetings_, person / 2, kRoom);
  return {between(choices, 0, kTowns - 1), between(choices, 1880, 1899), choices.any(kOccasions)};
}

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
  writer.line("* * *");
  return writer.take();
}

std::string SyntheticText::conversation(std::int64_t index) const {
  AXONN_CHECK(index >= 0, "synthetic text: conversation ", index, " was asked for");
  Writer writer(world_, conversations_, index);
  nlohmann::ordered_json messages = nlohmann::ordered_json::array();
  const auto say = [&](const char* role, std::string_view words) {
    writer.add(words);
    messages.push_back({{"role", role}, {"content", writer.take()}});
  };
  for_questions(writer, 1, [&](std::string_view question, std::string_view answer) {
    say("user", question);
    say("assistant", answer);
  });
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
  text.resize(bytes);
  return text;
}

std::vector<SyntheticRecords::Part> SyntheticRecords::parts(std::int64_t index) const {
  AXONN_CHECK(index >= 0, "synthetic records: record ", index, " was asked for");
  Entry entry(choices_, index);
  entry.opening();
  entry.words(" ");
  // Three names with numbers of eight digits each: the last two numbers and the last name always
  // lie in the last 50 bytes.
  for (const std::string_view before : {"Heirs: ", ", ", ", "}) {
    entry.words(before);
    entry.person();
    entry.words(" ");
    entry.digits(8);
  }
  entry.words(".");
  return entry.finish();
}

std::string SyntheticRecords::text(std::int64_t index) const {
  std::string text;
  for (const Part& part : parts(index)) text += part.text;
  return text;
}

double SyntheticRecords::surprise(std::int64_t index, std::int64_t bytes) const {
  const std::vector<Part> all = parts(index);
  double bits = 0;
  std::int64_t seen = 0;
  for (auto part = all.rbegin(); part != all.rend(); ++part) {
    seen += std::ssize(part->text);
    if (seen > bytes) break;
    bits += part->bits;
  }
  return bits;
}

std::string synthetic_records(std::int64_t count, std::uint64_t seed) {
  AXONN_CHECK(count >= 0, "synthetic_records: ", count, " were asked for");
  constexpr std::int64_t kLast = 50;
  const SyntheticRecords all(seed);
  std::string lines;
  for (std::int64_t index = 0; index < count; ++index)
    lines += nlohmann::ordered_json{{"text", all.text(index)},
                                    {"surprise_bits", all.surprise(index, kLast)}}
                 .dump() +
             '\n';
  return lines;
}

}  // namespace axonn
