#include <bit>
#include <cmath>
#include <cstdint>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "axonn/app/serve/answer_writer.h"
#include "axonn/app/serve/http.h"
#include "axonn/app/serve/request_body.h"

namespace axonn {

namespace {

using EmbeddingJson = nlohmann::ordered_json;

std::string base64_of(const std::string& bytes) {
  constexpr const char* kDigits =
      "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  std::string text;
  for (std::size_t i = 0; i < bytes.size(); i += 3) {
    std::uint32_t three = 0;
    for (std::size_t k = 0; k < 3; ++k)
      three = three << 8 | (i + k < bytes.size() ? static_cast<unsigned char>(bytes[i + k]) : 0U);
    for (std::size_t k = 0; k < 4; ++k)
      text += i + k > bytes.size() ? '=' : kDigits[three >> (18 - 6 * k) & 63];
  }
  return text;
}

/// The f32 of values, little-endian.
std::string bytes_of_floats(const std::vector<float>& values) {
  std::string bytes;
  for (const float value : values)
    for (int shift = 0; shift < 32; shift += 8)
      bytes += static_cast<char>(std::bit_cast<std::uint32_t>(value) >> shift & 255);
  return bytes;
}

/// The embedding with length 1.
std::vector<float> normalized(std::vector<float> values) {
  double squares = 0;
  for (const float value : values) squares += double{value} * value;
  if (!std::isfinite(squares))
    throw HttpError(500, "the embedding is not finite; the model's parameters are damaged");
  if (squares > 0)
    for (float& value : values) value = static_cast<float>(value / std::sqrt(squares));
  return values;
}

class EmbeddingWriter : public AnswerWriter {
 public:
  EmbeddingWriter(const ServedModel& model, const CompletionRequest& request)
      : model_(model), request_(request) {}

  std::string begin() override { return R"({"object":"list","data":[)"; }

  std::string choice(const ChoiceNews& of) override {
    EmbeddingJson one{{"object", "embedding"}, {"index", of.index}};
    const std::vector<float> values = normalized(of.embedding);
    if (request_.base64)
      one["embedding"] = base64_of(bytes_of_floats(values));
    else
      one["embedding"] = values;
    return (of.index > 0 ? "," : "") + dumped(one);
  }

  std::string end(const AnswerUsage&) override {
    const std::int64_t read = prompt_tokens(request_);
    std::string rest = dumped(
        {{"model", model_.name}, {"usage", {{"prompt_tokens", read}, {"total_tokens", read}}}});
    rest.front() = ',';
    return ']' + rest + '\n';
  }

  // No request for embeddings is a stream.
  std::string stream_begin(std::size_t) override { return ""; }
  std::string stream_news(const ChoiceNews&) override { return ""; }
  std::string stream_done(const AnswerUsage&) override { return ""; }
  std::string stream_fault(const std::string&) override { return ""; }

 private:
  const ServedModel& model_;
  const CompletionRequest& request_;
};

}  // namespace

std::unique_ptr<AnswerWriter> make_embedding_writer(const ServedModel& model,
                                                    const CompletionRequest& request) {
  return std::make_unique<EmbeddingWriter>(model, request);
}

}  // namespace axonn
