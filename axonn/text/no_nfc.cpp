// Stands for nfc.cpp in a build without ICU.
#include "axonn/base/check.h"
#include "axonn/text/nfc.h"

namespace axonn {

std::string nfc_library() { return "none: tokenizers that normalize text (NFC: Qwen) are refused"; }

std::string nfc_trouble() {
  return "NFC needs ICU, and this build has none: install libicu-dev and configure with "
         "-DAXONN_ICU=ON";
}

void append_nfc(std::string_view, std::string&) { refuse(nfc_trouble()); }

bool begins_apart(std::string_view) { refuse(nfc_trouble()); }

bool stays_composed(std::string_view) { refuse(nfc_trouble()); }

}  // namespace axonn
