#pragma once

#include <cstdint>
#include <optional>

#include "axonn/data/grammar/expression.h"

namespace axonn {

/// Rules for JSON values, as a model should write them: between parts a space, or one or two
/// newlines and up to 20 spaces or tabs; whole numbers of up to 18 digits, fractions of up to 17.
class JsonValues {
 public:
  explicit JsonValues(Rules& rules);

  ExpressionPtr space, character, string, whole, number, boolean, null, value, object, array;

  /// { and } around members, and [ and ] around items, with commas between: `least` to `most`.
  ExpressionPtr list(char open, const ExpressionPtr& one, char close, std::int64_t least = 0,
                     std::int64_t most = GrammarExpression::kUnbounded) const;
  /// "key": value
  ExpressionPtr member(ExpressionPtr key, ExpressionPtr value) const;
};

/// A character of a string in JSON: as it is, or escaped if it must be.
ExpressionPtr json_character_of(const std::vector<CodeRange>& ranges);

/// Bounds of a number; an empty one is none. Those of whole numbers are included.
struct NumberBounds {
  std::optional<std::int64_t> least = {}, most = {};
  bool above = false, below = false;  ///< of fractions: whether least or most is excluded
};
ExpressionPtr whole_between(const NumberBounds& bounds);
/// Numbers with or without fractions, without exponents.
ExpressionPtr number_between(const NumberBounds& bounds);

}  // namespace axonn
