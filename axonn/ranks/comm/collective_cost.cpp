#include "axonn/ranks/comm/collective_cost.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>

namespace axonn {

namespace {

/// A message beside others in flight costs this part of the latency: it is processed while the
/// others travel.
constexpr double kBeside = 1.0 / 16;
/// Another method than the flat one must promise this part of its time: predictions are not exact.
constexpr double kPromise = 0.9;

/// Messages in flight at once, and all their bytes.
double beside(const LinkSpeed& link, double messages, double bytes) {
  return messages * kBeside * link.latency_s + bytes / link.bytes_per_s;
}
/// A round of them.
double seconds(const LinkSpeed& link, double messages, double bytes) {
  return link.latency_s + beside(link, messages, bytes);
}

int width(double ranks) { return static_cast<int>(std::bit_width(static_cast<unsigned>(ranks))); }

/// Costs of one method for one group. `part`: bytes that one rank gives to or gets from another.
class Costs {
 public:
  Costs(const HostShape& shape, const CollectiveRates& rates, double widening)
      : ranks_(shape.ranks),
        hosts_(shape.hosts),
        here_(shape.most_ranks),
        branches_(shape.most_branches),
        sums_(widening * branches_),
        widening_(widening),
        rates_(rates) {}

  double exchange(double part) const { return one_round(part, here_ * (ranks_ - here_) * part); }
  double gather_in_two(double part) const { return across(part) + inside(part); }
  double scatter_in_two(double part) const { return inside(part) + across(sums_ * part); }

  /// Rounds in which a rank sends `first` bytes, and `growth` times as many in each further one.
  double rounds(double first, double growth) const {
    const int all = width(ranks_ - 1), blocks = branches_ == 1 ? width(here_) - 1 : 0,
              inner = hosts_ == 1 ? all : blocks;
    double total = 0;
    for (int round = 0; round < all; ++round, first *= growth)
      total += round < inner ? seconds(rates_.inside, 1, first)
                             : seconds(rates_.across, 1, here_ * first);
    return total;
  }
  double doubling(double bytes) const { return rounds(widening_ * bytes, 1); }
  double halving(double bytes) const {
    const bool halves = std::has_single_bit(static_cast<unsigned>(ranks_));
    return halves ? rounds(widening_ * bytes / 2, 0.5) : doubling(bytes);
  }
  /// The root's messages to all ranks.
  double deal(double part) const { return one_round(part, (ranks_ - here_) * part); }

 private:
  /// A message of each rank to, or from, each other one.
  double one_round(double part, double bytes_across) const {
    const double latency = (hosts_ > 1 ? rates_.across : rates_.inside).latency_s;
    return latency + beside(rates_.inside, here_ - 1, (here_ - 1) * part) +
           beside(rates_.across, ranks_ - here_, bytes_across);
  }
  double inside(double part) const {
    return seconds(rates_.inside, here_ - 1, (here_ - 1) * ranks_ / here_ * part);
  }
  double across(double part) const {
    return seconds(rates_.across, hosts_ - 1, here_ * (hosts_ - 1) * part);
  }

  double ranks_, hosts_, here_, branches_, sums_, widening_;
  CollectiveRates rates_;
};

constexpr double kImpossible = std::numeric_limits<double>::infinity();

/// collective_seconds() of rings. In each of a ring's steps every rank passes a part on.
double ring_seconds(CollectiveMethod method, const CollectiveSize& of, const HostShape& shape,
                    const CollectiveRates& rates) {
  const auto& [inside, across, rings] = rates;
  const double g = shape.ranks, hosts = shape.hosts, a = shape.most_ranks, part = of.bytes / g;
  const bool reduces = of.operation == Operation::all_reduce;
  if (method == CollectiveMethod::two_level && (reduces || of.operation == Operation::all_gather ||
                                                of.operation == Operation::reduce_scatter))
    return (reduces ? 2 : 1) * ((a - 1) * (inside.latency_s + hosts * part / inside.bytes_per_s) +
                                (hosts - 1) * (across.latency_s + a * part / across.bytes_per_s));
  if (method != CollectiveMethod::flat) return kImpossible;
  const double bytes = (g - 1) * part / (hosts > 1 ? across : inside).bytes_per_s,
               ring = (g - hosts) * inside.latency_s + (hosts - 1) * across.latency_s,
               tree = (a - 1) * inside.latency_s + width(hosts - 1) * across.latency_s;
  return reduces ? 2 * (bytes + std::min(ring, tree)) : bytes + ring;
}

}  // namespace

HostShape shape_of(const Hosts& hosts, int ranks) {
  return {ranks, hosts.count(), hosts.most_ranks(), hosts.most_branches()};
}

double collective_seconds(CollectiveMethod method, const CollectiveSize& of, const HostShape& shape,
                          const CollectiveRates& rates) {
  const auto [operation, bytes, widening] = of;
  const bool levels = shape.hosts > 1 && shape.most_ranks > 1;
  if (method == CollectiveMethod::two_level && !levels) return kImpossible;
  if (rates.rings) return ring_seconds(method, of, shape, rates);
  const Costs costs(shape, rates, widening);
  const double part = bytes / shape.ranks;
  if (method == CollectiveMethod::flat) {
    switch (operation) {
      case Operation::all_reduce:
        return bytes <= kSmallAllReduce ? costs.exchange(bytes) : 2 * costs.exchange(part);
      case Operation::broadcast:
        return bytes <= kSmallBroadcast ? costs.deal(bytes)
                                        : costs.deal(part) + costs.exchange(part);
      default:
        return costs.exchange(part);
    }
  }
  const bool recursive = method == CollectiveMethod::recursive;
  switch (operation) {
    case Operation::all_reduce:
      return recursive ? costs.doubling(bytes)
                       : costs.scatter_in_two(part) + costs.gather_in_two(part);
    case Operation::reduce_scatter:
      return recursive ? costs.halving(bytes) : costs.scatter_in_two(part);
    case Operation::all_gather:
      return recursive ? costs.rounds(part, 2) : costs.gather_in_two(part);
    case Operation::broadcast:
      return recursive ? costs.rounds(bytes, 1) : kImpossible;
    default:
      return kImpossible;
  }
}

CollectiveMethod fastest_method(const CollectiveSize& of, const HostShape& shape,
                                const CollectiveRates& rates) {
  const auto taken = [&](CollectiveMethod candidate) {
    return collective_seconds(candidate, of, shape, rates);
  };
  CollectiveMethod best = CollectiveMethod::flat;
  double least = kPromise * taken(best);
  for (const auto other : {CollectiveMethod::two_level, CollectiveMethod::recursive}) {
    if (taken(other) < least) best = other;
    least = std::min(least, taken(other));
  }
  return best;
}

int CollectivePolicy::gpu_blocks_of(std::string_view group) const {
  if (gpu_blocks >= 0) return gpu_blocks;
  constexpr int kBeside = 8, kWaitedFor = 16;  // their bytes take less time than products, or not
  if (group == "world") return 0;
  return group == "z" || group == "data" || group == "same experts" ? kBeside : kWaitedFor;
}

CollectiveMethod CollectivePolicy::choose(const CollectiveSize& of, const HostShape& shape,
                                          const CollectiveRates& usual) const {
  CollectiveRates used = rates.value_or(usual);
  used.rings = usual.rings;
  if (!method) return fastest_method(of, shape, used);
  const bool possible = std::isfinite(collective_seconds(*method, of, shape, used));
  return possible ? *method : CollectiveMethod::flat;
}

}  // namespace axonn
