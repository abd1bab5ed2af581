#include "axonn/data/synthetic/synthetic_world.h"

#include <cstddef>

#include "axonn/data/synthetic/synthetic_words.h"

namespace axonn::synthetic {

namespace {

/// The random choices that describe one thing, in order.
class Choices {
 public:
  Choices(const Random& random, std::int64_t id) : random_(random), next_(id * kRoom) {}

  std::int64_t below(std::int64_t bound) {
    return static_cast<std::int64_t>(
        random_.below(static_cast<std::uint64_t>(next_++), static_cast<std::uint64_t>(bound)));
  }

  std::string_view of(Words words) {
    return words[static_cast<std::size_t>(below(std::ssize(words)))];
  }

  int between(int first, int last) { return first + static_cast<int>(below(last - first + 1)); }

 private:
  static constexpr std::int64_t kRoom =
      64;  // choices reserved for one thing, so that more can be added later

  const Random& random_;
  std::int64_t next_;
};

/// A key for permute(): a function of seed and name.
std::uint64_t key_of(std::uint64_t seed, std::string_view name) {
  return hash_text(name) ^ (seed * 0x9e3779b97f4a7c15ULL);
}

}  // namespace

World::World(std::uint64_t seed)
    : seed_(seed),
      towns_(seed, "synthetic/town"),
      people_(seed, "synthetic/person"),
      meetings_(seed, "synthetic/meeting") {}

Town World::town(std::int64_t id) const {
  const std::uint64_t names = kTownBegins.size() * kTownEnds.size();
  const std::uint64_t name =
      permute(static_cast<std::uint64_t>(id), names, key_of(seed_, "town names"));
  Choices choices(towns_, id);
  Town town;
  town.name = std::string(kTownBegins[name / kTownEnds.size()]) +
              std::string(kTownEnds[name % kTownEnds.size()]);
  town.river = choices.of(kRivers);
  town.county = choices.of(kCounties);
  town.known_for = choices.of(kKnownFor);
  town.market_day = choices.of(kWeekdays);
  town.founded = choices.between(1105, 1690);
  return town;
}

Person World::person(std::int64_t id) const {
  const std::uint64_t firsts = kWomen.size() + kMen.size();
  const std::uint64_t name = permute(static_cast<std::uint64_t>(id), firsts * kFamilies.size(),
                                     key_of(seed_, "people's names"));
  const std::uint64_t first = name % firsts;
  Choices choices(people_, id);
  Person person;
  person.woman = first < kWomen.size();
  person.first = person.woman ? kWomen[first] : kMen[first - kWomen.size()];
  person.family = kFamilies[name / firsts];
  person.birth_town = choices.below(kTowns);
  person.home = (person.birth_town + 1 + choices.below(kTowns - 1)) % kTowns;
  person.birth_day = choices.between(1, 28);
  person.birth_month = choices.of(kMonths);
  person.birth_year = choices.between(1801, 1860);
  person.moved_year = person.birth_year + choices.between(19, 30);
  person.profession = choices.of(kProfessions);
  person.hobby = choices.of(kHobbies);
  person.animal = choices.of(kAnimals);
  person.animal_name = choices.of(kAnimalNames);
  person.food = choices.of(kFoods);
  person.friend_id = id ^ 1;
  return person;
}

Meeting World::meeting_of(std::int64_t person) const {
  Choices choices(meetings_, person / 2);
  return {choices.below(kTowns), choices.between(1880, 1899), choices.of(kOccasions)};
}

}  // namespace axonn::synthetic
