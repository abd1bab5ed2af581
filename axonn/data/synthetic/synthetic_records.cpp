#include "axonn/data/synthetic/synthetic_records.h"

#include <cmath>
#include <string_view>

#include <nlohmann/json.hpp>

#include "axonn/base/check.h"
#include "axonn/data/synthetic/synthetic_words.h"

namespace axonn {

namespace {

using namespace synthetic;

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
  Entry(const Random& choices, std::int64_t index)
      : choices_(choices), next_(static_cast<std::uint64_t>(index) << kChoiceBits) {}

  void words(std::string_view text) { parts_.push_back({std::string(text), 0}); }

  void any(Words list) {
    const std::uint64_t i = below(list.size());
    parts_.push_back({std::string(list[i]), std::log2(static_cast<double>(list.size()))});
  }

  /// Random digits; the first may be 0.
  void digits(int count) {
    std::string text;
    for (int i = 0; i < count; ++i) text += static_cast<char>('0' + below(10));
    parts_.push_back({std::move(text), count * std::log2(10.0)});
  }

  void person() {
    const bool woman = below(2) == 0;
    const Words firsts = woman ? kWomen : kMen;
    any(firsts);
    parts_.back().bits += 1;
    words(" ");
    any(kFamilies);
  }

  void opening() {
    std::string_view text = kOpenings[below(std::size(kOpenings))];
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
  static constexpr int kChoiceBits = 10;  // a record makes fewer than 1,024 choices

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
  std::uint64_t below(std::uint64_t bound) { return choices_.below(next_++, bound); }

  const Random& choices_;
  std::uint64_t next_;
  std::vector<SyntheticRecords::Part> parts_;
};

}  // namespace

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
