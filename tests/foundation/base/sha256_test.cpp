#include "axonn/foundation/base/sha256.h"

#include <string_view>

#include <gtest/gtest.h>

using namespace axonn;

namespace {

std::string hash_of(std::string_view text, std::size_t at_once = 1000) {
  Sha256 hash;
  for (; !text.empty(); text.remove_prefix(std::min(at_once, text.size())))
    hash.append(std::as_bytes(std::span(text.substr(0, at_once))));
  return hash.finish();
}

}  // namespace

TEST(Sha256, HasTheHashesOfTheStandardsExamples) {
  EXPECT_EQ(hash_of(""), "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
  EXPECT_EQ(hash_of("abc"), "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
  EXPECT_EQ(hash_of("abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq"),
            "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1");
  EXPECT_EQ(hash_of(std::string(1'000'000, 'a')),
            "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0");
}

TEST(Sha256, DoesNotDependOnHowTheBytesCome) {
  for (const std::size_t length : {1u, 55u, 56u, 63u, 64u, 65u, 119u, 128u, 300u}) {
    std::string text;
    for (std::size_t i = 0; i < length; ++i) text += static_cast<char>(i * 7);
    for (const std::size_t at_once : {1u, 3u, 63u, 64u, 65u, 127u})
      EXPECT_EQ(hash_of(text, at_once), hash_of(text)) << length << " bytes, " << at_once;
  }
}
