#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace axonn {

struct GrammarExpression;
using ExpressionPtr = std::shared_ptr<const GrammarExpression>;

/// A set of texts, as bytes. Expressions may use rules, each of which is an expression, so that
/// they can be recursive.
struct GrammarExpression {
  enum class Kind : std::uint8_t {
    text,      ///< `text` itself
    bytes,     ///< one byte of `ranges`
    sequence,  ///< a text of each of `parts`, in order
    choice,    ///< a text of any of `parts`
    repeat,    ///< `least` to `most` texts of parts[0]
    rule       ///< a text of rule `rule`
  };
  static constexpr std::int64_t kUnbounded = -1;

  Kind kind;
  std::string text = {};
  std::vector<std::pair<std::uint8_t, std::uint8_t>> ranges = {};  ///< first and last
  std::vector<ExpressionPtr> parts = {};
  std::int64_t least = 0, most = kUnbounded;
  std::size_t rule = 0;
};

/// The expressions that others use by their number.
class Rules {
 public:
  /// A new rule, to be set later, so that it can use itself.
  std::size_t declare() {
    expressions_.emplace_back();
    return expressions_.size() - 1;
  }
  void set(std::size_t rule, ExpressionPtr expression) {
    expressions_[rule] = std::move(expression);
  }
  /// A use of a new rule.
  ExpressionPtr add(ExpressionPtr expression);

  const std::vector<ExpressionPtr>& all() const { return expressions_; }

 private:
  std::vector<ExpressionPtr> expressions_;
};

/// First and last of a range of code points.
using CodeRange = std::pair<char32_t, char32_t>;
/// How one character of these ranges is written.
using WriteCharacters = std::function<ExpressionPtr(const std::vector<CodeRange>&)>;

/// The text itself.
ExpressionPtr literal(std::string_view text);
/// Any of the texts, which share their beginnings, so that a choice of many words is cheap.
ExpressionPtr any_text(std::vector<std::string> texts);
ExpressionPtr byte_of(std::vector<std::pair<std::uint8_t, std::uint8_t>> ranges);
/// One character of the ranges in UTF-8. Surrogates are none. The ranges must be sorted.
ExpressionPtr character_of(const std::vector<CodeRange>& ranges);
ExpressionPtr in_order(std::vector<ExpressionPtr> parts);
ExpressionPtr either(std::vector<ExpressionPtr> parts);
ExpressionPtr repeated(ExpressionPtr part, std::int64_t least,
                       std::int64_t most = GrammarExpression::kUnbounded);
ExpressionPtr optional(ExpressionPtr part);
ExpressionPtr use_of(std::size_t rule);

/// Texts that end with `end`, which is not empty, and do not contain it before.
ExpressionPtr text_until(std::string_view end, Rules& rules);

}  // namespace axonn
