#pragma once

#include <string_view>

namespace axonn {

// Written by scripts/unicode-tables.py, which says of which versions they are. Numbers are
// hexadecimal, and combining classes, too.

/// Runs of all characters with one general category: the first character and the category,
/// "0=Cc20=Zs21=Po".
extern const std::string_view kUnicodeClasses;

/// "Adlam 1e900-1e94b,1e950-1e959 Ahom ...": scripts and their characters.
extern const std::string_view kUnicodeScripts;

/// "300-314:230 ...": the canonical combining class of characters for which it is not 0.
extern const std::string_view kCombiningClasses;

/// "c0=41+300 212a=4b! ...": canonical decompositions. "!": the parts are not composed again.
extern const std::string_view kDecompositions;

/// "a0=20 132=49+4a ...": compatible characters for special ones.
extern const std::string_view kCompatible;

/// "300-36f 483-489 ...": combining marks.
extern const std::string_view kMarks;

/// "41=61 130=69+307 ...": the small letters.
extern const std::string_view kLowerCase;

/// Takes a hexadecimal number from the front of a table.
char32_t take_hexadecimal(std::string_view& text);

}  // namespace axonn
