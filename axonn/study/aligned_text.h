#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace axonn {

/// A piece of a text. Pieces that another text has in common alternate with those that it has not.
struct TextPiece {
  std::u32string points;
  bool common = false;
};

struct AlignedTexts {
  std::vector<TextPiece> first, second;
};

/// Runs of fewer characters do not count as common, since any two texts share letters and short
/// words. A text that is shorter itself is common if the other contains it as a whole.
inline constexpr std::size_t kShortestCommonRun = 4;

/// Aligns two texts by their longest common subsequence in runs of at least kShortestCommonRun
/// characters. The common pieces of both texts, joined, are the same characters. Time and memory
/// grow with the product of the lengths: one byte per pair of characters. Source: Benson, Levy and
/// Shalom, "Longest common subsequence in k length substrings", 2013 (LCSk), with the longer runs
/// of Pavetic, Zuzic and Sikic, "LCSk++", 2014.
AlignedTexts aligned(std::u32string_view first, std::u32string_view second);

}  // namespace axonn
