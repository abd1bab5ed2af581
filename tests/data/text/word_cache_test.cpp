#include "axonn/data/text/word_cache.h"

#include <string>

#include <gmock/gmock.h>

using namespace axonn;
using testing::ElementsAre;
using testing::IsEmpty;

namespace {

WordCache::Key key_of(const std::string& word) { return WordCache::key_of(word, word.size()); }

}  // namespace

TEST(WordCache, AKeyDependsOnlyOnTheWordNotOnTheTextAfterIt) {
  for (std::size_t bytes = 1; bytes <= 16; ++bytes) {
    const std::string word(bytes, 'w');
    for (const char* behind : {"", "x", "another word that is long"}) {
      const auto key = WordCache::key_of(word + behind, bytes);
      EXPECT_EQ(key.low, key_of(word).low) << bytes << behind;
      EXPECT_EQ(key.high, key_of(word).high) << bytes << behind;
      EXPECT_EQ(key.bytes, bytes);
    }
  }
  EXPECT_EQ(key_of(std::string(17, 'w')).bytes, 0u);
}

TEST(WordCache, NeverGivesAnotherWordsTokens) {
  WordCache cache;
  cache.keep(key_of("headword0"), std::vector{1, 2});
  cache.keep(key_of("w"), std::vector{3});
  EXPECT_THAT(cache.find(key_of("headword0")), ElementsAre(1, 2));
  EXPECT_THAT(cache.find(key_of("w")), ElementsAre(3));
  EXPECT_THAT(cache.find(key_of(std::string("w\0", 2))), IsEmpty());
  // There are 2^15 slots, so some hundred of these keys share a slot with one of the two words.
  for (int i = 1; i < 2'000'000; ++i) {
    WordCache::Key other = key_of("headword0");
    other.high += static_cast<std::uint64_t>(i);
    ASSERT_THAT(cache.find(other).size(), 0u) << i;
    other = key_of("w");
    other.low += static_cast<std::uint64_t>(i) << 8;
    ASSERT_THAT(cache.find(other).size(), 0u) << i;
  }
}

TEST(WordCache, DoesNotKeepMoreTokensThanASlotHolds) {
  WordCache cache;
  cache.keep(key_of("word"), std::vector<std::int32_t>(11, 7));
  EXPECT_THAT(cache.find(key_of("word")), IsEmpty());
  cache.keep(key_of("word"), std::vector<std::int32_t>(10, 7));
  EXPECT_EQ(cache.find(key_of("word")).size(), 10u);
}
