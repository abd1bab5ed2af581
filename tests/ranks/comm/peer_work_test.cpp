#include <algorithm>
#include <limits>
#include <map>
#include <numeric>
#include <ranges>
#include <utility>
#include <vector>

#include <gmock/gmock.h>

#include "axonn/foundation/base/random.h"
#include "axonn/ranks/comm/device/device_threads.h"
#include "axonn/ranks/comm/device/peer_kernels.h"
#include "axonn/ranks/comm/pieces.h"

#include "tests/support/queued_gpu.h"

using namespace axonn;
using testing_support::run_on_cpu;

namespace {

/// One case. Bit r of `in_place` says whether rank r's call is in place; `offset` is the distance
/// of buffers from 16-byte alignment.
struct Case {
  Operation operation;
  DType dtype;
  int size;
  std::int64_t n;
  unsigned in_place = 0;
  int offset = 0;
  bool counted = false;  // an all_to_all with counts
};

/// Every rank's buffers of a collective, and its calls on them.
struct Ranks {
  explicit Ranks(const Case& of) : memory(2 * of.size) {
    const auto [operation, dtype, size, n, in_place, offset, counted] = of;
    const bool whole_out = operation == Operation::all_gather || operation == Operation::all_to_all,
               whole_inp =
                   operation == Operation::reduce_scatter || operation == Operation::all_to_all;
    const bool one = operation == Operation::all_reduce || operation == Operation::broadcast;
    for (int r = 0; r < size; ++r) {
      const Buffer out = room(r, n * (whole_out ? size : 1), dtype, offset),
                   inp = room(size + r, n * (whole_inp ? size : 1), dtype, offset);
      Call call{operation, ReduceOp::sum, out, inp, operation == Operation::broadcast ? 1 : -1, ""};
      if (one) call.inp = call.out;
      if (in_place >> r & 1 && operation == Operation::all_gather) call.inp = part(out, r * n, n);
      if (in_place >> r & 1 && operation == Operation::reduce_scatter)
        call.out = part(inp, r * n, n);
      if (in_place >> r & 1 && operation == Operation::all_to_all) call.inp = call.out;
      calls.push_back(call);
    }
    if (operation == Operation::send) {
      calls = {{Operation::send, {}, {}, calls[0].inp, 1, ""},
               {Operation::recv, {}, calls[1].out, {}, 0, ""}};
    }
  }

  Buffer room(int index, std::int64_t count, DType dtype, int offset) {
    const Random random(7, "values");
    const std::int64_t bytes = count * bytes_of(dtype);
    auto& bytes_here = memory[index];
    bytes_here.resize((bytes + offset) / 16 + 2);
    char* data = reinterpret_cast<char*>(bytes_here.data()) + offset;
    for (std::int64_t i = 0; i < bytes; ++i)  // & 0x3f: no floating-point value is NaN or infinite
      data[i] = static_cast<char>(random.bits(index * 100'003 + i)[0] & 0x3f);
    return {data, count, dtype};
  }

  struct alignas(16) Sixteen {
    char bytes[16];
    bool operator==(const Sixteen& other) const { return std::ranges::equal(bytes, other.bytes); }
  };
  std::vector<std::vector<Sixteen>> memory;
  std::vector<Call> calls;
};

/// Gives the all_to_all of ranks other counts: of a rank for another, 0 to n elements.
void give_counts(std::vector<Call>& calls, std::int64_t n) {
  const auto size = static_cast<int>(calls.size());
  const auto count = [&](int from, int to) { return n * ((3 * from + 5 * to) % 4) / 3; };
  for (int r = 0; r < size; ++r) {
    Call& call = calls[r];
    for (int other = 0; other < size; ++other) {
      call.to.push_back(count(r, other));
      call.from.push_back(count(other, r));
    }
    call.inp.count = std::reduce(call.to.begin(), call.to.end());
    call.out.count = std::reduce(call.from.begin(), call.from.end());
  }
}

/// A byte that notes from where it is read.
struct Noted {
  char value;
  Noted& operator=(const Noted& from) {
    sources.push_back(&from);
    value = from.value;
    return *this;
  }
  static inline std::vector<const void*> sources;
};

/// The ranks whose memory a thread of rank `rank` reads, in its order, for one element of each.
std::vector<int> ranks_read(const Ranks& ranks, int rank) {
  Noted::sources.clear();
  const PeerWork work = part_of(ranks.calls, rank);
  peer::Copy<Noted>{work}(0, std::numeric_limits<std::int64_t>::max() / 2);
  std::vector<int> read;
  for (const void* source : Noted::sources)
    for (int r = 0; r < std::ssize(ranks.calls); ++r) {
      const Buffer& inp = ranks.calls[r].inp;
      const auto* const first = static_cast<const char*>(inp.data);
      if (source >= first && source < first + inp.bytes()) read.push_back(r);
    }
  return read;
}

/// How many ranks read the memory of one at the same time at most, if all work at the same pace.
std::int64_t most_readers(const Case& of) {
  const Ranks ranks(of);
  std::map<std::pair<std::size_t, int>, std::int64_t> readers;  // by step and rank
  for (int rank = 0; rank < of.size; ++rank) {
    const std::vector<int> read = ranks_read(ranks, rank);
    for (std::size_t step = 0; step < read.size(); ++step) ++readers[{step, read[step]}];
  }
  return std::ranges::max(readers | std::views::values);
}

constexpr DType kTypes[] = {DType::f32, DType::bf16, DType::f64, DType::i32, DType::i64, DType::u8};

void expect_as_on_the_host(const Case& of) {
  const auto made = [&] {
    Ranks ranks(of);
    if (of.counted) give_counts(ranks.calls, of.n);
    return ranks;
  };
  Ranks host = made(), gpus = made();
  const Pieces pieces(host.calls);
  for (std::int64_t i = 0; i < pieces.count(); ++i) pieces.run(i);
  std::vector<int> order(gpus.calls.size());
  std::iota(order.begin(), order.end(), 0);
  do {  // the ranks' parts in every order for up to 3 ranks, in one order for more
    for (const int rank : order) run_on_cpu(part_of(gpus.calls, rank));
    EXPECT_TRUE(gpus.memory == host.memory)
        << name_of(of.operation) << " of " << of.n << ' ' << name_of(of.dtype) << " on " << of.size
        << " ranks, in place on (bits) " << of.in_place << ", misaligned by " << of.offset;
    Ranks again = made();
    std::swap(gpus, again);
  } while (order.size() < 4 && std::ranges::next_permutation(order).found);
}

}  // namespace

TEST(PeerWork, GivesTheSameBitsAsTheHostTransportInEveryOrderOfItsParts) {
  for (const Operation operation :
       {Operation::all_reduce, Operation::all_gather, Operation::reduce_scatter,
        Operation::broadcast, Operation::all_to_all, Operation::send})
    for (const DType dtype : kTypes)
      for (const int size : {2, 3, 7, 8, 21})
        for (const std::int64_t n : {0, 1, 5, 64, 257})
          for (const unsigned in_place : {0u, 0xffu, 0x5u}) {
            if (dtype == DType::u8 &&
                (operation == Operation::all_reduce || operation == Operation::reduce_scatter))
              continue;
            for (const int units_off : {0, 1})
              expect_as_on_the_host({operation, dtype, size, n, in_place,
                                     units_off * static_cast<int>(bytes_of(dtype))});
          }
}

TEST(PeerWork, ExchangesDifferentCountsAsTheHostTransportDoes) {
  for (const DType dtype : kTypes)
    for (const int size : {2, 3, 7, 8, kMostPeers})
      for (const std::int64_t n : {0, 1, 5, 48, 257})
        for (const int units_off : {0, 1})
          expect_as_on_the_host({.operation = Operation::all_to_all,
                                 .dtype = dtype,
                                 .size = size,
                                 .n = n,
                                 .offset = units_off * static_cast<int>(bytes_of(dtype)),
                                 .counted = true});
}

TEST(PeerWork, RanksReadTheMemoryOfDifferentRanksAtATime) {
  for (const int size : {2, 3, 8, kMostPeers}) {
    SCOPED_TRACE(size);
    EXPECT_EQ(most_readers({Operation::all_gather, DType::u8, size, 5}), 1);
    EXPECT_EQ(most_readers({Operation::all_gather, DType::u8, size, 5, 0xffffffff}), 1);
    EXPECT_LE(most_readers({Operation::all_to_all, DType::u8, size, 5}), 2) << "swaps";
  }
}

TEST(PeerWork, FitsIntoItsArraysForTheLargestGroup) {
  for (const Operation operation : {Operation::all_reduce, Operation::all_gather,
                                    Operation::reduce_scatter, Operation::all_to_all}) {
    Ranks ranks({operation, DType::f32, kMostPeers, 3});
    for (int rank = 0; rank < kMostPeers; ++rank) {
      const PeerWork work = part_of(ranks.calls, rank);
      EXPECT_LE(work.outs_count, std::ssize(work.outs));
      EXPECT_LE(work.inps_count, std::ssize(work.inps));
    }
  }
}

TEST(PeerWork, PropagatesNaNThroughMaxAndMinAsTheHostDoes) {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  for (const ReduceOp op : {ReduceOp::max, ReduceOp::min}) {
    std::vector<float> a{1, nan, 3}, b{2, 5, nan};
    std::vector<Call> calls;
    for (auto* values : {&a, &b}) {
      const Buffer data = buffer(std::span(*values));
      calls.push_back({Operation::all_reduce, op, data, data, -1, ""});
    }
    for (const int rank : {1, 0}) run_on_cpu(part_of(calls, rank));
    EXPECT_EQ(a[0], op == ReduceOp::max ? 2 : 1);
    EXPECT_TRUE(a[1] != a[1] && a[2] != a[2] && b[1] != b[1] && b[2] != b[2]);
  }
}
