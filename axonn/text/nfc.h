#pragma once

#include <string>
#include <string_view>

namespace axonn {

/// Unicode's composed normal form (NFC) of the version that unicode/properties.h names. Characters
/// that are newer neither move nor compose. Source: Unicode Standard Annex 15.

/// Appends the composed form of a valid UTF-8 text.
void append_nfc(std::string_view valid, std::string& out);

/// Whether NFC never changes text before the first character together with text from it on.
bool begins_apart(std::string_view text);

/// Whether NFC leaves the character, alone, as it is.
bool stays_composed(std::string_view character);

}  // namespace axonn
