#include "axonn/plan/planner/machine/network_probe.h"

#include <gmock/gmock.h>
#include <nlohmann/json.hpp>

#include "axonn/ranks/comm/threads/threads.h"

using namespace axonn;
using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;
using testing::SizeIs;

namespace {

/// A report of nodes with equal figures.
NetworkReport equal_nodes(int count) {
  NetworkReport report{.device = "GPU", .products = DType::bf16};
  for (int i = 0; i < count; ++i)
    report.nodes.push_back({.host = "node" + std::to_string(i),
                            .ranks = 4,
                            .flops_per_s = 600e12,
                            .memory_bytes_per_s = 3e12,
                            .inside_bytes_per_s = 150e9,
                            .next = {90e9, 90e9},
                            .previous = {90e9, 90e9},
                            .adapters_bytes_per_s = 100e9,
                            .network = "AWS Libfabric"});
  return report;
}

/// The report that rank 0 of threads gets.
NetworkReport measured(int ranks, int devices_per_node) {
  NetworkReport report;
  run_ranks(ranks, [&](Communicator& world) {
    NetworkReport mine =
        probe_network(world, {.devices_per_node = devices_per_node, .quick = true});
    if (world.rank() == 0) report = std::move(mine);
  });
  return report;
}

}  // namespace

TEST(MarkNodes, EachFigureBelowTheMedianByMoreThanTheToleranceIsAMark) {
  NetworkReport report = equal_nodes(5);
  report.nodes[1].flops_per_s *= 0.82;
  report.nodes[2].memory_bytes_per_s *= 0.91;  // within the tolerance
  report.nodes[3].next.out = report.nodes[3].previous.out = 40e9;
  report.nodes[4].adapters_bytes_per_s = 75e9;
  mark_nodes(report, 0.1);
  EXPECT_THAT(report.nodes[0].marks, IsEmpty());
  EXPECT_THAT(report.nodes[1].marks, ElementsAre("products -18 % of the median"));
  EXPECT_THAT(report.nodes[2].marks, IsEmpty());
  EXPECT_THAT(report.nodes[3].marks, ElementsAre("out -56 % of the median"));
  EXPECT_THAT(report.nodes[4].marks, ElementsAre("adapters -25 % of the median"));
  EXPECT_FALSE(report.good());
  mark_nodes(report, 0.6);
  EXPECT_TRUE(report.good());
}

TEST(MarkNodes, ANodeIsNotMarkedForABadNeighbour) {
  NetworkReport report = equal_nodes(4);
  // Node 2 receives slowly, whoever sends.
  report.nodes[1].next.out = report.nodes[2].previous.in = 10e9;
  report.nodes[2].next.in = report.nodes[3].previous.out = 10e9;
  mark_nodes(report, 0.1);
  EXPECT_THAT(report.nodes[1].marks, IsEmpty());
  EXPECT_THAT(report.nodes[2].marks, ElementsAre("in -89 % of the median"));
  EXPECT_THAT(report.nodes[3].marks, IsEmpty());
}

TEST(MarkNodes, SocketsAreAMarkBetweenNodesOnly) {
  NetworkReport report = equal_nodes(2), alone = equal_nodes(1);
  report.nodes[0].network = alone.nodes[0].network = "Socket";
  mark_nodes(report, 0.1);
  mark_nodes(alone, 0.1);
  EXPECT_THAT(report.nodes[0].marks, ElementsAre("NCCL uses sockets"));
  EXPECT_TRUE(alone.good());
}

TEST(MarkNodes, LinksFarBelowTheAdaptersAreRemarkedOn) {
  NetworkReport report = equal_nodes(3);
  mark_nodes(report, 0.1);
  EXPECT_THAT(report.remarks, IsEmpty());
  for (NodeFigures& node : report.nodes) {
    node.next = node.previous = {12e9, 12e9};
    node.network.clear();
  }
  mark_nodes(report, 0.1);
  EXPECT_THAT(report.remarks, ElementsAre(AllOf(HasSubstr("carry 12 % of what the adapters"),
                                                HasSubstr("sockets"))));
  EXPECT_TRUE(report.good()) << "all alike";
}

TEST(NetworkReport, OfManyNodesTheTableShowsOnlyTheMarkedOnes) {
  NetworkReport report = equal_nodes(4096);
  report.nodes[77].inside_bytes_per_s /= 2;
  mark_nodes(report, 0.1);
  const std::string text = to_text(report);
  EXPECT_THAT(text, AllOf(HasSubstr("\nnode77 "), HasSubstr("inside -50 % of the median\nmedian"),
                          HasSubstr("1 of 4096 nodes marked"), Not(HasSubstr("\nnode78 "))));
  EXPECT_THAT(to_text(report, 5000), HasSubstr("\nnode78 "));
  const auto json = nlohmann::json::parse(to_json(report));
  EXPECT_THAT(json.at("nodes"), SizeIs(4096));
  EXPECT_EQ(json.at("nodes")[77].at("inside_bytes_per_s"), 75e9);
  EXPECT_EQ(json.at("nodes")[77].at("marks")[0], "inside -50 % of the median");
}

TEST(NetworkOfLog, IsWhatNcclSaysInOldAndNewVersions) {
  EXPECT_EQ(network_of_log("n1:7:9 [0] NCCL INFO NET/IB : No device found.\n"
                           "n1:7:9 [0] NCCL INFO Using network Socket\nn1:7:9 [0] NCCL INFO x\n"),
            "Socket");
  EXPECT_EQ(network_of_log("n1:7:9 [0] NCCL INFO Assigned NET plugin AWS Libfabric to comm\n"
                           "n1:7:9 [0] NCCL INFO Using network AWS Libfabric\n"),
            "AWS Libfabric");
  EXPECT_EQ(network_of_log("n1:7:9 [0] NCCL INFO Using network IB"), "IB");
  EXPECT_EQ(network_of_log(""), "");
}

TEST(ProbeNetwork, MeasuresEveryNodeAndItsLinksInBothDirections) {
  // Even and odd numbers of nodes, two nodes, and a last node with fewer ranks.
  for (const auto& [ranks, per_node] : {std::pair{4, 1}, {3, 1}, {2, 1}, {4, 2}, {5, 2}}) {
    SCOPED_TRACE(testing::Message() << ranks << " ranks, " << per_node << " a node");
    const NetworkReport report = measured(ranks, per_node);
    ASSERT_THAT(report.nodes, SizeIs((ranks + per_node - 1) / per_node));
    for (const NodeFigures& node : report.nodes) {
      EXPECT_FALSE(node.host.empty());
      EXPECT_GT(node.flops_per_s, 0);
      EXPECT_GT(node.memory_bytes_per_s, 0);
      EXPECT_EQ(node.inside_bytes_per_s > 0, node.ranks > 1);
      EXPECT_GT(node.out(), 0);
      EXPECT_GT(node.in(), 0);
      const bool two = report.nodes.size() == 2, first = &node == &report.nodes.front();
      EXPECT_EQ(node.next.out > 0, !two || first);
      EXPECT_EQ(node.previous.in > 0, !two || !first);
    }
    EXPECT_EQ(report.nodes.back().ranks, ranks % per_node == 0 ? per_node : ranks % per_node);
  }
}

TEST(ProbeNetwork, OfOneNodeHasNoLinksBetweenNodes) {
  for (const int ranks : {1, 2}) {
    const NetworkReport report = measured(ranks, 0);
    ASSERT_THAT(report.nodes, SizeIs(1));
    EXPECT_EQ(report.nodes[0].out(), 0);
    EXPECT_EQ(report.nodes[0].inside_bytes_per_s > 0, ranks > 1);
  }
}
