#pragma once

#include <cstdint>
#include <string>

#include "axonn/data/synthetic/synthetic_world.h"

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

}  // namespace axonn
