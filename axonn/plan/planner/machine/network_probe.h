#pragma once

#include <string>
#include <vector>

#include "axonn/plan/planner/machine/probe.h"
#include "axonn/ranks/comm/communicator.h"

namespace axonn {

/// The two directions between a node and a neighbour, with all of its ranks at once, in bytes/s;
/// 0: not measured.
struct NodeLink {
  double out = 0, in = 0;
};

/// Figures measured on a node. Rates per rank are those of its slowest rank, which a run waits
/// for.
struct NodeFigures {
  std::string host = {};
  int ranks = 0;
  double flops_per_s = 0;         ///< products, per rank
  double memory_bytes_per_s = 0;  ///< per rank
  double inside_bytes_per_s = 0;  ///< per rank, in an all-gather of the node; 0: it has one rank
  NodeLink next = {}, previous = {};
  double adapters_bytes_per_s = 0;      ///< that its adapters advertise together; 0: unknown
  std::string network = {};             ///< that NCCL says it uses, such as "Socket"; "": unknown
  std::vector<std::string> marks = {};  ///< why the node is bad; set by mark_nodes()

  /// The better of its two links: a bad neighbour slows down only one of them.
  double out() const;
  double in() const;
};

struct NetworkReport {
  std::string device;  ///< of the first rank
  DType products;      ///< type of the products
  std::vector<NodeFigures> nodes;
  std::vector<std::string> remarks = {};  ///< about all nodes

  bool good() const;  ///< whether no node is marked
};

/// Marks each figure of a node that is more than `tolerance`, such as 0.1, below the median of all
/// nodes, and nodes whose data between several nodes travel through NCCL's sockets.
void mark_nodes(NetworkReport& report, double tolerance);

/// A table with a line for each node, or of more than `most` nodes only for those with marks, and
/// the medians.
std::string to_text(const NetworkReport& report, int most = 64);
std::string to_json(const NetworkReport& report);

/// The network in what NCCL logs at its start; empty if it does not say.
std::string network_of_log(const std::string& log);

/// Measures every node of world in some seconds, however many there are: products, memory and
/// collectives inside nodes on all at once; then the links between neighbouring nodes in both
/// directions, in rounds of pairs. Uses device, transport, threads, devices_per_node, quick and
/// report of the options. Rank 0 gets the report, without marks. Collective.
NetworkReport probe_network(Communicator& world, const ProbeOptions& options);

}  // namespace axonn
