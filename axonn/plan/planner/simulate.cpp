// Simulates one rank's step: a compute stream in program order, and a stream for each group and
// operation of collectives. While the same work runs, all rates are constant, so time advances from
// one change to the next.
#include "axonn/plan/planner/simulate.h"

#include <algorithm>
#include <array>
#include <deque>
#include <limits>
#include <utility>
#include <variant>
#include <vector>

#include "axonn/foundation/base/check.h"

namespace axonn {

namespace {

constexpr std::array<const char*, 4> kKinds = {"products", "attention", "row-wise", "optimizer"};

class Player {
 public:
  Player(const Recording& recording, const Costs& costs)
      : recording_(recording),
        costs_(costs),
        slowed_by_(costs.slowdowns().of_compute),
        collective_slowed_(1 + costs.slowdowns().of_collective) {}

  StepTime play() {
    collective_of_.resize(recording_.events.size());
    price();
    bool leaves_some = false;
    for (std::size_t i = 0; i < recording_.events.size(); ++i)
      if (const auto* wait = std::get_if<Recording::Wait>(&recording_.events[i]))
        leaves_some = leaves_some || wait->started > i;
    step(true);
    if (leaves_some) {
      now_ = late_ = worked_ = 0;
      computed_ = {};
      for (Stream& stream : streams_) stream.exposed = stream.late = stream.busy = stream.alone = 0;
      step(false);
    }

    StepTime time{.step_s = now_};
    for (std::size_t i = 0; i < kKinds.size(); ++i) {
      time.compute_s += computed_[i];
      time.compute_by[kKinds[i]] = computed_[i];
    }
    if (late_ > 0) time.exposed_by[kLateRanks] = late_;
    for (const Stream& stream : streams_) {
      const std::string name = *stream.group + ' ' + *stream.operation;
      time.exposed_by[name] = stream.exposed;
      time.late_by[name] = stream.late;
      time.comm_by[name] = stream.busy;
      time.alone_by[name] = stream.alone;
    }
    return time;
  }

 private:
  struct Collective {
    double latency = 0, link = 0;  // seconds left; those of the link as if it were not shared
    double count = 1;
    bool leaves_node = false, of_disk = false, through = false;
    std::size_t stream = 0;
  };
  /// The collectives of one group and operation; the front one is in flight.
  struct Stream {
    const std::string* group;
    const std::string* operation;
    std::deque<std::size_t> queue = {};  // of collectives_
    double exposed = 0, late = 0, busy = 0, alone = 0;
  };

  /// Finds what each event costs alone: a step may be played twice.
  void price() {
    priced_.reserve(recording_.events.size());
    for (const Recording::Event& event : recording_.events) {
      if (const auto* operation = std::get_if<Recording::Compute>(&event)) {
        priced_.emplace_back(costs_.compute_s(*operation));
      } else if (const auto* start = std::get_if<Recording::Start>(&event)) {
        const CollectiveCost cost = costs_.collective(*start);
        priced_.emplace_back(Collective{.latency = cost.latency_s,
                                        .link = cost.link_s,
                                        .count = cost.collectives,
                                        .leaves_node = cost.leaves_node,
                                        .of_disk = start->group == Recording::kDisk,
                                        .stream = stream_of(*start)});
      } else {
        priced_.emplace_back(0.0);
      }
    }
  }

  std::size_t stream_of(const Recording::Start& start) {
    std::size_t at = 0;
    while (at < streams_.size() &&
           (*streams_[at].group != start.group || *streams_[at].operation != start.operation))
      ++at;
    if (at == streams_.size())
      streams_.push_back({.group = &start.group, .operation = &start.operation});
    return at;
  }

  void start(std::size_t event) {
    const Collective& one = collectives_.emplace_back(std::get<Collective>(priced_[event]));
    Stream& stream = streams_[one.stream];
    collective_of_[event] = collectives_.size() - 1;
    stream.alone += one.latency + one.link;
    stream.queue.push_back(collectives_.size() - 1);
    if (stream.queue.size() > 1) return;
    ++busy_;
    begin_front(stream);
    settle(stream);
  }

  void begin_front(Stream& stream) {
    const Collective& one = collectives_[stream.queue.front()];
    sharing_ += one.leaves_node && one.latency <= 0;
    slowing_ += !one.of_disk;
  }

  /// Removes finished collectives from the stream, and begins the next.
  void settle(Stream& stream) {
    while (!stream.queue.empty()) {
      Collective& front = collectives_[stream.queue.front()];
      if (front.latency > 0 || front.link > 0) return;
      front.through = true;
      sharing_ -= front.leaves_node;
      slowing_ -= !front.of_disk;
      stream.queue.pop_front();
      if (stream.queue.empty())
        --busy_;
      else
        begin_front(stream);
    }
  }

  double share() const { return sharing_ > 1 ? sharing_ : 1; }

  /// How many times as long the link takes as if nothing shared it and nothing computed.
  double slowness(const Collective& one, double shared) const {
    return (one.leaves_node ? shared : 1) * (computing_ && !one.of_disk ? collective_slowed_ : 1);
  }

  /// Seconds until a collective in flight ends, or its latency does.
  double next_change() const {
    double least = std::numeric_limits<double>::infinity();
    if (busy_ == 0) return least;
    for (const Stream& stream : streams_) {
      if (stream.queue.empty()) continue;
      const Collective& one = collectives_[stream.queue.front()];
      least = std::min(least, one.latency > 0 ? one.latency : one.link * slowness(one, share()));
    }
    return least;
  }

  void advance(double seconds) {
    now_ += seconds;
    if (busy_ == 0) return;
    const double shared = share();
    // Collectives whose ends differ only by rounding end together.
    const double rounding = 1e-12 * std::max(seconds, 1e-9);
    for (Stream& stream : streams_) {
      if (stream.queue.empty()) continue;
      stream.busy += seconds;
      Collective& front = collectives_[stream.queue.front()];
      if (front.latency > 0) {
        front.latency -= seconds;
        if (front.latency > rounding) continue;
        front.latency = 0;
        sharing_ += front.leaves_node;
      } else {
        front.link -= seconds / slowness(front, shared);
        if (front.link <= rounding) front.link = 0;
      }
    }
    for (Stream& stream : streams_) settle(stream);
  }

  void compute(OperationKind kind, double work) {
    const double begin = now_;
    worked_ += work;
    computing_ = true;
    while (work > 0) {
      const double slow = 1 + slowing_ * slowed_by_, change = next_change();
      if (work * slow <= change) {
        const double last = work * slow;
        work = 0;
        advance(last);
      } else {
        work -= change / slow;
        advance(change);
      }
    }
    computing_ = false;
    const bool copy = kind == OperationKind::device;  // or a fill: counts as row-wise
    computed_[static_cast<int>(copy ? OperationKind::rowwise : kind)] += now_ - begin;
  }

  /// Seconds for which a wait lasts because other ranks have not come to it yet.
  double lateness_before(const Collective& one) {
    return one.of_disk ? 0 : costs_.lateness_s(std::exchange(worked_, 0), one.count);
  }

  void wait(std::size_t collective) {
    Stream& stream = streams_[collectives_[collective].stream];
    for (double late = lateness_before(collectives_[collective]); late > 0;) {
      const double seconds = std::min(late, next_change());
      advance(seconds);
      late -= seconds;
      late_ += seconds;
      stream.late += seconds;
    }
    const double begin = now_;
    while (!collectives_[collective].through) advance(next_change());
    stream.exposed += now_ - begin;
  }

  /// Runs all events once. Waits for collectives of the previous step, unless this is the first
  /// step.
  void step(bool first) {
    std::vector<bool> waited(recording_.events.size(), false);
    for (std::size_t i = 0; i < recording_.events.size(); ++i) {
      const Recording::Event& event = recording_.events[i];
      if (const auto* operation = std::get_if<Recording::Compute>(&event)) {
        compute(operation->kind, std::get<double>(priced_[i]));
      } else if (std::holds_alternative<Recording::Start>(event)) {
        start(i);
      } else {
        const std::size_t of = std::get<Recording::Wait>(event).started;
        if (of < i || !first) wait(collective_of_[of]);
        waited[of] = true;
      }
    }
    for (std::size_t i = 0; i < recording_.events.size(); ++i)
      if (!waited[i] && std::holds_alternative<Recording::Start>(recording_.events[i]))
        wait(collective_of_[i]);
  }

  const Recording& recording_;
  const Costs& costs_;
  const double slowed_by_;  // of each collective under way
  const double collective_slowed_;
  std::vector<std::variant<double, Collective>> priced_;  // by event: an operation's seconds
  std::vector<Collective> collectives_;
  std::vector<std::size_t> collective_of_;  // by event: the collective that it last started
  std::vector<Stream> streams_;
  int busy_ = 0;     // streams that are not empty
  int sharing_ = 0;  // of those, streams whose front uses the node's links
  int slowing_ = 0;  // of those, streams whose front slows what computes
  bool computing_ = false;
  double now_ = 0;
  double worked_ = 0;  // computing time since the last wait, without slowdowns
  double late_ = 0;    // time waited for late ranks
  std::array<double, kKinds.size()> computed_{};
};

}  // namespace

double StepTime::exposed_s() const {
  double sum = 0;
  for (const auto& [name, seconds] : exposed_by) sum += seconds;
  return sum;
}

StepTime simulate(const Recording& recording, const Costs& costs) {
  for (const Recording::Event& event : recording.events)
    if (const auto* wait = std::get_if<Recording::Wait>(&event))
      AXONN_CHECK(wait->started < recording.events.size() &&
                      std::holds_alternative<Recording::Start>(recording.events[wait->started]),
                  "simulate: a Wait refers to event ", wait->started, ", which is not a Start");
  return Player(recording, costs).play();
}

}  // namespace axonn
