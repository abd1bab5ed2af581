#include "axonn/ranks/comm/pieces.h"

#include <algorithm>

#include "axonn/ranks/comm/reduce.h"

namespace axonn {

namespace {

/// Approximate bytes that one piece touches: many enough to outweigh the cost of claiming a piece
/// (under a microsecond), few enough that nobody waits long for the last piece.
constexpr std::int64_t kPieceBytes = 1 << 20;

/// The elements of the largest piece that one rank gives to another.
std::int64_t largest_piece(const std::vector<Call>& calls) {
  std::int64_t most = 0;
  for (const Call& call : calls) most = std::max(most, std::ranges::max(call.to));
  return most;
}

}  // namespace

Pieces::Pieces(std::vector<Call> calls) : calls_(std::move(calls)) {
  const Call& call = calls_.front();
  const std::int64_t ranks = calls_.size();
  n_ = call.counted() ? largest_piece(calls_) : call.count(static_cast<int>(ranks));
  if (n_ == 0) return;
  grain_ = std::clamp<std::int64_t>(kPieceBytes / (ranks * bytes_of(call.dtype())), 4096, 65536);
  chunks_ = (n_ + grain_ - 1) / grain_;
  const bool per_rank = call.operation == Operation::all_gather ||
                        call.operation == Operation::reduce_scatter ||
                        call.operation == Operation::all_to_all;
  count_ = per_rank ? chunks_ * ranks : chunks_;
  for (const Call& each : calls_) bytes_ += 2 * each.bytes();
}

void Pieces::run(std::int64_t piece) const {
  const std::int64_t begin = piece % chunks_ * grain_, count = std::min(grain_, n_ - begin);
  const int rank = static_cast<int>(piece / chunks_);
  const Call& call = calls_.front();
  const auto send_to = [&](const Call& to, std::int64_t at, const Call& from) {
    copy(part(to.out, at, count), part(from.inp, begin, count));
  };
  switch (call.operation) {
    case Operation::all_reduce:
      return reduce_to(calls_, begin, begin, count);
    case Operation::reduce_scatter:
      return reduce_to({&calls_[rank], 1}, begin, rank * n_ + begin, count);
    case Operation::all_gather:
      for (const Call& to : calls_) send_to(to, rank * n_ + begin, calls_[rank]);
      return;
    case Operation::broadcast:
      for (const Call& to : calls_) send_to(to, begin, calls_[call.peer]);
      return;
    case Operation::all_to_all:
      return exchange(rank, begin, count);
    case Operation::send:
    case Operation::recv:
      return send_to(calls_[1], begin, calls_[0]);
    case Operation::barrier:
      return;
  }
}

// Reduces `count` elements of all inps, from inp_begin on, and writes the result to every
// receiver's out, from `begin` on.
void Pieces::reduce_to(std::span<const Call> receivers, std::int64_t begin, std::int64_t inp_begin,
                       std::int64_t count) const {
  std::vector<const void*> inps;
  std::vector<void*> outs;
  for (const Call& call : calls_) inps.push_back(part(call.inp, inp_begin, count).data);
  for (const Call& call : receivers) outs.push_back(part(call.out, begin, count).data);
  reduce(outs, inps, count, calls_.front().dtype(), calls_.front().op);
}

// Exchanges both directions between `rank` and each rank that is not below it. Goes through a copy,
// because a rank's out may be its inp.
void Pieces::exchange(int rank, std::int64_t begin, std::int64_t count) const {
  const auto size = static_cast<int>(calls_.size());
  const auto chunk = [&](const Buffer& piece) {
    const std::int64_t first = std::min(begin, piece.count);
    return part(piece, first, std::min(count, piece.count - first));
  };
  std::vector<char> kept(count * bytes_of(calls_.front().dtype()));
  for (int other = rank; other < size; ++other) {
    const Call &here = calls_[rank], &there = calls_[other];
    const Buffer given = chunk(here.piece_to(other, size)),
                 copied{kept.data(), given.count, given.dtype};
    copy(copied, given);
    copy(chunk(here.piece_from(other, size)), chunk(there.piece_to(rank, size)));
    copy(chunk(there.piece_from(rank, size)), copied);
  }
}

}  // namespace axonn
