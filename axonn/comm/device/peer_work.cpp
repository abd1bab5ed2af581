#include "axonn/comm/device/peer_work.h"

#include <algorithm>

namespace axonn {

namespace {

/// Adds a pair of arrays to a copy or a swap.
void add(PeerWork& work, const Buffer& out, const Buffer& inp) {
  if (out.data == inp.data && work.kind == PeerWork::Kind::copy) return;
  work.outs[work.outs_count++] = out.data;
  work.inps[work.inps_count++] = inp.data;
}

PeerWork copy_of_bytes(std::int64_t bytes, PeerWork::Kind kind = PeerWork::Kind::copy) {
  return {.kind = kind, .count = bytes};
}

/// A reduction of elements [begin, begin + count) of every rank's inp. The caller adds the outs.
PeerWork reduce_of(std::span<const Call> calls, std::int64_t begin, std::int64_t count) {
  PeerWork work{
      .kind = PeerWork::Kind::reduce, .dtype = calls[0].dtype(), .op = calls[0].op, .count = count};
  for (const Call& call : calls) work.inps[work.inps_count++] = part(call.inp, begin, count).data;
  return work;
}

/// An all_reduce: each rank reduces one part and writes it to all ranks.
PeerWork all_reduce(std::span<const Call> calls, int rank) {
  const std::int64_t n = calls[0].out.count, size = std::ssize(calls);
  // Parts are multiples of 16 bytes, so they are aligned if the buffers are.
  const std::int64_t unit = 16 / bytes_of(calls[0].dtype()),
                     each = (n + size * unit - 1) / (size * unit) * unit,
                     begin = std::min(n, rank * each), count = std::min(n - begin, each);
  PeerWork work = reduce_of(calls, begin, count);
  for (const Call& call : calls) work.outs[work.outs_count++] = part(call.out, begin, count).data;
  return work;
}

/// An all_to_all: for each pair of ranks, one of them swaps both pieces, because out and inp may be
/// the same buffer.
PeerWork all_to_all(std::span<const Call> calls, int rank) {
  const auto size = static_cast<int>(calls.size());
  const std::int64_t n = calls[0].out.count / size;
  PeerWork work = copy_of_bytes(n * bytes_of(calls[0].dtype()), PeerWork::Kind::swap);
  for (int other = 0; other < size; ++other) {
    const bool takes_it = (rank + other) % 2 == 1 ? rank < other : rank >= other;
    if (!takes_it) continue;
    add(work, part(calls[rank].out, other * n, n), part(calls[other].inp, rank * n, n));
    add(work, part(calls[other].out, rank * n, n), part(calls[rank].inp, other * n, n));
  }
  return work;
}

}  // namespace

PeerWork part_of(std::span<const Call> calls, int rank) {
  const Call& mine = calls[rank];
  const auto size = static_cast<int>(calls.size());
  switch (mine.operation) {
    case Operation::all_reduce:
      return all_reduce(calls, rank);
    case Operation::reduce_scatter: {
      PeerWork work = reduce_of(calls, rank * mine.out.count, mine.out.count);
      work.outs[work.outs_count++] = mine.out.data;
      return work;
    }
    case Operation::all_gather: {
      PeerWork work = copy_of_bytes(mine.inp.bytes());
      for (int r = 0; r < size; ++r)
        add(work, part(mine.out, r * mine.inp.count, mine.inp.count), calls[r].inp);
      return work;
    }
    case Operation::broadcast: {
      PeerWork work = copy_of_bytes(mine.out.bytes());
      add(work, mine.out, calls[mine.peer].inp);
      return work;
    }
    case Operation::all_to_all:
      return all_to_all(calls, rank);
    case Operation::recv: {
      PeerWork work = copy_of_bytes(mine.out.bytes());
      add(work, mine.out, calls[0].inp);
      return work;
    }
    case Operation::send:
    case Operation::barrier:
      return {};
  }
  return {};
}

}  // namespace axonn
