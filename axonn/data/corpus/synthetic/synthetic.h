#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "axonn/foundation/base/random.h"

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

namespace axonn {

/// Readable English about an invented country: lives, towns, meetings, letters, days, questions
/// with answers. Its facts (births, professions, meetings) are repeated in other words and never
/// contradict each other, so a small model learns them. A document is a function of seed and index
/// alone, the same to the byte on every machine. ASCII only.
class SyntheticText {
 public:
  explicit SyntheticText(std::uint64_t seed);

  /// Paragraphs with an empty line after each and a line "* * *" at the end: 0.2 to 1.5 KB.
  std::string document(std::int64_t index) const;

  /// One to four questions about a person, with answers, as a line of JSONL with "messages".
  std::string conversation(std::int64_t index) const;

 private:
  synthetic::World world_;
  Random choices_, conversations_;
};

/// The first `bytes` bytes of documents 0, 1, ... concatenated.
std::string synthetic_text(std::int64_t bytes, std::uint64_t seed);

/// Conversations 0 to count - 1 about the same world, one per line.
std::string synthetic_conversations(std::int64_t count, std::uint64_t seed);

/// Entries of an invented register, 120 to 170 bytes each, with random people, towns, sums and
/// numbers. A model that was not trained on an entry cannot predict its end: the last 50 bytes hold
/// at least 60 random bits. For studies of what models memorize. A record is a function of seed and
/// index alone, the same to the byte on every machine. ASCII only.
class SyntheticRecords {
 public:
  explicit SyntheticRecords(std::uint64_t seed) : choices_(seed, "synthetic/record") {}

  /// A part of a record: fixed words, or one of several equally likely texts.
  struct Part {
    std::string text;
    double bits = 0;  ///< log2 of the number of possible texts
  };
  std::vector<Part> parts(std::int64_t index) const;

  std::string text(std::int64_t index) const;

  /// The random bits of the parts that lie completely in the last `bytes` bytes of a record. The
  /// last `bytes` tokens of any tokenizer hold at least as many, since a token has at least one
  /// byte.
  double surprise(std::int64_t index, std::int64_t bytes) const;

 private:
  Random choices_;
};

/// Records 0 to count - 1 as JSONL: {"text": ..., "surprise_bits": of the last 50 bytes}.
std::string synthetic_records(std::int64_t count, std::uint64_t seed);

}  // namespace axonn
