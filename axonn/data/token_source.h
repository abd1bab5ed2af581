#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

namespace axonn {

/// A stream of tokens with random access. Reading is const and thread-safe.
class TokenSource {
 public:
  virtual ~TokenSource() = default;
  TokenSource(const TokenSource&) = delete;
  TokenSource& operator=(const TokenSource&) = delete;

  /// The number of tokens.
  virtual std::int64_t size() const = 0;

  /// Fills tokens[i] with token begin + i. Throws Error if the range is not inside [0, size()).
  void read(std::int64_t begin, std::span<std::int32_t> tokens) const;

  /// As above, but also throws UsageError, with the file, the position, the token and a remedy, if
  /// a token is not in [0, vocab).
  void read_checked(std::int64_t begin, std::span<std::int32_t> tokens, std::int64_t vocab) const;

  std::int32_t at(std::int64_t position) const;

  /// The name of the source for messages: one path or several.
  virtual std::string name() const = 0;

  /// The name of one token for messages: "token 17 of PATH".
  virtual std::string where(std::int64_t position) const;

 protected:
  TokenSource() = default;

 private:
  virtual void read_valid(std::int64_t begin, std::span<std::int32_t> tokens) const = 0;
};

/// Tokens in memory.
class MemoryTokens : public TokenSource {
 public:
  MemoryTokens(std::string name, std::vector<std::int32_t> tokens);
  std::int64_t size() const override { return std::ssize(tokens_); }
  std::string name() const override { return name_; }

 private:
  void read_valid(std::int64_t begin, std::span<std::int32_t> tokens) const override;

  std::string name_;
  std::vector<std::int32_t> tokens_;
};

/// Several sources joined in order, such as the shards of a data set. A read may span them.
class JoinedTokens : public TokenSource {
 public:
  explicit JoinedTokens(std::vector<std::shared_ptr<const TokenSource>> parts);
  std::int64_t size() const override { return ends_.back(); }
  std::string name() const override;
  std::string where(std::int64_t position) const override;

 private:
  void read_valid(std::int64_t begin, std::span<std::int32_t> tokens) const override;
  std::size_t part_of(std::int64_t position) const;

  std::vector<std::shared_ptr<const TokenSource>> parts_;
  std::vector<std::int64_t> ends_;  // end of each part
};

/// The smallest and the largest token.
struct TokenRange {
  std::int32_t smallest, largest;
};
/// Reads the whole source. Throws Error if it is empty.
TokenRange token_range(const TokenSource& source);

}  // namespace axonn
