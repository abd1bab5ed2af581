#include "axonn/ranks/comm/communicator.h"

#include <algorithm>
#include <map>
#include <numeric>

#include "axonn/foundation/base/check.h"
#include "axonn/foundation/base/clock.h"
#include "axonn/foundation/base/moment.h"
#include "axonn/foundation/base/random.h"
#include "axonn/foundation/base/trace.h"
#include "axonn/ranks/comm/call.h"
#include "axonn/ranks/comm/call_checks.h"
#include "axonn/ranks/comm/collective_cost.h"
#include "axonn/ranks/comm/texts.h"

namespace axonn {

/// The statistics of a group, and waits of which the device has not come to the end.
class WaitLog {
 public:
  void note(Operation operation, const Moment& begin, const Moment& end) {
    constexpr std::size_t kMost = 256;  // nobody may ask for the statistics
    open_.push_back({operation, begin, end});
    if (open_.front().end.known() || open_.size() > kMost) collect();
  }
  void count(std::int64_t bytes) {
    ++stats_.calls;
    stats_.bytes += bytes;
  }
  const CommStats& stats() {
    collect();
    return stats_;
  }

 private:
  struct Wait {
    Operation operation;
    Moment begin, end;
  };

  /// A device comes to waits in their order.
  void collect() {
    auto wait = open_.begin();
    for (; wait != open_.end() && wait->end.known(); ++wait)
      stats_.waited_seconds_by[static_cast<int>(wait->operation)] +=
          wait->end.seconds() - wait->begin.seconds();
    open_.erase(open_.begin(), wait);
  }

  CommStats stats_;
  std::vector<Wait> open_;
};

namespace {

/// Adds the duration of a wait to the group's statistics, and records the collective in a trace.
class TimedState final : public Work::State {
 public:
  struct Label {
    Operation operation;
    std::string group, name;
  };

  TimedState(std::shared_ptr<Work::State> state, std::shared_ptr<WaitLog> waits, Trace* trace,
             Label label)
      : state_(std::move(state)),
        waits_(std::move(waits)),
        trace_(trace),
        label_(std::move(label)) {
    if (traced()) started_ = state_->moment();
  }

  void wait() override {
    const Moment begin = state_->moment();
    state_->wait();
    const Moment end = state_->moment();
    waits_->note(label_.operation, begin, end);
    if (!traced()) return;
    const auto [first, last] = state_->span().value_or(std::pair(started_, end));
    trace_->span(label_.group, label_.name, first, last);
    trace_->span(Trace::kCompute, "wait for " + label_.group + ' ' + label_.name, begin, end);
  }

  bool done() override { return state_->done(); }

 private:
  bool traced() const { return trace_ && trace_->on(); }

  std::shared_ptr<Work::State> state_;
  std::shared_ptr<WaitLog> waits_;
  Trace* trace_;
  Label label_;
  Moment started_;
};

/// Calls f with all checks that still exist.
void for_each(const std::vector<std::weak_ptr<CallChecks>>& checks, const auto& f) {
  for (const auto& one : checks)
    if (const auto here = one.lock()) f(*here);
}

/// A call with checks, and its repetition if there is one.
class CheckedState final : public Work::State {
 public:
  std::vector<std::weak_ptr<CallChecks>> all;  // some may end before the call
  Buffer out, inp;
  std::string what;
  std::shared_ptr<Work::State> first, second;  // null: done at once
  std::unique_ptr<RepeatedCall> repeated;

  void wait() override {
    if (first) first->wait();
    if (second) second->wait();
    std::string fault = repeated ? repeated->difference() : "";
    for_each(all, [&](CallChecks& one) {
      if (one.after && fault.empty()) fault = fault_of([&] { one.after(inp, what); });
    });
    for_each(all, [&](CallChecks& one) {
      if (fault.empty() && one.done) one.done(out);
      if (!fault.empty()) one.fault = fault;  // also if nobody hears of what follows
    });
    AXONN_CHECK(fault.empty(), fault);
  }
  bool done() override { return (!first || first->done()) && (!second || second->done()); }
  Moment moment() override { return first ? first->moment() : State::moment(); }
  std::optional<std::pair<Moment, Moment>> span() override {
    return first ? first->span() : State::span();
  }
};

}  // namespace

std::string_view name_of(Operation operation) {
  constexpr std::string_view kNames[] = {"all_reduce", "all_gather", "reduce_scatter", "broadcast",
                                         "all_to_all", "send",       "recv",           "barrier"};
  return kNames[static_cast<int>(operation)];
}

Communicator::Communicator(std::string name, int rank, int size)
    : name_(std::move(name)),
      rank_(rank),
      size_(size),
      policy_(std::make_shared<CollectivePolicy>()),
      waits_(std::make_shared<WaitLog>()) {}

const CommStats& Communicator::stats() const { return waits_->stats(); }

bool Communicator::traced() const { return trace_ && trace_->on(); }

Work Communicator::all_reduce(Buffer data, std::string_view label, ReduceOp op) {
  return begin({Operation::all_reduce, op, data, data, -1, std::string(label)});
}

Work Communicator::all_gather(Buffer out, Buffer inp, std::string_view label) {
  return begin({Operation::all_gather, {}, out, inp, -1, std::string(label)});
}

Work Communicator::reduce_scatter(Buffer out, Buffer inp, std::string_view label) {
  return begin({Operation::reduce_scatter, ReduceOp::sum, out, inp, -1, std::string(label)});
}

Work Communicator::broadcast(Buffer data, int root, std::string_view label) {
  return begin({Operation::broadcast, {}, data, data, root, std::string(label)});
}

Work Communicator::all_to_all(Buffer out, Buffer inp, std::string_view label) {
  return begin({Operation::all_to_all, {}, out, inp, -1, std::string(label)});
}

Work Communicator::all_to_all(Buffer out, Buffer inp, const ExchangeCounts& counts,
                              std::string_view label) {
  Call call{Operation::all_to_all, {}, out, inp, -1, std::string(label)};
  AXONN_CHECK(std::ssize(counts.to) == size_ && std::ssize(counts.from) == size_, about(call),
              " of ", size_, " ranks: got counts for ", counts.to.size(), " and from ",
              counts.from.size());
  call.to.assign(counts.to.begin(), counts.to.end());
  call.from.assign(counts.from.begin(), counts.from.end());
  return begin(std::move(call));
}

Work Communicator::send(Buffer data, int to, std::string_view label) {
  return begin({Operation::send, {}, {}, data, to, std::string(label)});
}

Work Communicator::recv(Buffer data, int from, std::string_view label) {
  return begin({Operation::recv, {}, data, {}, from, std::string(label)});
}

void Communicator::barrier(std::string_view label) {
  begin({Operation::barrier, {}, {}, {}, -1, std::string(label)}).wait();
}

std::unique_ptr<Communicator> Communicator::split(int color, std::string name) {
  auto group = split_off(color, std::move(name));
  group->set_trace(trace_);
  group->checks_ = checks_;
  group->set_policy(*policy_);
  return group;
}

void Communicator::set_policy(const CollectivePolicy& policy) {
  policy_ = std::make_shared<CollectivePolicy>(policy);
  policy_changed();
}

Communicator::Part Communicator::agree_on_part(int color, const std::string& name, int number) {
  constexpr int kFields = 3;
  std::vector<std::int64_t> mine = {color, number, static_cast<std::int64_t>(hash_text(name))};
  std::vector<std::int64_t> all(kFields * size_);
  all_gather(buffer(std::span(all)), buffer(std::span(mine)), "split " + name).wait();
  Part part;
  std::map<std::int64_t, int> first_of;  // by color
  for (int r = 0; r < size_; ++r) {
    const std::int64_t* const theirs = all.data() + kFields * r;
    part.largest_number = std::max(part.largest_number, static_cast<int>(theirs[1]));
    const int first = first_of.try_emplace(theirs[0], r).first->second;
    if (theirs[2] != all[kFields * first + 2]) {
      const std::string one = broadcast_text(*this, name, first),
                        other = broadcast_text(*this, name, r);
      throw Error(concat("split of group ", name_, ": its rank ", first, " names the new group ",
                         one, ", its rank ", r, ' ', other, "; the names must be the same"));
    }
    if (theirs[0] != color) continue;
    if (r == rank_) part.rank = static_cast<int>(part.members.size());
    part.members.push_back(r);
  }
  return part;
}

std::shared_ptr<Work::State> Communicator::start_on(Communicator& group, Call call) {
  return group.start(std::move(call));
}

std::string Communicator::about(const Call& call) const {
  return concat(describe(call), " on group ", name_);
}

Work Communicator::begin(Call call) {
  check(call);
  waits_->count(call.bytes());
  TimedState::Label label{call.operation, {}, {}};
  if (trace_ && trace_->on())
    label = {call.operation, name_, concat(name_of(call.operation), ' ', call.label)};
  std::erase_if(*checks_, [](const auto& one) { return one.expired(); });
  auto state = checks_->empty() ? start(std::move(call)) : begin_checked(std::move(call), *checks_);
  if (!state) return {};
  return Work(std::make_shared<TimedState>(std::move(state), waits_, trace_, std::move(label)));
}

std::shared_ptr<Work::State> Communicator::begin_checked(Call call, const Checks& checks) {
  auto checked = std::make_shared<CheckedState>();
  checked->all = checks;
  checked->out = call.out;
  checked->inp = call.inp;
  checked->what = about(call);
  for_each(checks, [&](CallChecks& one) {
    AXONN_CHECK(one.fault.empty(), one.fault);
    if (one.before) one.before(call.inp, checked->what);
    if (one.twice && !checked->repeated && size_ > 1 && call.operation != Operation::barrier)
      checked->repeated = std::make_unique<RepeatedCall>(
          call, concat("silent corruption: ", one.rank, ": ", checked->what));
  });
  for_each(checks, [&](CallChecks& one) {
    if (one.begins) one.begins(call.out);
  });
  checked->first = start(std::move(call));
  if (checked->repeated) checked->second = start(checked->repeated->call());
  if (checked->first || checked->second) return checked;
  checked->wait();
  return nullptr;
}

void Communicator::check(const Call& call) const {
  const auto& [operation, op, out, inp, peer, label, device, to, from] = call;
  if (operation == Operation::all_gather) check_pieces(call, out, inp);
  if (operation == Operation::reduce_scatter) check_pieces(call, inp, out);
  if (operation == Operation::all_to_all) check_exchange(call);
  if (call.is_pair() || operation == Operation::broadcast)
    AXONN_CHECK(peer >= 0 && peer < size_, about(call), ": its ranks are 0 to ", size_ - 1);
  AXONN_CHECK(!call.is_pair() || peer != rank_, about(call), ": a rank cannot ",
              operation == Operation::send ? "send to" : "receive from", " itself");
  const bool adds = operation == Operation::all_reduce || operation == Operation::reduce_scatter;
  AXONN_CHECK(!adds || op != ReduceOp::sum || out.dtype != DType::u8, about(call),
              ": u8 would overflow; use i32 for sums");
  for (const Buffer& buffer : {out, inp})
    AXONN_CHECK(buffer.count >= 0 && (buffer.data || buffer.count == 0), about(call), ": got ",
                buffer.count, " elements at address ", buffer.data);
}

void Communicator::check_exchange(const Call& call) const {
  const auto& out = call.out;
  const auto& inp = call.inp;
  if (!call.counted()) {
    AXONN_CHECK(out.count == inp.count && out.dtype == inp.dtype && out.count % size_ == 0,
                about(call), " of ", size_, " ranks: out has ", out.count, ' ', name_of(out.dtype),
                ", inp ", inp.count, ' ', name_of(inp.dtype),
                "; they must be the same, and the count a multiple of ", size_);
    return check_overlap(call, out, inp);
  }
  const auto check = [&](const char* name, const Buffer& whole,
                         const std::vector<std::int64_t>& counts) {
    const std::int64_t sum = std::reduce(counts.begin(), counts.end());
    AXONN_CHECK(std::ranges::min(counts) >= 0 && sum == whole.count, about(call), ": ", name,
                " has ", whole.count, " elements, its ", size_, " counts add up to ", sum,
                ", and the least is ", std::ranges::min(counts));
  };
  check("inp", inp, call.to);
  check("out", out, call.from);
  AXONN_CHECK(out.dtype == inp.dtype, about(call), ": out is ", name_of(out.dtype), ", inp ",
              name_of(inp.dtype), "; they must be the same");
  AXONN_CHECK(out.count == 0 || inp.count == 0 || apart(out, inp), about(call),
              ": out and inp overlap; with counts they must be disjoint");
  AXONN_CHECK(call.to[rank_] == call.from[rank_], about(call), ": ",
              describe(PairCounts{rank_, rank_, call.to[rank_], call.from[rank_]}));
}

void Communicator::check_pieces(const Call& call, const Buffer& whole, const Buffer& piece) const {
  AXONN_CHECK(whole.count == piece.count * size_ && whole.dtype == piece.dtype, about(call), " of ",
              size_, " ranks: got pieces of ", piece.count, ' ', name_of(piece.dtype),
              " and a whole of ", whole.count, ' ', name_of(whole.dtype), "; want a whole of ",
              piece.count * size_);
  check_overlap(call, part(whole, rank_ * piece.count, piece.count), piece);
}

void Communicator::check_overlap(const Call& call, const Buffer& may, const Buffer& is) const {
  AXONN_CHECK(may.data == is.data || apart(call.out, call.inp), about(call),
              ": out and inp overlap; they must be disjoint, or in place as communicator.h allows");
}

}  // namespace axonn
