#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

namespace axonn {

/// A stream of tokens that can be read anywhere. Reading is const and safe from several threads.
class TokenSource {
 public:
  virtual ~TokenSource() = default;
  TokenSource(const TokenSource&) = delete;
  TokenSource& operator=(const TokenSource&) = delete;

  /// Tokens in all.
  virtual std::int64_t size() const = 0;

  /// tokens[i] becomes token begin + i. Errors: the range is not inside [0, size()).
  void read(std::int64_t begin, std::span<std::int32_t> tokens) const;

  /// As above, and every token must be in [0, vocab). Errors: UsageError names the file, the
  /// position, the token and what to do.
  void read_checked(std::int64_t begin, std::span<std::int32_t> tokens, std::int64_t vocab) const;

  std::int32_t at(std::int64_t position) const;

  /// What messages call the whole: a path, or several.
  virtual std::string name() const = 0;

  /// What messages call one token: "token 17 of PATH".
  virtual std::string where(std::int64_t position) const;

 protected:
  TokenSource() = default;

 private:
  virtual void read_valid(std::int64_t begin, std::span<std::int32_t> tokens) const = 0;
};

/// Tokens that were made here.
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

/// Several sources as one, in order: the shards of a data set. A read may span them.
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
  std::vector<std::int64_t> ends_;  // of each part
};

/// The smallest and the largest token. Reads everything. Errors: the source is empty.
struct TokenRange {
  std::int32_t smallest, largest;
};
TokenRange token_range(const TokenSource& source);

}  // namespace axonn
