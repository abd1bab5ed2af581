#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "axonn/data/corpus/config.h"
#include "axonn/data/corpus/sequences.h"
#include "axonn/data/corpus/tokens/token_file.h"
#include "axonn/foundation/base/random.h"

namespace axonn {

struct Blanks;

/// A part of a source, and its weight in training.
struct TokenStream {
  std::shared_ptr<const TokenSource> source;
  std::int64_t begin = 0, end = 0;  ///< tokens of the source
  double weight = 1;
  std::shared_ptr<const Blanks> blanks = {};  ///< tokens that are left out; null: none

  std::int64_t size() const { return end - begin; }
};

/// How the documents of a window are separated.
struct DocumentRule {
  DocumentMode mode = DocumentMode::joined;
  /// The token that ends a document; -1: none does. A document also ends where the source says so.
  std::int32_t end_of_text = -1;
};

/// Takes the first tokens of documents out of the targets unless documents are joined, and sets
/// positions and starts if they are separate. The ids are the source's tokens from `begin` on.
void divide_documents(const TokenSource& source, std::int64_t begin, const DocumentRule& rule,
                      Sequence& sequence);

/// Cuts streams into consecutive windows of seq_len + 1 tokens that overlap by one: inputs are the
/// first seq_len tokens, targets the last seq_len. Every token but a stream's first is a target
/// once; the rest at a stream's end, fewer than seq_len targets, is dropped. Windows are numbered
/// stream after stream. Used directly for validation, and by Sampler for training.
///
/// Unless documents are joined, a document's first token is not a target. If they are separate,
/// their positions count from 0, and they do not see each other; the part of a document that a
/// window begins with is a document of its own.
class Windows : public Sequences {
 public:
  /// vocab > 0: every token that is read must be below it.
  /// Throws UsageError if a stream is shorter than one window.
  Windows(std::vector<TokenStream> streams, std::int64_t seq_len, std::int64_t vocab = 0,
          const DocumentRule& documents = {});

  std::int64_t count() const override { return firsts_.back(); }
  void read(std::int64_t n, Sequence& to) const override;
  Size size(std::int64_t) const override { return {seq_len_, seq_len_}; }
  std::string where(std::int64_t n) const override;
  bool counts_by_reading() const override;
  bool forgets(std::int64_t n) const override;

 private:
  /// The stream of window n, and the window's first token in the stream's source.
  std::pair<const TokenStream*, std::int64_t> find(std::int64_t n) const;

  std::vector<TokenStream> streams_;
  std::int64_t seq_len_, vocab_;
  DocumentRule documents_;
  std::vector<std::int64_t> firsts_{0};  // the first window of each stream; then their number
};

/// The sequences of streams: Windows, or PackedStream if documents are packed. Throws as these do.
std::unique_ptr<const Sequences> stream_sequences(std::vector<TokenStream> streams,
                                                  std::int64_t seq_len, std::int64_t vocab,
                                                  const DocumentRule& documents);

/// Mixes several sources by weight. The source of draw n is a function of n alone.
///
/// Draw n takes the source that is furthest behind its share so far (the first of several), as
/// Megatron-LM's blended data sets do. The order of the first kPeriod draws is stored and repeats,
/// so memory does not grow with the draws, and counting a source's draws before draw n takes
/// constant time. Shares are accurate to 1 / kPeriod.
class Blend {
 public:
  static constexpr std::int64_t kPeriod = 1 << 16;

  /// Weights are positive and need not sum to 1. Throws UsageError if a weight is not positive and
  /// finite, or if its share is too small to be drawn in kPeriod draws.
  explicit Blend(std::span<const double> weights);

  struct Draw {
    std::int32_t source;
    std::int64_t earlier;  ///< draws of this source before this one
  };
  Draw draw(std::int64_t n) const;

 private:
  std::vector<std::int32_t> source_, earlier_;  // (period): source of draw n; its earlier draws
  std::vector<std::int64_t> in_period_;         // (sources)
};

struct SamplerOptions {
  std::int64_t seq_len = 0;
  std::uint64_t seed = 0;
  bool shuffle = true;
  std::int64_t vocab = 0;  ///< if positive: tokens must be below it
  DocumentRule documents = {};
};

/// Defines the order of training samples. Sample n is a function of the sequences, the options and
/// n alone, so a resumed run and every grid see the same samples. n counts the samples of all
/// ranks: n = step * global_batch + index in the batch. The Blend of the weights chooses the
/// source; every sequence of a source comes once per epoch, in an order fixed by seed and epoch.
class Sampler : public Sequences {
 public:
  /// Samples the sequences of streams; each stream is a source. Throws UsageError if a stream is
  /// shorter than seq_len + 1 tokens or a weight is invalid.
  Sampler(const std::vector<TokenStream>& streams, const SamplerOptions& options);
  /// Samples these sequences: repeats them for ever. Ignores seq_len and vocab.
  Sampler(std::unique_ptr<const Sequences> sequences, const SamplerOptions& options);

  /// Sequences of all sources: after this many samples the average token has been seen once.
  std::int64_t count() const override { return count_; }
  void read(std::int64_t n, Sequence& to) const override;
  std::int64_t own_number(std::int64_t n) const override;
  Size size(std::int64_t n) const override;
  std::string where(std::int64_t n) const override;
  bool counts_by_reading() const override;
  bool forgets(std::int64_t n) const override;
  std::vector<std::string> notes() const override;

 private:
  struct Source {
    std::unique_ptr<const Sequences> sequences;
    Random orders;  // the keys of its epochs
  };
  void add(std::unique_ptr<const Sequences> sequences, const SamplerOptions& options);
  /// The source of sample n, and the sample's number there.
  std::pair<const Sequences&, std::int64_t> locate(std::int64_t n) const;

  Blend blend_;
  bool shuffle_;
  std::vector<Source> sources_;
  std::int64_t count_ = 0;
};

}  // namespace axonn
