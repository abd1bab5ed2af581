#pragma once

#include <string>
#include <string_view>

namespace axonn {

/// A tokenizer's pattern, written for the library Oniguruma, as PCRE2 reads it: the same strings
/// match, compiled with PCRE2_UTF and without PCRE2_UCP.
///
/// What the two take differently is written out (\s and \S are Unicode's White_Space, \d its Nd,
/// inside of classes and outside) or refused: other escapes of letters (\w, \b, \h, \v, ...), ^, $,
/// look-behind and other uncommon groups, classes within classes, and a possessive {n,m}+.
/// Errors: UsageError, with where and the place in the pattern.
std::string to_pcre2(std::string_view pattern, const std::string& where);

}  // namespace axonn
