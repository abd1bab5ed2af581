#include "axonn/comm/call.h"

#include <algorithm>

#include "axonn/base/check.h"

namespace axonn {

std::string_view name_of(Operation operation) {
  constexpr std::string_view kNames[] = {"all_reduce", "all_gather", "reduce_scatter", "broadcast",
                                         "all_to_all", "send",       "recv",           "barrier"};
  return kNames[static_cast<int>(operation)];
}

std::int64_t Call::count(int size) const {
  switch (operation) {
    case Operation::all_reduce:
    case Operation::broadcast:
    case Operation::reduce_scatter:
    case Operation::recv:
      return out.count;
    case Operation::all_gather:
    case Operation::send:
      return inp.count;
    case Operation::all_to_all:
      return out.count / size;
    case Operation::barrier:
      return 0;
  }
  return 0;
}

std::int64_t Call::bytes() const { return std::max(out.bytes(), inp.bytes()); }

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

std::vector<int> Channel::parties_of(const std::vector<int>& members) const {
  return is_pair() ? std::vector{members[from], members[to]} : members;
}

Channel channel_of(int rank, const Call& call) {
  if (call.operation == Operation::send) return {rank, call.peer};
  if (call.operation == Operation::recv) return {call.peer, rank};
  return {};
}

}  // namespace axonn
