#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "axonn/base/random.h"
#include "axonn/data/blend.h"
#include "axonn/data/sequences.h"
#include "axonn/data/token_source.h"

namespace axonn {

/// A part of a source, and its weight in training.
struct TokenStream {
  std::shared_ptr<const TokenSource> source;
  std::int64_t begin = 0, end = 0;  ///< tokens of the source
  double weight = 1;

  std::int64_t size() const { return end - begin; }
};

/// Cuts streams into consecutive windows of seq_len + 1 tokens that overlap by one: inputs are the
/// first seq_len tokens, targets the last seq_len. Every token but a stream's first is a target
/// once; the rest at a stream's end, fewer than seq_len targets, is dropped. Used directly for
/// validation, and by Sampler for training.
class Windows : public Sequences {
 public:
  /// vocab > 0: every token that is read must be below it.
  /// Throws UsageError if a stream is shorter than one window.
  Windows(std::vector<TokenStream> streams, std::int64_t seq_len, std::int64_t vocab = 0);

  /// Windows are numbered stream after stream. The first window of stream s; for s = the number of
  /// streams, count().
  std::int64_t first(std::int64_t s) const { return firsts_[static_cast<std::size_t>(s)]; }

  std::int64_t count() const override { return firsts_.back(); }
  void read(std::int64_t n, Sequence& to) const override;
  Size size(std::int64_t) const override { return {seq_len_, seq_len_}; }
  std::string where(std::int64_t n) const override;

 private:
  /// The stream of window n, and the window's first token in the stream's source.
  std::pair<const TokenStream*, std::int64_t> find(std::int64_t n) const;

  std::vector<TokenStream> streams_;
  std::int64_t seq_len_, vocab_;
  std::vector<std::int64_t> firsts_{0};  // the first window of each stream; then their number
};

struct SamplerOptions {
  std::int64_t seq_len = 0;
  std::uint64_t seed = 0;
  bool shuffle = true;
  std::int64_t vocab = 0;  ///< if positive: tokens must be below it
};

/// Defines the order of training samples. Sample n is a function of the streams, the options and n
/// alone, so a resumed run and every grid see the same samples. n counts the samples of all ranks:
/// n = step * global_batch + place in the batch. The Blend of the weights chooses the stream;
/// within a stream, every window comes once per epoch, in an order fixed by seed and epoch.
class Sampler : public Sequences {
 public:
  /// Throws UsageError if a stream is shorter than seq_len + 1 tokens or a weight is invalid.
  Sampler(std::vector<TokenStream> streams, const SamplerOptions& options);

  /// Windows of all streams: after this many samples the average token has been seen once.
  std::int64_t count() const override { return windows_.count(); }
  void read(std::int64_t n, Sequence& to) const override { windows_.read(window(n), to); }
  Size size(std::int64_t n) const override { return windows_.size(n); }
  std::string where(std::int64_t n) const override { return windows_.where(window(n)); }

 private:
  /// The window that is sample n.
  std::int64_t window(std::int64_t n) const;

  Blend blend_;
  Windows windows_;
  std::vector<Random> orders_;  // one per stream: the keys of its epochs
  bool shuffle_;
};

}  // namespace axonn
