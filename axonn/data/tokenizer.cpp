#include "axonn/data/tokenizer.h"

#include <array>
#include <utility>

#include "axonn/base/check.h"
#include "axonn/base/random.h"
#include "axonn/data/bpe_tokenizer.h"
#include "axonn/data/utf8.h"

namespace axonn {

namespace {

constexpr auto kEveryByte = [] {
  std::array<char, 256> bytes{};
  for (int i = 0; i < 256; ++i) bytes[i] = static_cast<char>(i);
  return bytes;
}();

class ByteTokenizer : public Tokenizer {
 public:
  std::string name() const override { return "bytes"; }
  std::int64_t vocab_size() const override { return 256; }
  std::optional<std::int32_t> end_of_text() const override { return std::nullopt; }
  std::uint64_t fingerprint() const override { return hash_text("bytes"); }

  void encode_into(std::string_view text, std::vector<std::int32_t>& tokens) const override {
    const std::size_t before = tokens.size();
    tokens.resize(before + text.size());
    for (std::size_t i = 0; i < text.size(); ++i)
      tokens[before + i] = static_cast<unsigned char>(text[i]);
  }

 private:
  std::string_view bytes_of_valid(std::int32_t token) const override {
    return {kEveryByte.data() + token, 1};
  }
};

}  // namespace

std::string_view Tokenizer::bytes_of(std::int32_t token) const {
  AXONN_CHECK(token >= 0 && token < vocab_size(), "decode: token ", token, " is not one of the ",
              vocab_size(), " of the tokenizer ", name());
  return bytes_of_valid(token);
}

std::vector<std::int32_t> Tokenizer::encode(std::string_view text) const {
  std::vector<std::int32_t> tokens;
  encode_into(text, tokens);
  return tokens;
}

std::string Tokenizer::decode(std::span<const std::int32_t> tokens) const {
  std::string text;
  for (std::int32_t token : tokens) text += bytes_of(token);
  return text;
}

std::shared_ptr<const Tokenizer> make_tokenizer(const std::string& bytes_or_folder) {
  if (bytes_or_folder.empty())
    refuse("data.tokenizer is empty; give \"bytes\" or a folder with vocab.json and merges.txt");
  if (bytes_or_folder == "bytes") return std::make_shared<ByteTokenizer>();
  return make_bpe_tokenizer(bytes_or_folder);
}

std::string StreamDecoder::push(std::int32_t token) {
  held_ += tokenizer_.bytes_of(token);
  const std::size_t whole = held_.size() - incomplete_utf8_suffix(held_);
  std::string text = held_.substr(0, whole);
  held_.erase(0, whole);
  return text;
}

std::string StreamDecoder::finish() { return std::exchange(held_, {}); }

}  // namespace axonn
