#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "axonn/base/random.h"

namespace axonn {

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
