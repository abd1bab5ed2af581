#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "axonn/data/storage/checkpoint/local_reader.h"
#include "axonn/data/storage/checkpoint/local_shard.h"
#include "axonn/foundation/grid/grid_shape.h"

namespace axonn::test {

inline constexpr const char* kRun = "0123456789abcdef";

/// Ranks of a grid on nodes of so many, which a new start may have in another order.
struct Cluster {
  std::string folder;
  GridShape shape = {1, 1, 2, 2};
  int node_ranks = 2;
  int shift = 0;       ///< of the nodes' names
  int host_ranks = 0;  ///< ranks of a host, each of which has a folder of its own; 0: one host
  int first_host = 0;

  std::string host(int number) const { return folder + "/host-" + std::to_string(number); }
  std::string node(int number) const { return folder + "/node-" + std::to_string(number); }
  LocalStore store(int rank) const {
    const int nodes = (shape.ranks() + node_ranks - 1) / node_ranks;
    return {host_ranks > 0 ? host(rank / host_ranks + first_host) : folder,
            "node-" + std::to_string((rank / node_ranks + shift) % nodes), kRun};
  }
};

struct Found {
  std::int64_t step = -1;
  std::string difference;  ///< of any rank's values from those of the step
  std::vector<std::string> told;
};

/// Writes the local checkpoints of these steps, in one start, with the values of ModelState.
void write(const Cluster& cluster, const std::vector<std::int64_t>& steps);

/// What a new start finds, of this grid or of another one with so many ranks.
Found find(const Cluster& cluster, const LocalSearch& search = {});

/// The folder of a rank's only shard of a step on a node.
std::string shard(const Cluster& cluster, int node, std::int64_t step, int rank);
/// The file in it.
std::string file_of(const std::string& shard, int rank);

/// The nodes that are left become those of another cluster, in turn.
void move_nodes(const Cluster& from, const Cluster& to);

}  // namespace axonn::test
