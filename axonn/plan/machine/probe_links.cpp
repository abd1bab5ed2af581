#include <algorithm>
#include <array>
#include <vector>

#include <fmt/format.h>

#include "axonn/base/clock.h"
#include "axonn/base/log.h"
#include "axonn/grid/grid_shape.h"
#include "axonn/plan/machine/fit.h"
#include "axonn/plan/machine/probe_parts.h"
#include "axonn/plan/simulate.h"

namespace axonn {

namespace {

constexpr int kLeastRounds = 8;  // timed calls, however long one takes

constexpr std::array kCollectives = {Operation::all_gather, Operation::reduce_scatter,
                                     Operation::all_reduce};

/// The group shapes in grids of so many ranks, except groups of one.
std::vector<GroupShape> group_shapes(int ranks) {
  std::vector<GroupShape> shapes;
  for (int inner = 1; inner < ranks; ++inner)
    for (int size = 2; inner * size <= ranks; ++size)
      if (ranks % (inner * size) == 0) shapes.push_back({inner, size});
  return shapes;
}

/// Compute between collectives. In a step, too, ranks start a collective after compute, and those
/// that share a core not at the same time: waiting for the last is part of a collective's time.
class Between {
 public:
  explicit Between(const ProbeContext& ctx)
      : backend_(ctx.backend),
        arena_(backend_.device()),
        a_(arena_, kRows, kRows, DType::f32),
        out_(arena_, kRows, kRows, DType::f32) {
    backend_.device().fill_zero(a_.view().data, a_.bytes());
    const double once = seconds_of_one(backend_, kWindow, [&] { product(); });
    const double slowest = mean_over_ranks(ctx.world, {once}).front();
    products_ = std::max(1, static_cast<int>(kLength / slowest));
  }

  void operator()() {
    for (int i = 0; i < products_; ++i) product();
    backend_.device().compute().synchronize();
  }

 private:
  static constexpr std::int64_t kRows = 128;
  static constexpr double kWindow = 0.02, kLength = 2e-3;

  void product() { backend_.matmul({.out = out_.view(), .a = a_.view(), .b = a_.view()}); }

  Backend& backend_;
  Arena arena_;
  Tensor a_, out_;
  int products_ = 1;
};

/// Buffers for collectives of up to so many bytes.
class Buffers {
 public:
  Buffers(Backend& backend, std::int64_t bytes)
      : arena_(backend.device()),
        whole_(arena_, 1, bytes / bytes_of(DType::f32), DType::f32),
        piece_(arena_, 1, bytes / bytes_of(DType::f32) / 2, DType::f32) {
    backend.device().fill_zero(whole_.view().data, whole_.bytes());
    backend.device().fill_zero(piece_.view().data, piece_.bytes());
  }

  /// Starts a collective of about so many bytes; exactly, of bytes_of_whole().
  Work start(Communicator& group, Operation operation, std::int64_t bytes) {
    Buffer whole{whole_.view().data, bytes_of_whole(group, bytes) / bytes_of(DType::f32),
                 DType::f32};
    const Buffer piece{piece_.view().data, whole.count / group.size(), DType::f32};
    if (operation == Operation::all_gather) return group.all_gather(whole, piece, "probe");
    if (operation == Operation::reduce_scatter) return group.reduce_scatter(piece, whole, "probe");
    return group.all_reduce(whole, "probe");
  }

  static std::int64_t bytes_of_whole(const Communicator& group, std::int64_t bytes) {
    const std::int64_t unit = group.size() * bytes_of(DType::f32);
    return std::max(bytes / unit, std::int64_t{1}) * unit;
  }

 private:
  Arena arena_;
  Tensor whole_, piece_;
};

/// Seconds per call of run, averaged over ranks and over calls for about `seconds`.
double seconds_of_all(Communicator& world, double seconds, const std::function<void()>& run) {
  const auto time = [&](int count) {
    world.barrier("probe");
    const double start = now_seconds();
    for (int i = 0; i < count; ++i) run();
    return mean_over_ranks(world, {now_seconds() - start}).front() / count;
  };
  const double once = time(1);
  return time(std::clamp(static_cast<int>(seconds / once), kLeastRounds, 50));
}

std::vector<GroupRate> probe_group(const ProbeContext& ctx, const GroupShape& shape,
                                   const std::vector<std::int64_t>& sizes, Between& work) {
  const int rank = ctx.world.rank(), block = shape.inner * shape.size;
  const auto group = ctx.world.split(rank / block * shape.inner + rank % shape.inner, "probe");
  Buffers buffers(ctx.backend, sizes.back() + 4096);
  const double window = ctx.options.quick ? 0.01 : 0.2;
  std::vector<GroupRate> rates;
  std::string line = fmt::format("  {:>3} apart {:>4} members", shape.inner, shape.size);
  for (const Operation operation : kCollectives) {
    std::vector<TimedCollective> times;
    for (const std::int64_t bytes : sizes) {
      const double with = seconds_of_all(ctx.world, window, [&] {
        work();
        buffers.start(*group, operation, bytes).wait();
      });
      const double without = seconds_of_all(ctx.world, window / 3, [&] { work(); });
      times.push_back({.operation = std::string(name_of(operation)),
                       .size = shape.size,
                       .bytes = Buffers::bytes_of_whole(*group, bytes),
                       // A smaller difference is noise.
                       .seconds = std::max(with - without, 1e-7)});
    }
    GroupRate rate = fit_group_rate(times);
    rate.operation = name_of(operation);
    rate.inner = shape.inner;
    rates.push_back(rate);
    line += fmt::format("  {} {:.3f} GB/s + {:.0f} us", name_of(operation), rate.bytes_per_s * 1e-9,
                        rate.latency_s * 1e6);
  }
  ctx.report(line);
  return rates;
}

double median(std::vector<double> values) {
  std::ranges::sort(values);
  return values.empty() ? 0 : values[values.size() / 2];
}

/// Sets the rates of groups that were not measured, between nodes and inside a node, to the medians
/// of those that were.
void set_links(Machine& machine) {
  std::vector<double> node_rates, node_latencies, device_rates, device_latencies;
  for (const GroupRate& group : machine.groups) {
    const bool leaves = group.inner * group.size > machine.devices_per_node;
    const int share = leaves ? std::min(machine.devices_per_node, group.inner) : 1;
    (leaves ? node_rates : device_rates).push_back(group.bytes_per_s * share);
    (leaves ? node_latencies : device_latencies).push_back(group.latency_s);
  }
  machine.node_bytes_per_s = median(node_rates);
  machine.node_latency_s = median(node_latencies);
  machine.device_bytes_per_s = median(device_rates);
  machine.device_latency_s = median(device_latencies);
}

/// Those of compute and a collective of all ranks: means over the three collectives.
Slowdowns probe_slowdowns(const ProbeContext& ctx, std::int64_t bytes, Between& work) {
  constexpr double kMost = 10;  // largest slowdown: with more, overlap is useless anyway
  Buffers buffers(ctx.backend, bytes + 4096);
  const double window = ctx.options.quick ? 0.02 : 0.4;
  Slowdowns mean;
  for (const Operation operation : kCollectives) {
    const double through = seconds_of_all(
        ctx.world, window, [&] { buffers.start(ctx.world, operation, bytes).wait(); });
    const double alone = seconds_of_all(ctx.world, window, [&] { work(); });
    // So little work that the collective certainly outlasts it.
    const int pieces = std::max(1, static_cast<int>(0.2 * through / alone));
    double worked = 0;
    int rounds = 0;
    const double both = seconds_of_all(ctx.world, 2 * window, [&] {
      Work pending = buffers.start(ctx.world, operation, bytes);
      const double start = now_seconds();
      for (int i = 0; i < pieces; ++i) work();
      worked += now_seconds() - start;
      ++rounds;
      pending.wait();
    });
    const double under = mean_over_ranks(ctx.world, {worked / rounds}).front();
    // The rest of the collective, after the work was done, ran alone.
    const double done = std::max(through - (both - under), under / (1 + kMost));
    mean.of_compute += std::max(0.0, under / (pieces * alone) - 1) / kCollectives.size();
    mean.of_collective += std::max(0.0, under / done - 1) / kCollectives.size();
  }
  return mean;
}

}  // namespace

void probe_links(const ProbeContext& ctx, Machine& machine) {
  const std::vector<std::int64_t> sizes =
      ctx.options.quick ? std::vector<std::int64_t>{4 << 10, 256 << 10}
                        : std::vector<std::int64_t>{8 << 10, 256 << 10, 4 << 20};
  Between work(ctx);
  ctx.report("groups (all groups of one shape at once)");
  for (const GroupShape& shape : group_shapes(ctx.world.size()))
    for (GroupRate& rate : probe_group(ctx, shape, sizes, work)) machine.groups.push_back(rate);
  set_links(machine);
  const Slowdowns slowdowns = probe_slowdowns(ctx, sizes.back(), work);
  machine.overlap_slowdown = slowdowns.of_compute;
  machine.collective_slowdown = slowdowns.of_collective;
  ctx.report(fmt::format("overlap: compute takes {:.0f} % longer, and a collective {:.0f} %",
                         100 * slowdowns.of_compute, 100 * slowdowns.of_collective));
}

}  // namespace axonn
