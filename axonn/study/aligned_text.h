#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace axonn {

/// A text in pieces that another text has too, and pieces that it has not, by turns.
struct TextPiece {
  std::u32string points;
  bool common = false;
};

struct AlignedTexts {
  std::vector<TextPiece> first, second;
};

/// Runs below this many characters are not called common: letters and short words are in any two
/// texts. Texts that are shorter themselves are common if they are equal.
inline constexpr std::size_t kShortestCommonRun = 4;

/// Aligns two texts by their longest common subsequence in runs of at least kShortestCommonRun
/// characters; both have the same common pieces, in the same order. Takes time and memory by the
/// product of the lengths: a byte each. Source: Benson, Levy and Shalom, "Longest common
/// subsequence in k length substrings", 2013 (LCSk), with the longer runs of Pavetic, Zuzic and
/// Sikic, "LCSk++", 2014.
AlignedTexts aligned(std::u32string_view first, std::u32string_view second);

}  // namespace axonn
