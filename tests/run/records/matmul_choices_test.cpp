#include <cstdlib>
#include <filesystem>

#include <gmock/gmock.h>

#include "axonn/foundation/base/check.h"
#include "axonn/run/train/tune.h"

#include "tests/support/temporary_path.h"

using namespace axonn;
using testing::HasSubstr;

namespace {

constexpr MatmulShape kForward{.M = 64, .N = 96, .K = 32, .b_transposed = true},
    kGradient{.M = 96, .N = 32, .K = 64, .a_transposed = true, .accumulate = true};

MatmulChoices choices_on(const std::string& device) {
  return {.device = device,
          .products = {{.shape = kForward,
                        .way = "64x32 pack b",
                        .default_way = "64x96",
                        .seconds = 0.1,
                        .default_seconds = 0.2,
                        .calls = 12},
                       {.shape = kGradient,
                        .way = "96x32",
                        .default_way = "96x32",
                        .seconds = 0.3,
                        .default_seconds = 0.3,
                        .calls = 1}}};
}

void expect_same(const MatmulChoices& got, const MatmulChoices& want) {
  EXPECT_EQ(got.device, want.device);
  ASSERT_EQ(got.products.size(), want.products.size());
  for (std::size_t i = 0; i < want.products.size(); ++i) {
    const TunedMatmul &a = got.products[i], &b = want.products[i];
    EXPECT_EQ(a.shape, b.shape);
    EXPECT_EQ(std::tie(a.way, a.default_way, a.seconds, a.default_seconds, a.calls),
              std::tie(b.way, b.default_way, b.seconds, b.default_seconds, b.calls));
  }
}

}  // namespace

TEST(MatmulChoices, RoundTripThroughJson) {
  expect_same(parse_matmul_choices(to_json(choices_on("here")), "x"), choices_on("here"));
}

TEST(MatmulChoices, OfADamagedFileAreRejectedWithItsName) {
  for (const char* text : {"", "{", "[]", "{}", R"({"device": 3, "products": []})",
                           R"({"device": "d", "products": [{"product": "f32 NT"}]})"})
    EXPECT_THAT([&] { parse_matmul_choices(text, "some/products.json"); },
                testing::ThrowsMessage<UsageError>(HasSubstr("some/products.json")))
        << text;
}

TEST(MatmulChoices, TableShowsTheGainPerProductAndInTotal) {
  const std::string table = to_text(choices_on("an oven"));
  EXPECT_THAT(table, HasSubstr("an oven"));
  EXPECT_THAT(table, testing::ContainsRegex("f32 NT 64x96x32 +12  64x96 +200.000 +100.000 +2.00  "
                                            "64x32 pack b"));
  EXPECT_THAT(table, testing::ContainsRegex("96x32 +300.000 +300.000 +1.00  the same"));
  EXPECT_THAT(table, HasSubstr("2700.000 ms by default, 1500.000 ms as chosen: 1.800 times"));
}

TEST(MatmulCache, FindsProductsOfThisDeviceOnly) {
  test::TemporaryPath folder;
  const std::string path = folder / "deep/in/products.json";
  MatmulCache(path).keep(choices_on("one"));
  MatmulCache(path).keep(choices_on("two"));  // in addition to the first
  const MatmulCache cache(path);
  EXPECT_EQ(cache.warning(), "");
  for (const char* device : {"one", "two"}) {
    const auto found = cache.find(device, kForward);
    ASSERT_TRUE(found);
    EXPECT_EQ(found->way, "64x32 pack b");
  }
  EXPECT_FALSE(cache.find("three", kForward));
  MatmulShape other = kForward;
  other.type = other.out_type = DType::bf16;
  EXPECT_FALSE(cache.find("one", other));
}

TEST(MatmulCache, ReplacesAProductAndKeepsTheOthers) {
  test::TemporaryPath folder;
  const std::string path = folder / "products.json";
  MatmulCache(path).keep(choices_on("here"));
  MatmulChoices newer = choices_on("here");
  newer.products.pop_back();
  newer.products.front().way = "32x32";
  MatmulCache(path).keep(newer);
  const MatmulCache cache(path);
  EXPECT_EQ(cache.find("here", kForward)->way, "32x32");
  EXPECT_EQ(cache.find("here", kGradient)->way, "96x32");
}

TEST(MatmulCache, IgnoresADamagedFileWithAWarningAndRewritesIt) {
  for (const char* text :
       {"", "no JSON", "{}", R"({"devices": 7})", R"({"devices": [{}]})",
        R"({"devices": [{"device": "here", "products": [{"product": "?"}]}]})"}) {
    test::TemporaryPath folder;
    const std::string path = folder / "products.json";
    test::spill(path, text);
    MatmulCache cache(path);
    EXPECT_THAT(cache.warning(), testing::AllOf(HasSubstr("ignored"), HasSubstr(path))) << text;
    EXPECT_FALSE(cache.find("here", kForward));
    cache.keep(choices_on("here"));
    EXPECT_EQ(MatmulCache(path).warning(), "");
    EXPECT_TRUE(MatmulCache(path).find("here", kForward));
  }
}

TEST(MatmulCache, ThatCannotBeWrittenWarnsWithoutAnError) {
  test::TemporaryPath folder;
  test::spill(folder / "file", "");
  MatmulCache cache(folder / "file/products.json");
  cache.keep(choices_on("here"));
  EXPECT_THAT(cache.warning(), HasSubstr("not kept"));
  MatmulCache nowhere("");
  nowhere.keep(choices_on("here"));
  EXPECT_EQ(nowhere.warning(), "");
}

TEST(MatmulCache, IsWhereConfiguredOrInTheUsersCacheFolder) {
  const auto path_with = [](const char* cache, const char* home) {
    const auto set = [](const char* name, const char* value) {
      value ? setenv(name, value, 1) : unsetenv(name);
    };
    const char* before[] = {std::getenv("XDG_CACHE_HOME"), std::getenv("HOME")};
    const std::string old_cache = before[0] ? before[0] : "", old_home = before[1] ? before[1] : "";
    set("XDG_CACHE_HOME", cache);
    set("HOME", home);
    const std::string path = matmul_cache_path("");
    set("XDG_CACHE_HOME", before[0] ? old_cache.c_str() : nullptr);
    set("HOME", before[1] ? old_home.c_str() : nullptr);
    return path;
  };
  EXPECT_EQ(matmul_cache_path("there.json"), "there.json");
  EXPECT_EQ(path_with("/cache", "/home/me"), "/cache/axonn/products.json");
  EXPECT_EQ(path_with(nullptr, "/home/me"), "/home/me/.cache/axonn/products.json");
  EXPECT_EQ(path_with(nullptr, nullptr), "");
}
