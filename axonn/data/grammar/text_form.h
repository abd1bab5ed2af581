#pragma once

#include <string>

#include "axonn/data/grammar/automaton.h"

namespace axonn {

/// Compiles a form, the JSON of what a text must be. One of:
///
///   {"text": T}                the text T
///   {"texts": [T, ...]}        one of the texts
///   {"regex": R}               all of the text matches a regular expression (regex.h)
///   {"grammar": G}             a text of the grammar (gbnf.h)
///   {"schema": S}              JSON that fits a schema (json_schema.h)
///   {"until": T}               any text that ends with T and does not have T before
///   {"space": N}               up to N characters of white space
///   {"sequence": [F, ...]}     a text of each form, in order
///   {"either": [F, ...]}       a text of any of the forms
///   {"repeat": F, "least": A, "most": B, "between": T}   A to B texts of F, T between them
///
/// Throws UsageError if it is none, too large, or only the empty text fits.
Automaton compile_form(const std::string& form);
/// Throws as that, and keeps nothing.
void check_form(const std::string& form);

/// The most bytes of a form.
inline constexpr std::size_t kLongestForm = std::size_t{32} << 10;

}  // namespace axonn
