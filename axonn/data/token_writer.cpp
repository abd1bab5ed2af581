#include "axonn/data/token_writer.h"

#include <array>
#include <limits>
#include <utility>
#include <vector>

#include "axonn/base/check.h"
#include "axonn/base/files.h"
#include "axonn/data/token_file.h"
#include "axonn/data/token_format.h"

namespace axonn {

namespace {

using namespace token_format;

constexpr std::size_t kBufferBytes = 1
                                     << 20;  // large enough that the cost of a call does not matter

/// Writes tokens to a file, narrowed to a type.
class TokenBytes {
 public:
  TokenBytes(std::string path, TokenType type) : file_(std::move(path)), type_(type) {}

  AtomicFile& file() { return file_; }
  std::int64_t count() const { return count_; }

  void append_raw(std::span<const std::byte> bytes) { file_.append(bytes); }

  void append(std::span<const std::int32_t> tokens) {
    const std::int32_t most = type_ == TokenType::u16 ? std::numeric_limits<std::uint16_t>::max()
                                                      : std::numeric_limits<std::int32_t>::max();
    for (std::int32_t token : tokens) {
      if (token < 0 || token > most) [[unlikely]]
        refuse("cannot write ", file_.path(), ": token ", count_, " is ", token, ", but ",
               name_of(type_), " holds 0 to ", most);
      std::array<std::byte, 4> bytes;
      std::memcpy(bytes.data(), &token, bytes.size());
      buffer_.insert(buffer_.end(), bytes.begin(), bytes.begin() + bytes_of(type_));
      ++count_;
      if (buffer_.size() >= kBufferBytes) flush();
    }
  }

  void flush() {
    file_.append(buffer_);
    buffer_.clear();
  }

 private:
  AtomicFile file_;
  TokenType type_;
  std::vector<std::byte> buffer_;
  std::int64_t count_ = 0;
};

class LlmcWriter : public TokenWriter {
 public:
  explicit LlmcWriter(const std::string& path) : bytes_(path, TokenType::u16) {
    bytes_.append_raw(std::as_bytes(std::span(header_)));
  }

  void append(std::span<const std::int32_t> tokens) override {
    constexpr std::int64_t kMost = std::numeric_limits<std::int32_t>::max();
    if (std::ssize(tokens) > kMost - bytes_.count())
      refuse("cannot write ", bytes_.file().path(), ": an llm.c file holds at most ", kMost,
             " tokens; give a name without .bin, for Megatron's format, or split the text");
    bytes_.append(tokens);
  }

  void end_document() override {}

  void finish() override {
    bytes_.flush();
    header_[2] = static_cast<std::int32_t>(bytes_.count());
    bytes_.file().overwrite(0, std::as_bytes(std::span(header_)));
    bytes_.file().commit();
  }

 private:
  std::array<std::int32_t, kLlmcHeaderBytes / 4> header_{kLlmcMagic, kLlmcVersion};
  TokenBytes bytes_;
};

class MegatronWriter : public TokenWriter {
 public:
  MegatronWriter(const std::string& prefix, TokenType type)
      : type_(type), bytes_(prefix + ".bin", type), index_(prefix + ".idx") {}

  void append(std::span<const std::int32_t> tokens) override { bytes_.append(tokens); }

  /// A document that does not fit a sequence's 32-bit length becomes several sequences.
  void end_document() override {
    constexpr std::int64_t kMost = std::numeric_limits<std::int32_t>::max();
    std::int64_t length = bytes_.count() - begun_;
    for (; length > kMost; length -= kMost) lengths_.push_back(static_cast<std::int32_t>(kMost));
    lengths_.push_back(static_cast<std::int32_t>(length));
    documents_.push_back(std::ssize(lengths_));
    begun_ = bytes_.count();
  }

  void finish() override {
    if (bytes_.count() > begun_) end_document();
    std::vector<std::int64_t> offsets;
    std::int64_t offset = 0;
    for (std::int32_t length : lengths_) {
      offsets.push_back(offset);
      offset += length * bytes_of(type_);
    }
    std::array<char, kLengthsAt> header{};
    const auto put = [&](std::size_t at, std::uint64_t value) {
      std::memcpy(header.data() + at, &value, sizeof value);
    };
    kMegatronMagic.copy(header.data(), kMegatronMagic.size());
    put(kVersionAt, kMegatronVersion);
    header[kTypeAt] = static_cast<char>(type_);
    put(kSequencesAt, lengths_.size());
    put(kDocumentsAt, documents_.size());
    index_.append(std::as_bytes(std::span(header)));
    index_.append(std::as_bytes(std::span(lengths_)));
    index_.append(std::as_bytes(std::span(offsets)));
    index_.append(std::as_bytes(std::span(documents_)));
    bytes_.flush();
    bytes_.file().commit();
    index_.commit();  // last: a data set exists once its index does
  }

 private:
  TokenType type_;
  TokenBytes bytes_;
  AtomicFile index_;
  std::vector<std::int32_t> lengths_;
  std::vector<std::int64_t> documents_{0};
  std::int64_t begun_ = 0;  // first token of the open document
};

}  // namespace

std::unique_ptr<TokenWriter> make_token_writer(const std::string& path, std::int64_t vocab) {
  AXONN_CHECK(vocab > 0, "make_token_writer: the vocabulary has ", vocab, " tokens");
  if (path.ends_with(".bin")) {
    if (vocab > 65'536)
      refuse("cannot write ", path, ": an llm.c file holds tokens below 65,536, but the ",
             "vocabulary has ", vocab, "; give a name without .bin, for Megatron's format");
    return std::make_unique<LlmcWriter>(path);
  }
  return std::make_unique<MegatronWriter>(path, vocab < 65'500 ? TokenType::u16 : TokenType::i32);
}

}  // namespace axonn
