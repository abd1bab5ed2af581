#include "axonn/comm/call.h"

#include <algorithm>

#include "axonn/base/check.h"

namespace axonn {

namespace {

/// Maximum number of ranks whose last call a report names. A report on thousands of ranks needs
/// only a few.
constexpr int kPlacesNamed = 8;

/// Lists the ranks of this standing: "; arrived: ranks 0-3, 5".
void add_ranks(std::ostream& text, std::string_view what, Standing standing,
               std::span<const PeerReport> peers) {
  std::vector<int> ranks;
  for (const PeerReport& peer : peers)
    if (peer.standing == standing) ranks.push_back(peer.world_rank);
  if (ranks.empty()) return;
  text << "; " << what << ": " << (ranks.size() == 1 ? "rank " : "ranks ");
  for (std::size_t i = 0; i < ranks.size();) {
    std::size_t last = i;
    while (last + 1 < ranks.size() && ranks[last + 1] == ranks[last] + 1) ++last;
    text << (i > 0 ? ", " : "") << ranks[i];
    if (last > i) text << (last == i + 1 ? ", " : "-") << ranks[last];
    i = last + 1;
  }
}

}  // namespace

std::int64_t Call::count(int size) const {
  if (operation == Operation::all_gather || operation == Operation::send) return inp.count;
  return operation == Operation::all_to_all ? out.count / size : out.count;
}

std::string describe(const Call& call) {
  constexpr std::string_view kOps[] = {"sum", "max", "min"};
  std::ostringstream text;
  text << name_of(call.operation);
  if (call.operation == Operation::all_reduce)
    text << " (" << kOps[static_cast<int>(call.op)] << ')';
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
  const bool same_count = std::max(a.out.count, a.inp.count) == std::max(b.out.count, b.inp.count);
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

std::string hang_report(const std::string& call, double seconds,
                        std::span<const PeerReport> peers) {
  std::ostringstream text;
  text << call << " is not done after " << seconds << " s";
  add_ranks(text, "arrived", Standing::arrived, peers);
  add_ranks(text, "did not arrive", Standing::elsewhere, peers);
  int named = 0;
  for (const PeerReport& peer : peers)
    if (peer.standing == Standing::elsewhere && named++ < kPlacesNamed)
      text << (named == 1 ? " (" : ", ") << "rank " << peer.world_rank << " last started "
           << describe(peer.last);
  if (named > kPlacesNamed) text << ", ...";
  if (named > 0) text << ')';
  add_ranks(text, "returned without it", Standing::returned, peers);
  add_ranks(text, "gave no answer", Standing::silent, peers);
  return text.str();
}

}  // namespace axonn
