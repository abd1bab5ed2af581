#pragma once

#include <string_view>

#include "axonn/data/grammar/expression.h"

namespace axonn {

/// The texts of rule "root" of a grammar in GBNF, the form that llama.cpp and XGrammar read:
/// `name ::= ...` with "texts", [characters], [^others], . (any character), names of rules, (...),
/// |, *, +, ?, {n}, {n,}, {n,m} and # comments. A rule ends where the next one begins. Names have
/// letters, digits, -, _ and dots. Throws UsageError, with the line: if it is no grammar, if a rule
/// is missing, there twice, or begins with itself (left recursion), for tokens (<...>), lookahead
/// ((=...)), and more than 1,000 repetitions.
ExpressionPtr gbnf(std::string_view grammar, Rules& rules);

}  // namespace axonn
