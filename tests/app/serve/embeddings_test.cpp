// POST /v1/embeddings. What embeddings are is tested in tests/use/infer/embedding_test.cpp.
#include <cmath>
#include <cstring>

#include <gmock/gmock.h>
#include <nlohmann/json.hpp>

#include "axonn/foundation/base/check.h"

#include "tests/app/serve/with_server.h"

using namespace axonn;
using namespace axonn::testing_support;
using nlohmann::json;
using testing::HasSubstr;

namespace {

constexpr const char* kEmbeddings = "/v1/embeddings";

/// The embeddings of an answer, each of which must be in its place and of length 1.
std::vector<std::vector<float>> embeddings_in(const json& answer) {
  EXPECT_EQ(answer["object"], "list");
  EXPECT_EQ(answer["model"], "tiny (a+b)");
  std::vector<std::vector<float>> all;
  for (const json& each : answer["data"]) {
    EXPECT_EQ(each["object"], "embedding");
    EXPECT_EQ(each["index"], all.size());
    all.push_back(each["embedding"]);
    EXPECT_EQ(all.back().size(), 96U);
    double squares = 0;
    for (const float value : all.back()) squares += double{value} * value;
    EXPECT_NEAR(squares, 1, 1e-5);
  }
  return all;
}

void expect_near(const std::vector<float>& got, const std::vector<float>& want) {
  ASSERT_EQ(got.size(), want.size());
  for (std::size_t i = 0; i < want.size(); ++i) EXPECT_NEAR(got[i], want[i], 1e-5) << i;
}

}  // namespace

TEST(ServeEmbeddings, OfTextsAndTokensAreTheSameOnEveryGrid) {
  std::vector<std::vector<float>> first;
  for (const GridShape& grid : {GridShape{}, {2, 1, 2, 1}, {1, 2, 1, 2}}) {
    SCOPED_TRACE(to_string(grid));
    with_server({.grid = grid}, [&](const Served& served) {
      const json answer = served.answer(kEmbeddings, {{"input", {"abc", "a", "the third"}}});
      EXPECT_EQ(answer["usage"], json({{"prompt_tokens", 13}, {"total_tokens", 13}}));
      const auto texts = embeddings_in(answer);
      ASSERT_EQ(texts.size(), 3U);
      if (first.empty()) first = texts;
      for (std::size_t i = 0; i < 3; ++i) expect_near(texts[i], first[i]);
      const auto one = [&](const json& input) {
        return embeddings_in(served.answer(kEmbeddings, {{"input", input}})).at(0);
      };
      expect_near(one("abc"), texts[0]);
      expect_near(one({97, 98, 99}), texts[0]);
      const json lists = served.answer(kEmbeddings, {{"input", {{97, 98, 99}, {97}}}});
      expect_near(embeddings_in(lists).at(1), texts[1]);
    });
  }
}

TEST(ServeEmbeddings, PoolingChoosesTheMeanOrTheLastToken) {
  with_server({}, [](const Served& served) {
    const auto of = [&](const json& input, const char* pooling) {
      return embeddings_in(served.answer(kEmbeddings, {{"input", input}, {"pooling", pooling}}))
          .at(0);
    };
    const auto plain = embeddings_in(served.answer(kEmbeddings, {{"input", "abc"}})).at(0);
    expect_near(of("abc", "mean"), plain);
    EXPECT_GT(std::abs(of("abc", "last")[0] - plain[0]) + std::abs(of("abc", "last")[1] - plain[1]),
              1e-3);
    expect_near(of("a", "last"), of("a", "mean"));
  });
}

TEST(ServeEmbeddings, AsBase64AreTheSameNumbers) {
  with_server({}, [](const Served& served) {
    const auto plain = embeddings_in(served.answer(kEmbeddings, {{"input", "abc"}})).at(0);
    const std::string text = served.answer(
        kEmbeddings, {{"input", "abc"}, {"encoding_format", "base64"}})["data"][0]["embedding"];
    ASSERT_EQ(text.size(), 96U * 4 / 3 * 4);
    const std::string digits = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    std::string bytes;
    for (std::size_t i = 0; i < text.size(); i += 4) {
      std::size_t three = 0;
      for (std::size_t k = i; k < i + 4; ++k) three = three << 6 | digits.find(text[k]);
      for (const int shift : {16, 8, 0}) bytes += static_cast<char>(three >> shift & 255);
    }
    std::vector<float> values(96);
    std::memcpy(values.data(), bytes.data(), bytes.size());
    EXPECT_EQ(values, plain);
  });
}

TEST(ServeEmbeddings, RefusesWhatItCannotDoAndNamesTheKey) {
  with_server({}, [](const Served& served) {
    const auto refusal = [&](json body) {
      if (!body.contains("input")) body["input"] = "a";
      const HttpAnswer result = served.post(kEmbeddings, body);
      EXPECT_EQ(result.status, 400) << body;
      return json::parse(result.body)["error"]["message"].get<std::string>();
    };
    EXPECT_THAT(refusal({{"dimensions", 8}}),
                HasSubstr("dimensions: not supported; embeddings have the model's width alone"));
    EXPECT_THAT(refusal({{"encoding_format", "int8"}}),
                HasSubstr("encoding_format: wanted \"float\" or \"base64\", got \"int8\""));
    EXPECT_THAT(refusal({{"pooling", "cls"}}), HasSubstr("pooling: wanted \"mean\" or \"last\""));
    EXPECT_THAT(refusal({{"temperature", 1}}),
                HasSubstr("temperature: not supported; it is for requests that generate text"));
    EXPECT_THAT(refusal({{"prompt", "a"}}), HasSubstr("prompt: not supported; it is for"));
    EXPECT_THAT(refusal({{"input", ""}}), HasSubstr("input: it is an empty text"));
    EXPECT_THAT(refusal({{"input", nullptr}}), HasSubstr("input: wanted a text, a list of tokens"));
    EXPECT_THAT(refusal({{"input", json::array()}}), HasSubstr("input: it is an empty list"));
    EXPECT_THAT(refusal({{"input", {"a", ""}}}), HasSubstr("input: it is empty"));
    EXPECT_THAT(refusal({{"input", {1, 256}}}), HasSubstr("input: wanted tokens from 0 to 255"));
    EXPECT_THAT(refusal({{"input", std::string(301, 'a')}}),
                HasSubstr("input: the prompt has 301 tokens, but the context has only 300"));
    EXPECT_THAT(refusal({{"input", std::vector<std::string>(257, "a")}}),
                HasSubstr("input: 257 prompts are more than 256"));
    const HttpAnswer text = served.post("/v1/completions", {{"prompt", "a"}, {"pooling", "mean"}});
    EXPECT_THAT(text.body, HasSubstr("pooling: not supported; it is for /v1/embeddings"));
  });
}
