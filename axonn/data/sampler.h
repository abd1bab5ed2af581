#pragma once

#include <cstdint>
#include <memory>
#include <span>
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

  std::int64_t seq_len() const { return seq_len_; }
  std::int64_t count() const override { return ends_.back(); }

  /// Fills tokens (seq_len + 1) with window n; windows are numbered stream after stream.
  void read(std::int64_t n, std::span<std::int32_t> tokens) const;
  void read(std::int64_t n, Sequence& to) const override;
  Size size(std::int64_t) const override { return {seq_len_, seq_len_}; }
  std::string where(std::int64_t n) const override;

 private:
  /// The stream of window n, and the window's first token in the stream's source.
  std::pair<const TokenStream*, std::int64_t> find(std::int64_t n) const;

  std::vector<TokenStream> streams_;
  std::int64_t seq_len_, vocab_;
  std::vector<std::int64_t> ends_;  // end of each stream's windows
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

  struct Place {
    std::int32_t stream;
    std::int64_t epoch;   ///< of this stream, from 0
    std::int64_t window;  ///< in this stream
  };
  Place place(std::int64_t n) const;

  /// Fills tokens (seq_len + 1) with sample n. Returns the sample's place.
  /// Throws UsageError if a token is not below vocab.
  Place read(std::int64_t n, std::span<std::int32_t> tokens) const;

  /// Windows in one epoch of a stream.
  std::int64_t windows(std::int32_t stream) const { return windows_[stream]->count(); }

  /// Windows of all streams: after this many samples the average token has been seen once.
  std::int64_t count() const override;
  void read(std::int64_t n, Sequence& to) const override;
  Size size(std::int64_t) const override { return {options_.seq_len, options_.seq_len}; }
  std::string where(std::int64_t n) const override;

 private:
  SamplerOptions options_;
  Blend blend_;
  std::vector<std::unique_ptr<const Windows>> windows_;  // one per stream
  std::vector<Random> orders_;                           // one per stream: the keys of its epochs
};

}  // namespace axonn
