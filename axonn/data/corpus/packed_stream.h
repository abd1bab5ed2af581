#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "axonn/data/corpus/sampler.h"
#include "axonn/data/corpus/sequences.h"

namespace axonn {

/// Packs the documents of streams into sequences by best fit, the longest first, within runs of
/// consecutive documents. Documents in a sequence do not see each other, and only one that is
/// longer than a sequence is cut, into pieces that are treated as documents. Rows after the last
/// document are padding, as in PackedDocuments. Sequence n depends only on the streams and seq_len.
///
/// Memory: 24 bytes for each run of at least kRun tokens and 256 sequences. Reading a sequence
/// packs its run anew; no other order of sequences would be a function of n alone without a table
/// of all documents. Sources must have documents.
class PackedStream : public Sequences {
 public:
  static constexpr std::int64_t kRun = 1 << 20;

  /// vocab > 0: every token that is read must be below it. Reads the sources' tables of documents
  /// once. Throws UsageError if there is nothing to learn.
  PackedStream(std::vector<TokenStream> streams, std::int64_t seq_len, std::int64_t vocab);

  std::int64_t count() const override { return sequences_; }
  void read(std::int64_t n, Sequence& to) const override;
  Size size(std::int64_t) const override { return {seq_len_, seq_len_}; }
  std::string where(std::int64_t n) const override;
  bool counts_by_reading() const override { return true; }
  bool forgets(std::int64_t n) const override;

  /// Inputs of all sequences that are not padding.
  std::int64_t inputs() const { return inputs_; }

 private:
  /// The tokens [begin, end) of a stream's source: whole documents, but for the stream's ends.
  struct Run {
    std::int64_t stream, begin;
    std::int64_t first;  ///< number of its first sequence
  };
  /// A document, or a part of one.
  struct Piece {
    std::int64_t begin;  ///< token of the source
    std::int64_t inputs;
  };
  std::int64_t end_of(std::size_t run) const;
  /// The pieces of a run, the longest first.
  std::vector<Piece> pieces_of(std::size_t run) const;
  std::size_t run_of(std::int64_t n) const;
  /// The pieces of sequence n.
  std::vector<Piece> pieces_in(std::int64_t n) const;
  void add_runs(std::int64_t stream);
  const TokenStream& stream_of(std::size_t run) const { return streams_[runs_[run].stream]; }
  bool is_blanked(std::size_t run, const Piece& piece) const;

  std::vector<TokenStream> streams_;
  std::int64_t seq_len_, vocab_;
  std::vector<Run> runs_;
  std::int64_t sequences_ = 0, inputs_ = 0;
  std::vector<std::int64_t> forgets_;  // sequences with tokens that are left out, ascending
};

}  // namespace axonn
