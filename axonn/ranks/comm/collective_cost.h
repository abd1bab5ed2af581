#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

#include "axonn/ranks/comm/communicator.h"
#include "axonn/ranks/comm/hosts.h"

namespace axonn {

/// How a collective moves its data. Sums have the same bits with each.
enum class CollectiveMethod : std::uint8_t {
  flat,       ///< every rank exchanges with every other
  two_level,  ///< inside the hosts and across them, so that each value leaves a host once
  recursive   ///< in about log2(ranks) rounds, with more bytes: for small ones
};

/// In a flat all_reduce of at most this many bytes every rank sends all of its data to all ranks:
/// one exchange instead of two.
inline constexpr std::int64_t kSmallAllReduce = 8 << 10;
/// In a flat broadcast of at most this many bytes the root sends all data to all ranks.
inline constexpr std::int64_t kSmallBroadcast = 64 << 10;

/// The time of one message is latency_s + bytes / bytes_per_s.
struct LinkSpeed {
  double latency_s = 0, bytes_per_s = 1;
};

/// Rates of a machine by which methods are chosen. The default is a cluster with links of
/// 10 Gbit/s; its latencies are those of the MPI transport, whose progress threads sleep between
/// polls (measured with 2 and 8 ranks on two cores of an EPYC).
struct CollectiveRates {
  /// Between the ranks of one host, of each rank.
  LinkSpeed inside{.latency_s = 150e-6, .bytes_per_s = 4e9};
  /// Between hosts: bytes_per_s is that of all links of a host together.
  LinkSpeed across{.latency_s = 200e-6, .bytes_per_s = 1.2e9};
  /// Whether flat collectives are rings through all ranks, as NCCL's, and an all_reduce a ring or a
  /// tree. Otherwise all ranks exchange data with all others.
  bool rings = false;
};

/// The rates of a cluster with NVLink and links of 400 Gbit/s for each host. The latencies are
/// those by which NCCL chooses (src/graph/tuning.cc, protocol Simple).
inline constexpr CollectiveRates kNcclRates = {
    .inside = {3.4e-6, 150e9}, .across = {14e-6, 50e9}, .rings = true};

/// The shape of a group, as far as costs depend on it.
struct HostShape {
  int ranks = 1, hosts = 1;
  int most_ranks = 1;     ///< on one host
  int most_branches = 1;  ///< of the tree of sums on one host (Hosts)
};

HostShape shape_of(const Hosts& hosts, int ranks);

/// A collective, as far as its cost depends on it.
struct CollectiveSize {
  Operation operation = Operation::all_reduce;
  double bytes = 0;     ///< of the larger buffer
  double widening = 1;  ///< bytes of a sum before it is rounded, per byte of a value; 2 for bf16
};

/// Seconds of a collective by the formulas of docs/communication.md; infinite if the method does
/// not suit the operation or the shape.
double collective_seconds(CollectiveMethod method, const CollectiveSize& of, const HostShape& shape,
                          const CollectiveRates& rates);

/// The method with the least collective_seconds(), if it is clearly below that of the flat one.
CollectiveMethod fastest_method(const CollectiveSize& of, const HostShape& shape,
                                const CollectiveRates& rates);

/// Chooses the method of each collective of a transport.
struct CollectivePolicy {
  /// That of every collective for which it is possible; none: the fastest.
  std::optional<CollectiveMethod> method = {};
  /// The rates of the machine, if they are known.
  std::optional<CollectiveRates> rates = {};
  /// Whether messages have checksums, where ranks exchange data by MPI.
  bool checksums = false;

  /// Blocks of a GPU that the collectives of a group have at most with NCCL, of which each takes a
  /// multiprocessor from operations beside it: 0: as the library chooses; negative: by the group.
  int gpu_blocks = 0;
  /// Whether products are told that collectives in flight have these multiprocessors.
  bool spares = false;

  /// gpu_blocks for the group of this name: if negative, 8 where collectives go on beside products
  /// (z, data, and the gradients of experts), 16 in other groups of a grid, 0 in the world.
  int gpu_blocks_of(std::string_view group) const;

  /// `usual`: the transport's rates if those of the machine are unknown.
  CollectiveMethod choose(const CollectiveSize& of, const HostShape& shape,
                          const CollectiveRates& usual = {}) const;
};

}  // namespace axonn
