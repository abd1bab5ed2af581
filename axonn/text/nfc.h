#pragma once

#include <string>
#include <string_view>

namespace axonn {

/// Unicode's composed normal form (NFC), by ICU. no_nfc.cpp stands for nfc.cpp in a build without
/// ICU; there the functions on text throw.

/// "ICU 72.1", or "none" and what that costs.
std::string nfc_library();

/// Why this build has no NFC, and the remedy; empty if it has.
std::string nfc_trouble();

/// Appends the composed form of a valid UTF-8 text.
void append_nfc(std::string_view valid, std::string& out);

/// Whether NFC never changes text before the first character together with text from it on.
bool begins_apart(std::string_view text);

/// Whether NFC leaves the character, alone, as it is.
bool stays_composed(std::string_view character);

}  // namespace axonn
