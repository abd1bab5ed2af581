#include "axonn/ranks/comm/call.h"

#include <algorithm>
#include <numeric>

#include "axonn/foundation/base/check.h"

namespace axonn {

namespace {

/// Maximum number of waits in a report: the nearest to the culprit say enough.
constexpr std::size_t kWaitsNamed = 8;

Buffer piece_of(const Buffer& whole, const std::vector<std::int64_t>& counts, int rank, int size) {
  if (counts.empty()) return part(whole, whole.count / size * rank, whole.count / size);
  return part(whole, std::reduce(counts.begin(), counts.begin() + rank), counts[rank]);
}

}  // namespace

std::int64_t Call::count(int size) const {
  if (operation == Operation::all_gather || operation == Operation::send) return inp.count;
  return operation == Operation::all_to_all ? out.count / size : out.count;
}

Buffer Call::piece_to(int rank, int size) const { return piece_of(inp, to, rank, size); }
Buffer Call::piece_from(int rank, int size) const { return piece_of(out, from, rank, size); }

bool apart(const Buffer& a, const Buffer& b) {
  const auto begin = [](const Buffer& of) { return reinterpret_cast<std::uintptr_t>(of.data); };
  return begin(a) + a.bytes() <= begin(b) || begin(b) + b.bytes() <= begin(a);
}

std::string describe(const PairCounts& counts) {
  return concat("rank ", counts.from, " gives ", counts.gives, " elements to rank ", counts.to,
                ", which expects ", counts.expects);
}

std::string describe(const Call& call) {
  constexpr std::string_view kOps[] = {"sum", "max", "min"};
  std::ostringstream text;
  text << name_of(call.operation);
  if (call.operation == Operation::all_reduce)
    text << " (" << kOps[static_cast<int>(call.op)] << ')';
  if (call.counted()) text << " (" << call.inp.count << " given, " << call.out.count << " taken)";
  if (call.operation == Operation::broadcast) text << " (root " << call.peer << ')';
  if (call.operation == Operation::send) text << " (to " << call.peer << ')';
  if (call.operation == Operation::recv) text << " (from " << call.peer << ')';
  if (call.operation != Operation::barrier)
    text << " of " << std::max(call.out.count, call.inp.count) << ' ' << name_of(call.dtype());
  if (!call.label.empty()) text << " '" << call.label << '\'';
  if (call.device) text << " in device memory";
  return text.str();
}

std::string describe(const Call& call, std::int64_t sequence, const std::string& group) {
  return concat(describe(call), " (call ", sequence, " of group ", group, ')');
}

bool agree(const Call& a, const Call& b) {
  if (a.operation == Operation::barrier && b.operation == Operation::barrier) return true;
  const bool same_count =
      a.counted() == b.counted() &&
      (a.counted() || std::max(a.out.count, a.inp.count) == std::max(b.out.count, b.inp.count));
  if (a.dtype() != b.dtype() || !same_count || !a.device != !b.device) return false;
  if (a.operation == Operation::send) return b.operation == Operation::recv;
  if (a.operation == Operation::recv) return b.operation == Operation::send;
  return a.operation == b.operation && a.op == b.op && a.peer == b.peer;
}

Channel channel_of(int rank, const Call& call) {
  if (call.operation == Operation::send) return {rank, call.peer};
  if (call.operation == Operation::recv) return {call.peer, rank};
  return {};
}

std::string describe(const CallId& id) {
  if (id.sequence < 0) return "no collective";
  const std::string label = id.label.empty() ? "" : concat(" '", id.label, '\'');
  return concat(name_of(id.operation), label, " (call ", id.sequence, " of group ", id.group, ')');
}

std::string hang_report(std::span<const RankWait> waits, const Culprit& culprit, double seconds) {
  std::ostringstream text;
  text << "rank " << waits.back().awaited;
  if (culprit.state == Culprit::State::running)
    text << " has started no call and made no progress for " << seconds
         << " s (its last: " << describe(culprit.last)
         << "; parallelism.timeout_seconds is the limit)";
  else if (culprit.state == Culprit::State::waiting)
    text << " and ranks that it waits for wait for each other for " << seconds << " s";
  else if (culprit.state == Culprit::State::returned)
    text << " has returned, after " << describe(culprit.last);
  else
    text << " gave no answer for " << seconds << " s: it is stopped, dead or cut off";
  const std::size_t named = std::min(waits.size(), kWaitsNamed);
  for (std::size_t i = 1; i <= named; ++i) {
    const RankWait& wait = waits[waits.size() - i];
    text << (i == 1 ? "; rank " : ", rank ") << wait.rank << " waits for ";
    i == 1 ? text << "it" : text << "rank " << wait.awaited;
    text << " in " << describe(wait.call);
  }
  if (named < waits.size()) text << ", and " << waits.size() - named << " more";
  return text.str();
}

}  // namespace axonn
