#include "axonn/ranks/comm/mpi/mpi_algorithms.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <deque>
#include <utility>

#include "axonn/foundation/base/clock.h"
#include "axonn/ranks/comm/reduce.h"

namespace axonn {

namespace {

/// How long a failed message waits for a mismatch of calls to be found, which would explain it. The
/// mismatch may be between two other ranks.
constexpr double kExplainSeconds = 1;

constexpr int kHeaderPhase = kPhases - 1;

/// Maximum staging bytes of a segment, and maximum bytes of one of its messages. Messages are large
/// compared to their latency, but most sums still have several segments, so that one is always in
/// flight.
constexpr std::int64_t kSegmentBytes = 4 << 20, kSegmentMessage = 256 << 10;
/// Minimum elements of a segment's message: fewer cost more to start than to send.
constexpr std::int64_t kMinSegment = 4096;

/// The method of a call; all ranks of the group get the same.
CollectiveMethod method_of(const MpiGroup& group, const Call& call) {
  const DType dtype = call.dtype();
  const auto widening =
      static_cast<double>(bytes_of(sum_type(dtype))) / static_cast<double>(bytes_of(dtype));
  if (call.bytes() == 0) return CollectiveMethod::flat;
  return group.policy.choose({call.operation, static_cast<double>(call.bytes()), widening},
                             shape_of(group.hosts, group.size()));
}

std::string_view name_of(CollectiveMethod method) {
  constexpr std::string_view kNames[] = {"flat", "two-level", "recursive"};
  return kNames[static_cast<int>(method)];
}

}  // namespace

std::int64_t segment_elements(int size, DType dtype) {
  const std::int64_t message = std::min(kSegmentBytes / size, kSegmentMessage);
  return std::max(message / bytes_of(dtype), kMinSegment);
}

MpiAlgorithm::MpiAlgorithm(MpiContext& context, const MpiGroup& group, const Call& call,
                           std::int64_t sequence)
    : context_(context),
      group_(group),
      call_(call),
      sequence_(sequence),
      tag_(group.id * kTagsPerGroup +
           kPhases * static_cast<int>(call.is_pair() ? kSlots : sequence % kSlots)),
      mine_{call.operation,         call.op, call.out, call.inp, call.peer,
            method_of(group, call), -1,      {}} {
  const int last = call.counted() ? size() - 1 : 1;
  for (int i = 1; i <= last; ++i) {
    if (call.operation != Operation::recv)
      headers_to_.push_back({call.is_pair() ? call.peer : after(i)});
    if (call.operation != Operation::send)
      headers_from_.push_back({call.is_pair() ? call.peer : before(i)});
  }
}

void MpiAlgorithm::begin() {
  const auto bytes_of_header = [](HeaderPeer& peer) {
    return Buffer{&peer.header, sizeof peer.header, DType::u8};
  };
  for (HeaderPeer& peer : headers_from_)
    recv(peer.messages, bytes_of_header(peer), peer.rank, kHeaderPhase);
  // In a broadcast, no message comes back from the next rank.
  const bool one_way = call_.operation == Operation::broadcast;
  for (HeaderPeer& peer : headers_to_) {
    peer.header = mine_;
    call_.label.copy(peer.header.label, sizeof peer.header.label - 1);
    if (call_.counted()) peer.header.gives = call_.to[peer.rank];
    send(peer.messages, bytes_of_header(peer), peer.rank, kHeaderPhase,
         one_way ? Transfer::send_confirmed : Transfer::send);
  }
  start();
}

bool MpiAlgorithm::advance() {
  const bool header_done = check_headers();
  if (failure_.empty()) {
    try {
      data_done_ = data_done_ || step();
      return data_done_ && header_done;
    } catch (const AlteredMessage& error) {
      throw Error(concat("silent corruption: rank ", group_.members[rank()], ": ",
                         describe(call_, sequence_, group_.name), ": ", error.what(),
                         "; faulty memory or a faulty network is likely"));
    } catch (const Error& error) {
      failure_ = error.what();
      failed_at_ = now_seconds();
    }
  }
  AXONN_CHECK(now_seconds() < failed_at_ + kExplainSeconds, describe(call_, sequence_, group_.name),
              ": ", failure_, "; all ranks of a group must make the same calls in the same order");
  return false;
}

int MpiAlgorithm::awaited() const {
  int awaited = awaits();
  for (const auto* peers : {&headers_from_, &headers_to_})
    for (auto peer = peers->begin(); awaited < 0 && peer != peers->end(); ++peer)
      awaited = peer->messages.awaited();
  return awaited;
}

bool MpiAlgorithm::check_headers() {
  bool done = true;
  for (HeaderPeer& peer : headers_from_) {
    if (!peer.messages.advance(context_)) {
      done = false;
    } else if (!std::exchange(peer.checked, true)) {
      check_header(peer);
    }
  }
  for (HeaderPeer& peer : headers_to_) done = peer.messages.advance(context_) && done;
  return done;
}

void MpiAlgorithm::check_header(const HeaderPeer& sender) const {
  const Header& got = sender.header;
  Call theirs{got.operation, got.op, got.out, got.inp, got.peer, got.label};
  if (got.gives >= 0) theirs.to = {got.gives};
  const int here = group_.members[rank()], there = group_.members[sender.rank];
  AXONN_CHECK(agree(call_, theirs), describe(call_, sequence_, group_.name), " on rank ", here,
              " does not match ", describe(theirs), " on rank ", there,
              "; all ranks of a group must make the same calls in the same order");
  AXONN_CHECK(mine_.method == got.method, describe(call_, sequence_, group_.name), ": rank ", here,
              " uses the method ", name_of(mine_.method), ", rank ", there, ' ',
              name_of(got.method),
              "; parallelism.collectives and the rates of links must be the same on all ranks");
  if (!call_.counted()) return;
  const PairCounts counts{there, here, got.gives, call_.from[sender.rank]};
  AXONN_CHECK(counts.gives == counts.expects, describe(call_, sequence_, group_.name), ": ",
              describe(counts));
}

namespace {

/// all_gather, all_to_all, send and recv: one exchange, directly between the callers' buffers.
class Exchange final : public MpiAlgorithm {
 public:
  using MpiAlgorithm::MpiAlgorithm;

 protected:
  void start() override {
    if (call_.operation == Operation::send)
      return send(messages_, call_.inp, call_.peer, 0, Transfer::send_confirmed);
    if (call_.operation == Operation::recv) return recv(messages_, call_.out, call_.peer, 0);
    if (call_.operation == Operation::all_gather) {
      const std::int64_t n = call_.count(size());
      return exchange_pieces([&](int from) { return part(call_.out, from * n, n); },
                             [&](int) { return call_.inp; });
    }
    Call from = call_;
    if (from.inp.count > 0 && from.inp.data == from.out.data) {
      copy_ = context_.staging.take(from.inp.bytes());
      std::memcpy(copy_.get(), from.inp.data, from.inp.bytes());
      from.inp.data = copy_.get();
    }
    exchange_pieces([&](int other) { return from.piece_from(other, size()); },
                    [&](int other) { return from.piece_to(other, size()); });
  }

 private:
  template <typename Theirs, typename Mine>
  void exchange_pieces(const Theirs& theirs, const Mine& mine) {
    copy(theirs(rank()), mine(rank()));
    exchange(messages_, 0, theirs, mine);
  }

  StagingPool::Block copy_;  // a copy of inp, for an all_to_all in place
};

/// Every rank's value of a buffer, as received.
struct StagedValues {
  StagingPool::Block block;
  Buffer like;

  Buffer of(int rank) const { return {block.get() + rank * like.bytes(), like.count, like.dtype}; }

  /// out = the sum (max, min) over ranks, with `like` as the value of rank `own`.
  void reduce_to(void* out, int own, int size, ReduceOp op) const {
    std::vector<const void*> inps(size);
    for (int r = 0; r < size; ++r) inps[r] = of(r).data;
    inps[own] = like.data;
    reduce(std::array{out}, inps, like.count, like.dtype, op);
  }
};

/// A small all_reduce: every rank receives the data of all ranks and sums them.
class SmallAllReduce final : public MpiAlgorithm {
 public:
  using MpiAlgorithm::MpiAlgorithm;

 protected:
  void start() override {
    staged_ = {context_.staging.take(size() * call_.inp.bytes()), call_.inp};
    exchange(
        messages_, 0, [&](int from) { return staged_.of(from); }, [&](int) { return call_.inp; });
  }

  bool step() override {
    if (!messages_.advance(context_)) return false;
    staged_.reduce_to(call_.out.data, rank(), size(), call_.op);
    return true;
  }

 private:
  StagedValues staged_;
};

/// reduce_scatter and large all_reduce. Rank r sums part r of the data in segments, so that staging
/// memory stays small and the sum of a segment overlaps the messages of the next. An all_reduce
/// then gathers each summed segment.
class SegmentedReduce final : public MpiAlgorithm {
 public:
  using MpiAlgorithm::MpiAlgorithm;

 protected:
  void start() override {
    part_ = (call_.inp.count + size() - 1) / size();
    step_ = segment_elements(size(), call_.dtype());
    segments_ = (part_ + step_ - 1) / step_;
  }

  bool step() override {
    while (begun_ < segments_ && in_flight_.size() < kSegmentsInFlight) scatter(begun_++);
    bool may_gather = true;  // segments gather in order, so that messages with the same tag match
    for (Segment& segment : in_flight_) {
      if (advance_segment(segment, may_gather)) segment.index = -1;
      may_gather = segment.index < 0 || segment.gathering;
      if (!may_gather) break;
    }
    std::erase_if(in_flight_, [](const Segment& segment) { return segment.index < 0; });
    return in_flight_.empty() && begun_ == segments_;
  }

  int awaits() const override {
    for (const Segment& segment : in_flight_)
      if (const int awaited = segment.messages.awaited(); awaited >= 0) return awaited;
    return -1;
  }

 private:
  struct Segment {
    std::int64_t index = 0;
    bool gathering = false;  // its sum is complete
    Messages messages;
    StagedValues staged;
  };

  /// Segment `segment` of the part of rank `part_of`. The last parts of an all_reduce may be
  /// shorter.
  Buffer slice(int part_of, std::int64_t segment) const {
    const std::int64_t total = call_.inp.count, first = part_of * part_,
                       begin = std::min(total, first + segment * step_),
                       end = std::min({total, first + part_, first + (segment + 1) * step_});
    return part(call_.inp, begin, std::max<std::int64_t>(0, end - begin));
  }

  void scatter(std::int64_t index) {
    const Buffer mine = slice(rank(), index);
    Segment& segment = in_flight_.emplace_back();
    segment.index = index;
    segment.staged = {context_.staging.take(size() * mine.bytes()), mine};
    exchange(
        segment.messages, 0, [&](int from) { return segment.staged.of(from); },
        [&](int to) { return slice(to, index); });
  }

  bool advance_segment(Segment& segment, bool may_gather) {
    if (!may_gather || !segment.messages.advance(context_)) return false;
    if (segment.gathering) return true;
    const bool gathers = call_.operation == Operation::all_reduce;
    const Buffer& mine = segment.staged.like;
    const Buffer out = gathers ? mine : part(call_.out, segment.index * step_, mine.count);
    segment.staged.reduce_to(out.data, rank(), size(), call_.op);
    segment.staged.block.reset();
    if (!gathers) return true;
    // All messages of the scatter are done, so other ranks' sums may overwrite what was sent.
    segment.gathering = true;
    exchange(
        segment.messages, 1, [&](int from) { return slice(from, segment.index); },
        [&](int) { return mine; });
    return segment.messages.advance(context_);
  }

  std::int64_t part_ = 0;      // elements of a rank's part
  std::int64_t step_ = 0;      // elements of a segment of a part
  std::int64_t segments_ = 0;  // segments of a part
  std::int64_t begun_ = 0;
  std::deque<Segment> in_flight_;
};

/// A small broadcast: the root sends all data to all ranks. A large one: the root sends each rank
/// its part, and the ranks then gather the parts from each other.
class Broadcast final : public MpiAlgorithm {
 public:
  using MpiAlgorithm::MpiAlgorithm;

 protected:
  void start() override {
    const bool small = call_.out.bytes() <= kSmallBroadcast, root = rank() == call_.peer;
    dealt_ = small || root;
    if (!root) return recv(messages_, small ? call_.out : part_of(rank()), call_.peer, 0);
    for (int i = 1; i < size(); ++i) {
      const int to = after(i);
      send(messages_, small ? call_.out : part_of(to), to, 0, Transfer::send_confirmed);
      if (!small) send(rest_, part_of(rank()), to, 1);
    }
  }

  bool step() override {
    if (!messages_.advance(context_)) return false;
    if (!dealt_) {
      dealt_ = true;
      for (int i = 1; i < size(); ++i) {
        const int other = after(i);
        recv(rest_, part_of(other), other, 1);
        if (other != call_.peer) send(rest_, part_of(rank()), other, 1);
      }
    }
    return rest_.advance(context_);
  }

  int awaits() const override {
    const int awaited = messages_.awaited();
    return awaited >= 0 ? awaited : rest_.awaited();
  }

 private:
  Buffer part_of(int rank) const {
    const std::int64_t n = call_.out.count, each = (n + size() - 1) / size(),
                       begin = std::min(n, rank * each), end = std::min(n, begin + each);
    return part(call_.out, begin, end - begin);
  }

  bool dealt_ = false;
  Messages rest_;
};

/// In round k every rank receives a message from the rank 2^k before it. After log2(size) rounds it
/// has heard, directly or indirectly, from all ranks.
class Barrier final : public MpiAlgorithm {
 public:
  using MpiAlgorithm::MpiAlgorithm;

 protected:
  void start() override {
    recv(messages_, Buffer{}, before(distance_), 0);
    send(messages_, Buffer{}, after(distance_), 0);
  }

  bool step() override {
    while (messages_.advance(context_)) {
      distance_ *= 2;
      if (distance_ >= size()) return true;
      messages_ = {};
      start();
    }
    return false;
  }

 private:
  int distance_ = 1;
};

}  // namespace

std::unique_ptr<MpiAlgorithm> MpiAlgorithm::create(MpiContext& context, const MpiGroup& group,
                                                   const Call& call, std::int64_t sequence) {
  const CollectiveMethod method = method_of(group, call);
  if (method == CollectiveMethod::two_level) return make_two_level(context, group, call, sequence);
  if (method == CollectiveMethod::recursive) return make_recursive(context, group, call, sequence);
  switch (call.operation) {
    case Operation::all_reduce:
      if (call.out.bytes() <= kSmallAllReduce)
        return std::make_unique<SmallAllReduce>(context, group, call, sequence);
      return std::make_unique<SegmentedReduce>(context, group, call, sequence);
    case Operation::reduce_scatter:
      return std::make_unique<SegmentedReduce>(context, group, call, sequence);
    case Operation::broadcast:
      return std::make_unique<Broadcast>(context, group, call, sequence);
    case Operation::barrier:
      return std::make_unique<Barrier>(context, group, call, sequence);
    case Operation::all_gather:
    case Operation::all_to_all:
    case Operation::send:
    case Operation::recv:
      break;
  }
  return std::make_unique<Exchange>(context, group, call, sequence);
}

}  // namespace axonn
