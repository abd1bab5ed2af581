#include "axonn/data/corpus/packed_stream.h"

#include <algorithm>
#include <functional>
#include <numeric>

#include "axonn/data/corpus/blanks.h"
#include "axonn/data/corpus/packing.h"
#include "axonn/foundation/base/check.h"

namespace axonn {

PackedStream::PackedStream(std::vector<TokenStream> streams, std::int64_t seq_len,
                           std::int64_t vocab)
    : streams_(std::move(streams)), seq_len_(seq_len), vocab_(vocab) {
  AXONN_CHECK(seq_len > 0, "training.seq_len is ", seq_len, "; it must be positive");
  AXONN_CHECK(!streams_.empty(), "packed documents need at least one stream of tokens");
  for (std::int64_t s = 0; s < std::ssize(streams_); ++s) {
    const auto& [source, begin, end, weight, blanks] = streams_[s];
    AXONN_CHECK(source && begin >= 0 && begin <= end && end <= source->size(),
                "packed documents: tokens ", begin, " to ", end, " are not in the source");
    AXONN_CHECK(source->has_documents(), "packed documents: ", source->name(),
                " does not store where its documents begin");
    add_runs(s);
  }
  for (std::size_t run = 0; run < runs_.size(); ++run) {
    runs_[run].first = sequences_;
    const std::vector<Piece> pieces = pieces_of(run);
    std::vector<std::int64_t> inputs;
    for (const Piece& piece : pieces) inputs.push_back(piece.inputs);
    const BestFit fit = best_fit(inputs, seq_len_);
    for (std::size_t i = 0; i < pieces.size(); ++i)
      if (is_blanked(run, pieces[i])) forgets_.push_back(sequences_ + fit.sequence_of[i]);
    sequences_ += fit.sequences;
    inputs_ = std::accumulate(inputs.begin(), inputs.end(), inputs_);
  }
  if (sequences_ == 0)
    refuse(
        streams_.front().source->name(),
        ": no document has two tokens, so there is nothing to learn; give more text, or another ",
        "data.validation");
  std::ranges::sort(forgets_);
}

bool PackedStream::is_blanked(std::size_t run, const Piece& piece) const {
  const auto& blanks = stream_of(run).blanks;
  return blanks && blanks->touches(piece.begin, piece.begin + piece.inputs + 1);
}

bool PackedStream::forgets(std::int64_t n) const { return std::ranges::binary_search(forgets_, n); }

/// Cuts a stream at the first document that begins at least the length of a run after the run does.
void PackedStream::add_runs(std::int64_t stream) {
  const auto& [source, begin, end, weight, blanks] = streams_[stream];
  const std::int64_t length = std::max(kRun, 256 * seq_len_);
  std::vector<std::int64_t> begins;
  for (std::int64_t at = begin; at < end;) {
    runs_.push_back({.stream = stream, .begin = at, .first = 0});
    begins.clear();
    for (at += length; at < end && begins.empty(); at += length)
      source->document_begins(at, std::min(at + length, end), begins);
    if (begins.empty()) return;
    at = begins.front();
  }
}

std::int64_t PackedStream::end_of(std::size_t run) const {
  const bool last = run + 1 == runs_.size() || runs_[run + 1].stream != runs_[run].stream;
  return last ? stream_of(run).end : runs_[run + 1].begin;
}

std::vector<PackedStream::Piece> PackedStream::pieces_of(std::size_t run) const {
  const std::int64_t end = end_of(run);
  std::vector<std::int64_t> begins{runs_[run].begin};
  stream_of(run).source->document_begins(begins.front() + 1, end, begins);
  begins.push_back(end);
  std::vector<Piece> pieces;
  for (std::size_t d = 0; d + 1 < begins.size(); ++d)
    for (std::int64_t at = begins[d]; at + 1 < begins[d + 1]; at += seq_len_)
      pieces.push_back({.begin = at, .inputs = std::min(seq_len_, begins[d + 1] - 1 - at)});
  std::ranges::stable_sort(pieces, std::greater(), &Piece::inputs);
  return pieces;
}

std::size_t PackedStream::run_of(std::int64_t n) const {
  AXONN_CHECK(n >= 0 && n < sequences_, "sequence ", n, " of ", sequences_, " was asked for");
  return std::ranges::upper_bound(runs_, n, {}, &Run::first) - runs_.begin() - 1;
}

std::vector<PackedStream::Piece> PackedStream::pieces_in(std::int64_t n) const {
  const std::size_t run = run_of(n);
  const std::vector<Piece> all = pieces_of(run);
  std::vector<std::int64_t> inputs;
  for (const Piece& piece : all) inputs.push_back(piece.inputs);
  const BestFit fit = best_fit(inputs, seq_len_);
  std::vector<Piece> pieces;
  for (std::size_t i = 0; i < all.size(); ++i)
    if (fit.sequence_of[i] == n - runs_[run].first) pieces.push_back(all[i]);
  return pieces;
}

void PackedStream::read(std::int64_t n, Sequence& to) const {
  const TokenStream& stream = stream_of(run_of(n));
  const TokenSource& source = *stream.source;
  make_padding(seq_len_, to);
  std::vector<std::int32_t> tokens;
  std::int32_t row = 0;
  for (const Piece& piece : pieces_in(n)) {
    tokens.resize(piece.inputs + 1);
    if (vocab_ > 0)
      source.read_checked(piece.begin, tokens, vocab_);
    else
      source.read(piece.begin, tokens);
    for (std::int32_t t = 0, start = row; t < piece.inputs; ++t, ++row) {
      to.ids[row] = tokens[t];
      to.targets[row] = tokens[t + 1];
      to.positions[row] = t;
      to.starts[row] = start;
    }
    if (stream.blanks)
      blank_rows(*stream.blanks, piece.begin, row - piece.inputs, piece.inputs, to);
  }
}

std::string PackedStream::where(std::int64_t n) const {
  const std::vector<Piece> pieces = pieces_in(n);
  const TokenSource& source = *stream_of(run_of(n)).source;
  return concat(pieces.size(), pieces.size() == 1 ? " document, from " : " documents, first ",
                source.where(pieces.front().begin));
}

std::unique_ptr<const Sequences> stream_sequences(std::vector<TokenStream> streams,
                                                  std::int64_t seq_len, std::int64_t vocab,
                                                  const DocumentRule& documents) {
  if (documents.mode == DocumentMode::packed)
    return std::make_unique<PackedStream>(std::move(streams), seq_len, vocab);
  return std::make_unique<Windows>(std::move(streams), seq_len, vocab, documents);
}

}  // namespace axonn
