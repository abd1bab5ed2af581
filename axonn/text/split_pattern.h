#pragma once

#include <string>
#include <string_view>

namespace axonn {

/// Translates a tokenizer's pattern from the syntax of the library Oniguruma to PCRE2's. The same
/// strings match if it is compiled with PCRE2_UTF and without PCRE2_UCP.
///
/// Syntax that the two libraries read differently is written out (\s and \S are Unicode's
/// White_Space, \d is Nd, inside and outside of classes) or refused: other escapes of letters (\w,
/// \b, \h, \v, ...), ^, $, look-behind and other uncommon groups, classes within classes, and a
/// possessive {n,m}+. Throws UsageError with `where` and the place in the pattern.
std::string to_pcre2(std::string_view pattern, const std::string& where);

}  // namespace axonn
