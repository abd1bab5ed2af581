#include "axonn/comm/pieces.h"

#include <algorithm>
#include <cstring>

#include "axonn/comm/reduce.h"

namespace axonn {

namespace {

/// Approximate bytes that one piece touches: many enough to outweigh the cost of claiming a piece
/// (under a microsecond), few enough that nobody waits long for the last piece.
constexpr std::int64_t kPieceBytes = 1 << 20;

}  // namespace

Pieces::Pieces(std::vector<Call> calls) : calls_(std::move(calls)) {
  const Call& call = calls_.front();
  const std::int64_t ranks = calls_.size();
  n_ = call.count(static_cast<int>(ranks));
  if (n_ == 0) return;
  grain_ = std::clamp<std::int64_t>(kPieceBytes / (ranks * bytes_of(call.dtype())), 4096, 65536);
  chunks_ = (n_ + grain_ - 1) / grain_;
  const bool per_rank = call.operation == Operation::all_gather ||
                        call.operation == Operation::reduce_scatter ||
                        call.operation == Operation::all_to_all;
  count_ = per_rank ? chunks_ * ranks : chunks_;
  bytes_ = 2 * ranks * call.bytes();
}

void Pieces::run(std::int64_t piece) const {
  const Range chunk = range(piece % chunks_);
  const int rank = static_cast<int>(piece / chunks_), ranks = static_cast<int>(calls_.size());
  const Call& call = calls_.front();
  switch (call.operation) {
    case Operation::all_reduce:
      return reduce_range(chunk, 0, -1);
    case Operation::reduce_scatter:
      return reduce_range(chunk, rank * n_, rank);
    case Operation::all_gather:
      for (int to = 0; to < ranks; ++to)
        copy(to, rank * n_ + chunk.begin, rank, chunk.begin, chunk.count);
      return;
    case Operation::broadcast:
      for (int to = 0; to < ranks; ++to) copy(to, chunk.begin, call.peer, chunk.begin, chunk.count);
      return;
    case Operation::all_to_all:
      return exchange(rank, chunk);
    case Operation::send:
    case Operation::recv:
      return copy(1, chunk.begin, 0, chunk.begin, chunk.count);
    case Operation::barrier:
      return;
  }
}

Pieces::Range Pieces::range(std::int64_t chunk) const {
  const std::int64_t begin = chunk * grain_;
  return {begin, std::min(grain_, n_ - begin)};
}

void Pieces::reduce_range(Range range, std::int64_t inp_begin, int only_rank) const {
  std::vector<const void*> inps;
  std::vector<void*> outs;
  for (const Call& call : calls_)
    inps.push_back(part(call.inp, inp_begin + range.begin, range.count).data);
  for (std::size_t rank = 0; rank < calls_.size(); ++rank)
    if (only_rank < 0 || only_rank == static_cast<int>(rank))
      outs.push_back(part(calls_[rank].out, range.begin, range.count).data);
  reduce(outs, inps, range.count, calls_.front().dtype(), calls_.front().op);
}

void Pieces::copy(int to, std::int64_t to_begin, int from, std::int64_t from_begin,
                  std::int64_t count) const {
  const Buffer out = part(calls_[to].out, to_begin, count),
               inp = part(calls_[from].inp, from_begin, count);
  if (out.data != inp.data) std::memcpy(out.data, inp.data, out.bytes());
}

// Exchanges both directions between `rank` and each rank that is not below it. Goes through a copy,
// because a rank's out may be its inp.
void Pieces::exchange(int rank, Range range) const {
  const std::int64_t bytes = range.count * bytes_of(calls_.front().dtype());
  std::vector<char> kept(bytes);
  for (int other = rank; other < static_cast<int>(calls_.size()); ++other) {
    const std::int64_t mine = other * n_ + range.begin, theirs = rank * n_ + range.begin;
    std::memcpy(kept.data(), part(calls_[rank].inp, mine, range.count).data, bytes);
    copy(rank, mine, other, theirs, range.count);
    std::memcpy(part(calls_[other].out, theirs, range.count).data, kept.data(), bytes);
  }
}

}  // namespace axonn
