#include "axonn/text/nfc.h"

#include <algorithm>
#include <cstdint>
#include <limits>

#include <unicode/bytestream.h>
#include <unicode/normalizer2.h>

#include "axonn/base/check.h"
#include "axonn/base/utf8.h"

namespace axonn {

namespace {

// ICU takes at most 2^31 - 1 bytes at once.
constexpr std::size_t kNfcBytes = 1 << 20;

const icu::Normalizer2& nfc() {
  UErrorCode status = U_ZERO_ERROR;
  const icu::Normalizer2* instance = icu::Normalizer2::getNFCInstance(status);
  AXONN_CHECK(U_SUCCESS(status), "NFC: ICU reports ", u_errorName(status));
  return *instance;
}

}  // namespace

std::string nfc_library() { return "ICU " U_ICU_VERSION; }

std::string nfc_trouble() { return {}; }

void append_nfc(std::string_view valid, std::string& out) {
  icu::StringByteSink<std::string> sink(&out);
  while (!valid.empty()) {
    std::size_t bytes = std::min(kNfcBytes, valid.size());
    while (bytes < valid.size() && (static_cast<unsigned char>(valid[bytes]) & 0xc0) == 0x80)
      --bytes;
    while (!begins_apart(valid.substr(bytes))) bytes += utf8_front(valid.substr(bytes)).bytes;
    AXONN_CHECK(bytes <= std::numeric_limits<std::int32_t>::max(), "NFC: ", bytes,
                " bytes of marks that combine with each other");
    UErrorCode status = U_ZERO_ERROR;
    nfc().normalizeUTF8(0, {valid.data(), static_cast<std::int32_t>(bytes)}, sink, nullptr, status);
    AXONN_CHECK(U_SUCCESS(status), "NFC: ICU reports ", u_errorName(status));
    valid.remove_prefix(bytes);
  }
}

bool begins_apart(std::string_view text) {
  return text.empty() || nfc().hasBoundaryBefore(static_cast<UChar32>(code_point(text)));
}

bool stays_composed(std::string_view character) {
  UErrorCode status = U_ZERO_ERROR;
  return nfc().isNormalizedUTF8({character.data(), static_cast<std::int32_t>(character.size())},
                                status) &&
         U_SUCCESS(status);
}

}  // namespace axonn
