#include "axonn/comm/mpi/mpi_collectives.h"

#include <algorithm>
#include <array>
#include <cstring>

#include "axonn/comm/reduce.h"

namespace axonn {

namespace {

/// Maximum staging bytes of a segment, and maximum bytes of one of its messages. Messages are large
/// compared to their latency, but most sums still have several segments, so that one is always in
/// flight.
constexpr std::int64_t kSegmentBytes = 4 << 20, kSegmentMessage = 256 << 10;
/// Minimum elements of a segment's message: fewer cost more to start than to send.
constexpr std::int64_t kMinSegment = 4096;
/// One segment is summed while the others keep the network busy until the next poll.
constexpr std::size_t kSegmentsInFlight = 4;

void copy(Buffer to, Buffer from) {
  if (to.data != from.data && to.count > 0) std::memcpy(to.data, from.data, to.bytes());
}

}  // namespace

std::unique_ptr<MpiAlgorithm> MpiAlgorithm::create(MpiContext& context, const MpiGroup& group,
                                                   const Call& call, std::int64_t sequence) {
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

void Exchange::start() {
  if (call_.operation == Operation::send) return send(messages_, call_.inp, call_.peer, 0);
  if (call_.operation == Operation::recv) return recv(messages_, call_.out, call_.peer, 0);
  if (call_.operation == Operation::all_to_all) return start_all_to_all();
  const std::int64_t n = call_.inp.count;
  copy(part(call_.out, rank() * n, n), call_.inp);
  for (int i = 1; i < size(); ++i) {
    const int from = (rank() + size() - i) % size();
    recv(messages_, part(call_.out, from * n, n), from, 0);
  }
  for (int i = 1; i < size(); ++i) send(messages_, call_.inp, (rank() + i) % size(), 0);
}

void Exchange::start_all_to_all() {
  Buffer inp = call_.inp;
  if (inp.data == call_.out.data) {
    copy_ = context_.staging.take(inp.bytes());
    std::memcpy(copy_.get(), inp.data, inp.bytes());
    inp.data = copy_.get();
  }
  const std::int64_t n = inp.count / size();
  copy(part(call_.out, rank() * n, n), part(inp, rank() * n, n));
  for (int i = 1; i < size(); ++i) {
    const int from = (rank() + size() - i) % size();
    recv(messages_, part(call_.out, from * n, n), from, 0);
  }
  for (int i = 1; i < size(); ++i) {
    const int to = (rank() + i) % size();
    send(messages_, part(inp, to * n, n), to, 0);
  }
}

bool Exchange::step() { return messages_.advance(context_); }

void SmallAllReduce::start() {
  const std::int64_t bytes = call_.out.bytes();
  staging_ = context_.staging.take(size() * bytes);
  for (int i = 1; i < size(); ++i) {
    const int other = (rank() + i) % size();
    Buffer theirs = call_.out;
    theirs.data = staging_.get() + other * bytes;
    recv(messages_, theirs, other, 0);
    send(messages_, call_.inp, other, 0);
  }
}

bool SmallAllReduce::step() {
  if (!messages_.advance(context_)) return false;
  std::vector<const void*> inps(size());
  for (int r = 0; r < size(); ++r) inps[r] = staging_.get() + r * call_.out.bytes();
  inps[rank()] = call_.inp.data;
  reduce(std::array{call_.out.data}, inps, call_.out.count, call_.dtype(), call_.op);
  return true;
}

SegmentedReduce::SegmentedReduce(MpiContext& context, const MpiGroup& group, const Call& call,
                                 std::int64_t sequence)
    : MpiAlgorithm(context, group, call, sequence),
      gathers_(call.operation == Operation::all_reduce) {
  part_ = (call.inp.count + size() - 1) / size();
  const std::int64_t message = std::min(kSegmentBytes / size(), kSegmentMessage);
  step_ = std::max(message / bytes_of(call.dtype()), kMinSegment);
  segments_ = (part_ + step_ - 1) / step_;
}

// Segment `segment` of the part of rank `part_of`. The last parts of an all_reduce may be shorter.
Buffer SegmentedReduce::slice(int part_of, std::int64_t segment) const {
  const std::int64_t total = call_.inp.count, first = part_of * part_,
                     begin = std::min(total, first + segment * step_),
                     end = std::min({total, first + part_, first + (segment + 1) * step_});
  return part(call_.inp, begin, std::max<std::int64_t>(0, end - begin));
}

void SegmentedReduce::start() {}

bool SegmentedReduce::step() {
  while (begun_ < segments_ && in_flight_.size() < kSegmentsInFlight) {
    in_flight_.push_back({begun_++, false, {}, {}});
    scatter(in_flight_.back());
  }
  bool may_gather = true;  // segments gather in order, so that messages with the same tag match
  for (Segment& segment : in_flight_) {
    if (advance_segment(segment, may_gather)) segment.index = -1;
    may_gather = segment.index < 0 || segment.gathering;
    if (!may_gather) break;
  }
  std::erase_if(in_flight_, [](const Segment& segment) { return segment.index < 0; });
  return in_flight_.empty() && begun_ == segments_;
}

bool SegmentedReduce::advance_segment(Segment& segment, bool may_gather) {
  if (!may_gather || !segment.messages.advance(context_)) return false;
  if (segment.gathering) return true;
  sum(segment);
  if (!gathers_) return true;
  gather(segment);
  return segment.messages.advance(context_);
}

void SegmentedReduce::scatter(Segment& segment) {
  const Buffer mine = slice(rank(), segment.index);
  segment.staging = context_.staging.take(size() * mine.bytes());
  for (int i = 1; i < size(); ++i) {
    const int from = (rank() + size() - i) % size();
    Buffer theirs = mine;
    theirs.data = segment.staging.get() + from * mine.bytes();
    recv(segment.messages, theirs, from, 0);
  }
  for (int i = 1; i < size(); ++i) {
    const int to = (rank() + i) % size();
    send(segment.messages, slice(to, segment.index), to, 0);
  }
}

void SegmentedReduce::sum(Segment& segment) {
  const Buffer mine = slice(rank(), segment.index);
  const Buffer out = gathers_ ? mine : part(call_.out, segment.index * step_, mine.count);
  std::vector<const void*> inps(size());
  for (int r = 0; r < size(); ++r) inps[r] = segment.staging.get() + r * mine.bytes();
  inps[rank()] = mine.data;
  reduce(std::array{out.data}, inps, mine.count, call_.dtype(), call_.op);
  segment.staging.reset();
}

// All messages of the scatter are done, so the sums of other ranks may overwrite what was sent.
void SegmentedReduce::gather(Segment& segment) {
  segment.gathering = true;
  for (int i = 1; i < size(); ++i) {
    const int from = (rank() + size() - i) % size();
    recv(segment.messages, slice(from, segment.index), from, 1);
  }
  for (int i = 1; i < size(); ++i)
    send(segment.messages, slice(rank(), segment.index), (rank() + i) % size(), 1);
}

Buffer Broadcast::part_of(int rank) const {
  const std::int64_t n = call_.out.count, each = (n + size() - 1) / size(),
                     begin = std::min(n, rank * each), end = std::min(n, begin + each);
  return part(call_.out, begin, end - begin);
}

void Broadcast::start() {
  const bool small = call_.out.bytes() <= kSmallBroadcast, root = rank() == call_.peer;
  dealt_ = small || root;
  if (!root) return recv(first_, small ? call_.out : part_of(rank()), call_.peer, 0);
  for (int i = 1; i < size(); ++i) {
    const int to = (rank() + i) % size();
    send(first_, small ? call_.out : part_of(to), to, 0);
    if (!small) send(rest_, part_of(rank()), to, 1);
  }
}

bool Broadcast::step() {
  if (!first_.advance(context_)) return false;
  if (!dealt_) {
    dealt_ = true;
    for (int i = 1; i < size(); ++i) {
      const int other = (rank() + i) % size();
      recv(rest_, part_of(other), other, 1);
      if (other != call_.peer) send(rest_, part_of(rank()), other, 1);
    }
  }
  return rest_.advance(context_);
}

void Barrier::start() {
  const Buffer nothing;
  recv(messages_, nothing, (rank() + size() - distance_) % size(), 0);
  send(messages_, nothing, (rank() + distance_) % size(), 0);
}

bool Barrier::step() {
  while (messages_.advance(context_)) {
    distance_ *= 2;
    if (distance_ >= size()) return true;
    messages_ = {};
    start();
  }
  return false;
}

}  // namespace axonn
