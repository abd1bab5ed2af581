#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "axonn/base/random.h"

namespace axonn::synthetic {

struct Town {
  std::string name;
  std::string_view river, county, known_for, market_day;
  int founded;
};

struct Person {
  bool woman;
  std::string_view first, family;
  std::int64_t birth_town, home;  ///< ids of towns
  int birth_day, birth_year, moved_year;
  std::string_view birth_month, profession, hobby, animal, animal_name, food;
  std::int64_t friend_id;

  std::string name() const { return std::string(first) + ' ' + std::string(family); }
};

/// How two friends met; the same for both of them.
struct Meeting {
  std::int64_t town;
  int year;
  std::string_view occasion;
};

/// A country of people and towns. The seed fixes every fact, so all descriptions of a person agree.
/// Names are unique. Facts are computed on demand, not stored.
class World {
 public:
  static constexpr std::int64_t kTowns = 48, kPeople = 512;

  explicit World(std::uint64_t seed);

  Town town(std::int64_t id) const;      ///< id in [0, kTowns)
  Person person(std::int64_t id) const;  ///< id in [0, kPeople)
  Meeting meeting_of(std::int64_t person) const;

 private:
  std::uint64_t seed_;
  Random towns_, people_, meetings_;
};

}  // namespace axonn::synthetic
