#include "axonn/plan/planner/machine/network_probe.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <sstream>

#include <fmt/format.h>
#include <unistd.h>

#include "axonn/foundation/base/clock.h"
#include "axonn/foundation/base/host.h"
#include "axonn/plan/planner/machine/measuring.h"
#include "axonn/ranks/comm/adapters.h"
#include "axonn/ranks/comm/device/device_communicator.h"
#include "axonn/ranks/comm/texts.h"
#include "axonn/run/load/devices.h"

namespace axonn {

namespace {

/// The nodes of the ranks, in the order of their first ranks.
struct Nodes {
  std::vector<int> of;                  // by rank
  std::vector<std::vector<int>> ranks;  // by node, ascending
};

Nodes nodes_of(Communicator& world, int devices_per_node) {
  auto mine = static_cast<std::int64_t>(std::hash<std::string>{}(host_name()));
  if (devices_per_node > 0) mine = world.rank() / devices_per_node;
  std::vector<std::int64_t> hosts(world.size());
  world.all_gather(buffer(std::span(hosts)), buffer(std::span(&mine, 1)), "probe").wait();
  Nodes nodes;
  std::map<std::int64_t, int> numbers;
  for (int rank = 0; rank < world.size(); ++rank) {
    const auto [found, is_new] = numbers.try_emplace(hosts[rank], std::ssize(nodes.ranks));
    if (is_new) nodes.ranks.emplace_back();
    nodes.of.push_back(found->second);
    nodes.ranks[found->second].push_back(rank);
  }
  return nodes;
}

/// While it lives, NCCL logs its start into a file, unless the user has chosen what it logs. NCCL
/// has no call that tells its network.
class NcclLog {
 public:
  explicit NcclLog(bool wanted) {
    if (!wanted || std::getenv("NCCL_DEBUG") || std::getenv("NCCL_DEBUG_FILE")) return;
    std::error_code error;
    const auto folder = std::filesystem::temp_directory_path(error);
    if (error) return;
    file_ = (folder / concat("axonn-nccl-", ::getpid(), ".log")).string();
    setenv("NCCL_DEBUG", "INFO", 1);
    setenv("NCCL_DEBUG_SUBSYS", "INIT,NET", 1);
    setenv("NCCL_DEBUG_FILE", file_.c_str(), 1);
  }
  NcclLog(const NcclLog&) = delete;
  NcclLog& operator=(const NcclLog&) = delete;
  ~NcclLog() {
    if (file_.empty()) return;
    for (const char* name : {"NCCL_DEBUG", "NCCL_DEBUG_SUBSYS", "NCCL_DEBUG_FILE"}) unsetenv(name);
    std::error_code ignored;
    std::filesystem::remove(file_, ignored);
  }

  std::string network() const {
    std::ifstream file(file_);
    return network_of_log({std::istreambuf_iterator<char>(file), {}});
  }

 private:
  std::string file_;
};

/// Figures that a rank measures by itself.
struct RankFigures {
  double flops_per_s = 0, memory_bytes_per_s = 0, inside_bytes_per_s = 0;
  double next_out = 0, next_in = 0;  // while its node is the first of a pair

  static constexpr int kCount = 5;
  std::array<double*, kCount> all() {
    return {&flops_per_s, &memory_bytes_per_s, &inside_bytes_per_s, &next_out, &next_in};
  }
};

/// A measurement of one rank.
class NodeProbe {
 public:
  NodeProbe(Communicator& world, Communicator& links, Backend& backend, const Nodes& nodes,
            bool quick)
      : world_(world),
        links_(links),
        backend_(backend),
        nodes_(nodes),
        node_(nodes.of[world.rank()]),
        place_(static_cast<int>(std::ranges::find(nodes.ranks[node_], world.rank()) -
                                nodes.ranks[node_].begin())),
        on_gpu_(!backend.device().uuid().empty()),
        window_(quick ? 0.01 : 0.1),
        least_messages_(quick ? 2 : 12) {}

  DType product_type() const { return on_gpu_ ? DType::bf16 : DType::f32; }

  void products() {
    const std::int64_t size = on_gpu_ ? 4096 : 512;
    Arena arena(backend_.device());
    const Tensor a = filled(backend_, arena, size, size, product_type()),
                 out(arena, size, size, product_type());
    const double seconds =
        best([&] { backend_.matmul({.out = out.view(), .a = a.view(), .b = a.view()}); });
    mine.flops_per_s = 2.0 * static_cast<double>(size * size * size) / seconds;
  }

  void memory() {
    const std::int64_t count = on_gpu_ ? 64 << 20 : 8 << 20;  // beyond caches
    Arena arena(backend_.device());
    const Tensor a(arena, 1, count, DType::f32), out(arena, 1, count, DType::f32);
    backend_.device().fill_zero(a.view().data, a.bytes());
    const double seconds = best([&] { backend_.run(ops::Add{out.view(), a.view(), a.view()}); });
    mine.memory_bytes_per_s = 2.0 * static_cast<double>(a.bytes()) / seconds;
  }

  /// An all-gather of each node, all at once.
  void inside() {
    const auto group = links_.split(node_, "probe");
    Arena arena(backend_.device());
    const std::int64_t part = message_bytes() / bytes_of(DType::f32), size = group->size();
    const Tensor out(arena, 1, part * size, DType::f32), inp(arena, 1, part, DType::f32);
    backend_.device().fill_zero(inp.view().data, inp.bytes());
    const auto run = [&](std::int64_t count) {
      for (std::int64_t i = 0; i < count; ++i)
        group
            ->all_gather({out.view().data, part * size, DType::f32},
                         {inp.view().data, part, DType::f32}, "probe")
            .wait();
      backend_.device().compute().synchronize();
    };
    run(1);  // connects
    world_.barrier("probe");
    const double first = timed([&] { run(1); });
    std::int64_t count = count_for(first);
    group_maximum(*group, count);
    const double seconds = timed([&] { run(count); });
    if (size > 1)
      mine.inside_bytes_per_s =
          static_cast<double>(count * (size - 1) * inp.bytes()) / std::max(seconds, 1e-9);
  }

  /// The links between each node and the next one, in rounds: first those of nodes 0, 2, ... to the
  /// next, then those of nodes 1, 3, ...; of an odd number of nodes, the last to the first alone.
  void links() {
    const int count = static_cast<int>(nodes_.ranks.size());
    for (int round = 0; round < 3; ++round) {
      const auto begins = [&](int node) {
        const bool last = node == count - 1;
        if (count < 2 || (last && count == 2)) return false;
        return (last && count % 2 == 1 ? 2 : node % 2) == round;
      };
      const int before = (node_ + count - 1) % count, after = (node_ + 1) % count;
      const int first = begins(node_) ? node_ : begins(before) ? before : -1;
      const int other = first == node_ ? after : before;
      for (const bool forward : {true, false}) {
        world_.barrier("probe");
        if (first < 0 || place_ >= std::ssize(nodes_.ranks[other])) continue;
        const bool sends = (first == node_) == forward;
        const double rate = transfer(nodes_.ranks[other][place_], sends);
        if (first == node_) (forward ? mine.next_out : mine.next_in) = rate;
      }
    }
  }

  RankFigures mine;

 private:
  std::int64_t message_bytes() const { return on_gpu_ ? 16 << 20 : 1 << 20; }

  static double timed(const std::function<void()>& run) {
    const double start = now_seconds();
    run();
    return now_seconds() - start;
  }
  std::int64_t count_for(double seconds_of_one) const {
    return std::clamp(static_cast<std::int64_t>(window_ / std::max(seconds_of_one, 1e-6)),
                      std::int64_t{1}, std::int64_t{256});
  }
  static void group_maximum(Communicator& group, std::int64_t& count) {
    group.all_reduce(buffer(std::span(&count, 1)), "probe", ReduceOp::max).wait();
  }

  /// Seconds of a call: the best of three windows, in each of which all ranks compute. A bad node
  /// is slow in all of them; what else runs on a good one is not there for long.
  double best(const std::function<void()>& run) {
    double seconds = 1e30;
    for (int i = 0; i < 3; ++i) {
      world_.barrier("probe");
      seconds = std::min(seconds, seconds_of_one(backend_, window_ / 2, run));
    }
    return seconds;
  }

  /// Bytes per second of messages one way between this rank and a partner, which agree on the
  /// receiver's time and on the number of messages that it allows.
  double transfer(int partner, bool sends) {
    Arena arena(backend_.device());
    const Tensor data(arena, 1, message_bytes() / bytes_of(DType::f32), DType::f32);
    backend_.device().fill_zero(data.view().data, data.bytes());
    const Buffer message{data.view().data, data.bytes() / bytes_of(DType::f32), DType::f32};
    const auto run = [&](std::int64_t count) {
      for (std::int64_t i = 0; i < count; ++i)
        (sends ? links_.send(message, partner, "probe") : links_.recv(message, partner, "probe"))
            .wait();
      backend_.device().compute().synchronize();
    };
    const auto receivers = [&](double number) {
      const Buffer told = buffer(std::span(&number, 1));
      (sends ? world_.recv(told, partner, "probe") : world_.send(told, partner, "probe")).wait();
      return number;
    };
    run(1);  // connects
    const double first = receivers(timed([&] { run(1); }));
    const std::int64_t count = std::max(count_for(first), least_messages_);
    run(1);  // from the end of this message on, the receiver waits for the link alone
    const double seconds = receivers(timed([&] { run(count); }));
    return static_cast<double>(count * data.bytes()) / std::max(seconds, 1e-9);
  }

  Communicator &world_, &links_;
  Backend& backend_;
  const Nodes& nodes_;
  int node_, place_;
  bool on_gpu_;
  double window_;
  std::int64_t least_messages_;  // more than the buffers of a busy host's sockets hold
};

/// Brings the figures of all ranks together. Collective.
std::vector<RankFigures> gathered(Communicator& world, RankFigures mine) {
  std::array<double, RankFigures::kCount> sent{};
  std::ranges::transform(mine.all(), sent.begin(), [](const double* value) { return *value; });
  std::vector<double> received(sent.size() * world.size());
  world.all_gather(buffer(std::span(received)), buffer(std::span<double>(sent)), "probe").wait();
  std::vector<RankFigures> all(world.size());
  auto value = received.begin();
  for (RankFigures& figures : all)
    for (double* const field : figures.all()) *field = *value++;
  return all;
}

/// The figures of nodes from those of their ranks.
std::vector<NodeFigures> node_figures(const Nodes& nodes, const std::vector<RankFigures>& ranks) {
  const std::size_t count = nodes.ranks.size();
  std::vector<NodeFigures> all(count);
  for (std::size_t i = 0; i < count; ++i) {
    NodeFigures& node = all[i];
    node.ranks = static_cast<int>(nodes.ranks[i].size());
    const auto slowest = [&](double RankFigures::*figure) {
      double least = ranks[nodes.ranks[i].front()].*figure;
      for (const int rank : nodes.ranks[i]) least = std::min(least, ranks[rank].*figure);
      return least;
    };
    node.flops_per_s = slowest(&RankFigures::flops_per_s);
    node.memory_bytes_per_s = slowest(&RankFigures::memory_bytes_per_s);
    node.inside_bytes_per_s = slowest(&RankFigures::inside_bytes_per_s);
    for (const int rank : nodes.ranks[i]) {
      node.next.out += ranks[rank].next_out;
      node.next.in += ranks[rank].next_in;
    }
  }
  for (std::size_t i = 0; i < count && count > 1; ++i)
    all[(i + 1) % count].previous = {all[i].next.in, all[i].next.out};
  if (count == 2) all[0].previous = {};
  return all;
}

}  // namespace

NetworkReport probe_network(Communicator& world, const ProbeOptions& options) {
  const Nodes nodes = nodes_of(world, options.devices_per_node);
  const int node = nodes.of[world.rank()];
  const bool first_of_node = nodes.ranks[node].front() == world.rank();
  const NcclLog log(is_gpu(options.device) && (!world.in_one_process() || world.rank() == 0));
  world.barrier("the log of NCCL");  // threads must not read the environment while one changes it
  Config config;
  config.parallelism.device = options.device;
  config.parallelism.transport = options.transport;
  const auto backend = make_backend(config, world, options.threads);
  const auto device_world = make_device_world(config.parallelism, world, backend->arena());
  NodeProbe probe(world, device_world ? *device_world : world, *backend, nodes, options.quick);
  probe.products();
  probe.memory();
  probe.inside();
  probe.links();

  NetworkReport report{.device = device_world ? backend->device().name() : processor_name(),
                       .products = probe.product_type(),
                       .nodes = node_figures(nodes, gathered(world, probe.mine)),
                       .remarks = backend->take_remarks()};
  double advertised = 0;
  for (const NetworkAdapter& adapter : network_adapters()) advertised += adapter.bytes_per_s;
  int rank = 0;
  gather_texts(world, first_of_node ? concat(advertised, ' ', host_name(), ' ', log.network()) : "",
               [&](const std::string& text) {
                 NodeFigures& figures = report.nodes[nodes.of[rank++]];
                 if (text.empty()) return;
                 std::istringstream words(text);
                 words >> figures.adapters_bytes_per_s >> figures.host >> std::ws;
                 std::getline(words, figures.network);
               });
  return report;
}

}  // namespace axonn
