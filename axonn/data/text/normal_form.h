#pragma once

#include <string>
#include <string_view>

namespace axonn {

/// Unicode's normal forms, of the version that unicode/properties.h names. Characters that are
/// newer neither move nor change. Source: Unicode Standard Annex 15.
enum class NormalForm {
  nfc,   ///< composed
  nfd,   ///< decomposed
  nfkc,  ///< composed, with compatible characters for special ones ("fi" for a ligature)
  nfkd,  ///< decomposed, with the same
};

/// Appends a form of a valid UTF-8 text.
void append_normal(std::string_view valid, NormalForm form, std::string& out);

/// Whether no form ever changes text before the first character together with text from it on.
bool begins_apart(std::string_view text);

/// Whether the form leaves the character, alone, as it is.
bool stays_normal(std::string_view character, NormalForm form);

/// Appends the text in small letters, whatever the language, each character for itself.
void append_lower_case(std::string_view valid, std::string& out);

/// Appends the text without combining marks.
void append_without_marks(std::string_view valid, std::string& out);

}  // namespace axonn
