#include <algorithm>
#include <array>
#include <cmath>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "axonn/plan/planner/machine/measuring.h"
#include "axonn/plan/planner/machine/network_probe.h"

namespace axonn {

namespace {

/// A column of the table.
struct NodeColumn {
  const char* name;
  const char* unit;
  double scale;
  double (*of)(const NodeFigures&);
};

constexpr std::array kNodeColumns = {
    NodeColumn{"products", "Gflop/s", 1e-9, [](const NodeFigures& n) { return n.flops_per_s; }},
    NodeColumn{"memory", "GB/s", 1e-9, [](const NodeFigures& n) { return n.memory_bytes_per_s; }},
    NodeColumn{"inside", "GB/s", 1e-9, [](const NodeFigures& n) { return n.inside_bytes_per_s; }},
    NodeColumn{"out", "GB/s", 1e-9, [](const NodeFigures& n) { return n.out(); }},
    NodeColumn{"in", "GB/s", 1e-9, [](const NodeFigures& n) { return n.in(); }},
    NodeColumn{"adapters", "GB/s", 1e-9,
               [](const NodeFigures& n) { return n.adapters_bytes_per_s; }}};

/// The median over the nodes that have the figure.
double median_of(const NetworkReport& report, double (*of)(const NodeFigures&)) {
  std::vector<double> values;
  for (const NodeFigures& node : report.nodes)
    if (const double value = of(node); value > 0) values.push_back(value);
  return median(std::move(values));
}

std::string cell(double value, double scale) {
  if (value <= 0) return "-";
  const double shown = value * scale;
  return shown >= 100 ? fmt::format("{:.0f}", shown) : fmt::format("{:.3g}", shown);
}

}  // namespace

double NodeFigures::out() const { return std::max(next.out, previous.out); }
double NodeFigures::in() const { return std::max(next.in, previous.in); }

bool NetworkReport::good() const {
  return std::ranges::all_of(nodes, [](const NodeFigures& node) { return node.marks.empty(); });
}

void mark_nodes(NetworkReport& report, double tolerance) {
  for (NodeFigures& node : report.nodes) node.marks.clear();
  for (const NodeColumn& column : kNodeColumns) {
    const double middle = median_of(report, column.of);
    for (NodeFigures& node : report.nodes) {
      const double value = column.of(node);
      if (value <= 0 || value >= (1 - tolerance) * middle) continue;
      node.marks.push_back(
          fmt::format("{} {:.0f} % of the median", column.name, 100 * (value / middle - 1)));
    }
  }
  for (NodeFigures& node : report.nodes)
    if (report.nodes.size() > 1 && node.network == "Socket")
      node.marks.emplace_back("NCCL uses sockets");
  // Of four links that NCCL drives, about 95 % are usual, and 75 % in collectives.
  constexpr double kSuspicious = 0.3;
  const double out = median_of(report, [](const NodeFigures&node) { return node.out(); }),
               adapters = median_of(
                   report, [](const NodeFigures&node) { return node.adapters_bytes_per_s; });
  const bool said = std::ranges::any_of(
      report.nodes, [](const NodeFigures& node) { return !node.network.empty(); });
  if (out > 0 && adapters > 0 && out < kSuspicious * adapters)
    report.remarks.push_back(
        fmt::format("links between nodes carry {:.0f} % of what the adapters advertise{}",
                    100 * out / adapters, said ? "" : ": messages may travel through sockets"));
}

std::string to_text(const NetworkReport& report, int most) {
  std::string text = fmt::format(
      "{} node{}, {}; products in {}; products, memory and inside: of a node's slowest rank\n",
      report.nodes.size(), report.nodes.size() == 1 ? "" : "s", report.device,
      name_of(report.products));
  text += fmt::format("{:<20} {:>5}", "host", "ranks");
  for (const NodeColumn& column : kNodeColumns) text += fmt::format(" {:>9}", column.name);
  text += fmt::format("  marks\n{:<26}", "");
  for (const NodeColumn& column : kNodeColumns) text += fmt::format(" {:>9}", column.unit);
  text += '\n';
  const bool all = std::ssize(report.nodes) <= most;
  for (const NodeFigures& node : report.nodes) {
    if (!all && node.marks.empty()) continue;
    text += fmt::format("{:<20} {:>5}", node.host, node.ranks);
    for (const NodeColumn& column : kNodeColumns)
      text += fmt::format(" {:>9}", cell(column.of(node), column.scale));
    text += node.marks.empty() ? "" : "  ";
    for (std::size_t i = 0; i < node.marks.size(); ++i) text += (i > 0 ? ", " : "") + node.marks[i];
    text += '\n';
  }
  text += fmt::format("{:<26}", "median");
  for (const NodeColumn& column : kNodeColumns)
    text += fmt::format(" {:>9}", cell(median_of(report, column.of), column.scale));
  const auto bad = std::ranges::count_if(
      report.nodes, [](const NodeFigures& node) { return !node.marks.empty(); });
  text += fmt::format("\n{} of {} nodes marked\n", bad, report.nodes.size());
  for (const std::string& remark : report.remarks) text += "note: " + remark + '\n';
  return text;
}

std::string to_json(const NetworkReport& report) {
  nlohmann::ordered_json json{{"device", report.device},
                              {"products", name_of(report.products)},
                              {"remarks", report.remarks},
                              {"nodes", nlohmann::ordered_json::array()}};
  for (const NodeFigures& node : report.nodes)
    json["nodes"].push_back({{"host", node.host},
                             {"ranks", node.ranks},
                             {"flops_per_s", node.flops_per_s},
                             {"memory_bytes_per_s", node.memory_bytes_per_s},
                             {"inside_bytes_per_s", node.inside_bytes_per_s},
                             {"to_next_bytes_per_s", node.next.out},
                             {"from_next_bytes_per_s", node.next.in},
                             {"to_previous_bytes_per_s", node.previous.out},
                             {"from_previous_bytes_per_s", node.previous.in},
                             {"adapters_bytes_per_s", node.adapters_bytes_per_s},
                             {"network", node.network},
                             {"marks", node.marks}});
  return json.dump(2) + '\n';
}

std::string network_of_log(const std::string& log) {
  // Newer versions log "Assigned NET plugin NAME to comm", older ones "Using network NAME".
  constexpr std::string_view kOld = "Using network ", kNew = "Assigned NET plugin ",
                             kEnd = " to comm";
  for (const std::string_view begin : {kNew, kOld}) {
    const std::size_t at = log.find(begin);
    if (at == std::string::npos) continue;
    std::string name = log.substr(at + begin.size());
    name.resize(std::min(name.find('\n'), name.size()));
    if (begin == kNew) name.resize(std::min(name.rfind(kEnd), name.size()));
    return name;
  }
  return {};
}

}  // namespace axonn
