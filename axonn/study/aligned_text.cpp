#include "axonn/study/aligned_text.h"

#include <algorithm>
#include <cstdint>

namespace axonn {

namespace {

// best(i, j): the most characters that the first i characters of one text and the first j of the
// other can have in common; ends(i, j): the same if a common run ends at both last characters.
//
//   ends(i, j) = the larger of  best(i - k, j - k) + k   if the last k characters are equal
//                               ends(i - 1, j - 1) + 1   if more than the last k are equal
//   best(i, j) = the largest of best(i - 1, j), best(i, j - 1), ends(i, j)

/// Flags that say how a cell was computed, to trace the alignment back.
enum Step : std::uint8_t { skip_first = 1, skip_second = 2, run_ends = 4, run_goes_on = 8 };

struct Cell {
  std::int32_t best = 0, ends = 0, equal = 0;  // equal: length of the equal suffix
};

class Alignment {
 public:
  Alignment(std::u32string_view first, std::u32string_view second)
      : first_(first),
        second_(second),
        shortest_(std::min({kShortestCommonRun, first.size(), second.size()})),
        width_(second.size() + 1),
        steps_((first.size() + 1) * width_, 0) {}

  /// Sets the flags of the characters that are common, in the first and the second text.
  void mark(std::vector<bool>& first, std::vector<bool>& second) {
    if (shortest_ == 0) return;
    fill();
    std::size_t i = first_.size(), j = second_.size();
    while (i > 0 && j > 0) {
      const std::uint8_t step = steps_[i * width_ + j];
      if (step & run_ends) {
        std::size_t length = shortest_;
        for (; steps_[i * width_ + j] & run_goes_on; --i, --j) first[i - 1] = second[j - 1] = true;
        for (; length > 0; --length, --i, --j) first[i - 1] = second[j - 1] = true;
      } else if (step & skip_first) {
        --i;
      } else {
        --j;
      }
    }
  }

 private:
  void fill() {
    // A ring buffer of the rows i - shortest .. i.
    std::vector<std::vector<Cell>> rows(shortest_ + 1, std::vector<Cell>(width_));
    const auto row = [&](std::size_t i) -> std::vector<Cell>& { return rows[i % rows.size()]; };
    for (std::size_t i = 1; i <= first_.size(); ++i)
      for (std::size_t j = 1; j < width_; ++j) {
        Cell& cell = row(i)[j];
        const Cell& before = row(i - 1)[j - 1];
        const std::int32_t shortest = static_cast<std::int32_t>(shortest_);
        std::uint8_t step = 0;
        cell = {};
        cell.equal = first_[i - 1] == second_[j - 1] ? before.equal + 1 : 0;
        if (cell.equal >= shortest) cell.ends = row(i - shortest_)[j - shortest_].best + shortest;
        if (cell.equal > shortest && before.ends + 1 >= cell.ends) {
          cell.ends = before.ends + 1;
          step |= run_goes_on;
        }
        const std::int32_t above = row(i - 1)[j].best, left = row(i)[j - 1].best;
        cell.best = std::max({above, left, cell.ends});
        if (cell.ends > 0 && cell.best == cell.ends) step |= run_ends;
        step |= cell.best == above ? skip_first : skip_second;
        steps_[i * width_ + j] = step;
      }
  }

  std::u32string_view first_, second_;
  std::size_t shortest_, width_;
  std::vector<std::uint8_t> steps_;  // (first + 1, second + 1)
};

std::vector<TextPiece> pieces_of(std::u32string_view points, const std::vector<bool>& common) {
  std::vector<TextPiece> pieces;
  for (std::size_t i = 0; i < points.size(); ++i) {
    if (pieces.empty() || pieces.back().common != common[i])
      pieces.push_back({.points = {}, .common = common[i]});
    pieces.back().points += points[i];
  }
  return pieces;
}

}  // namespace

AlignedTexts aligned(std::u32string_view first, std::u32string_view second) {
  std::vector<bool> in_first(first.size()), in_second(second.size());
  Alignment(first, second).mark(in_first, in_second);
  return {.first = pieces_of(first, in_first), .second = pieces_of(second, in_second)};
}

}  // namespace axonn
