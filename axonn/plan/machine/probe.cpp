#include "axonn/plan/machine/probe.h"

#include <algorithm>
#include <array>
#include <ctime>
#include <string>
#include <vector>

#include <fmt/chrono.h>
#include <fmt/format.h>
#include <unistd.h>

#include "axonn/base/check.h"
#include "axonn/base/clock.h"
#include "axonn/base/host.h"
#include "axonn/base/log.h"
#include "axonn/plan/machine/fit.h"
#include "axonn/plan/machine/probe_parts.h"

namespace axonn {

namespace {

using HostName = std::array<std::uint8_t, 256>;

/// The number of ranks on the first rank's host. Throws UsageError if other hosts have more or
/// fewer, or if a host's ranks are not consecutive.
int ranks_of_host(Communicator& world) {
  HostName mine{};
  ::gethostname(reinterpret_cast<char*>(mine.data()), mine.size() - 1);
  std::vector<std::uint8_t> all(mine.size() * world.size());
  world.all_gather(buffer(std::span(all)), buffer(std::span<std::uint8_t>(mine)), "probe").wait();
  const auto same = [&](int a, int b) {
    const auto begin = [&](int rank) { return all.begin() + rank * std::ssize(mine); };
    return std::equal(begin(a), begin(a) + std::ssize(mine), begin(b));
  };
  int ranks = 1;
  while (ranks < world.size() && same(0, ranks)) ++ranks;
  for (int rank = 0; rank < world.size(); ++rank)
    if (world.size() % ranks != 0 || !same(rank, rank / ranks * ranks) ||
        (rank + ranks < world.size() && same(rank, rank + ranks)))
      refuse(
          "probe: wanted the same number of ranks on each node, with consecutive numbers; start ",
          "the ranks like this, or set --devices-per-node");
  return ranks;
}

std::string today() { return fmt::format("{:%Y-%m-%d}", fmt::localtime(std::time(nullptr))); }

/// Ranks that share a core take turns of some milliseconds. A mean over only a few turns would
/// depend on which rank had the core.
constexpr double kWindow = 0.02, kQuickWindow = 0.002;

double window_of(const ProbeContext& ctx) { return ctx.options.quick ? kQuickWindow : kWindow; }

/// A matrix of equal small numbers: a CPU may be faster on zeros, and sums must stay finite.
Tensor filled(Backend& backend, Arena& arena, std::int64_t rows, std::int64_t cols, DType dtype) {
  const std::vector<float> row(cols, 0.01f);
  Tensor source(arena, 1, cols, DType::f32), matrix(arena, rows, cols, dtype);
  backend.device().copy_from_host(source.view().data, row.data(), source.bytes());
  for (std::int64_t r = 0; r < rows; ++r)
    backend.cast(matrix.view().row_range(r, 1), source.view());
  return matrix;
}

ProductRate probe_products(const ProbeContext& ctx, DType dtype, double launch_s) {
  const std::vector<std::int64_t> sizes = ctx.options.quick
                                              ? std::vector<std::int64_t>{16, 64, 256}
                                              : std::vector<std::int64_t>{16, 64, 256, 1024};
  Arena arena(ctx.backend.device());
  const std::int64_t most = sizes.back();
  const Tensor a = filled(ctx.backend, arena, most, most, dtype),
               b = filled(ctx.backend, arena, most, most, dtype), out(arena, most, most, dtype);
  const auto part = [](const Tensor& tensor, std::int64_t rows, std::int64_t cols) {
    return View{tensor.view().data, tensor.dtype(), rows, cols, cols};
  };
  std::vector<TimedProduct> products;
  std::vector<double> seconds;
  for (const std::int64_t m : sizes)
    for (const std::int64_t n : sizes)
      for (const std::int64_t k : sizes)
        // The three products of a layer: its output, its input's gradient, its weight's.
        for (const auto& [first, second] :
             {std::pair{false, true}, std::pair{false, false}, std::pair{true, false}}) {
          const Matmul product{.out = part(out, m, n),
                               .a = first ? part(a, k, m) : part(a, m, k),
                               .b = second ? part(b, n, k) : part(b, k, n),
                               .a_transposed = first,
                               .b_transposed = second};
          products.push_back({m, n, k, 0});
          seconds.push_back(
              seconds_of_one(ctx.backend, window_of(ctx), [&] { ctx.backend.matmul(product); }));
        }
  seconds = mean_over_ranks(ctx.world, seconds);
  for (std::size_t i = 0; i < products.size(); ++i)
    products[i].seconds = std::max(seconds[i] - launch_s, seconds[i] / 2);
  const ProductRate rate = fit_product_rate(products);
  ctx.report(
      fmt::format("products {:<5} {:9.1f} Gflop/s, half the rate at m {:.0f}, n {:.0f}, k {:.0f}",
                  name_of(dtype), rate.flops_per_s * 1e-9, rate.half_m, rate.half_n, rate.half_k));
  return rate;
}

/// Measures launch_s and the memory's rate, with additions of small and of large arrays.
void probe_memory(const ProbeContext& ctx, Machine& machine) {
  constexpr std::int64_t kSmallest = 64, kBeyondCaches = 16 << 20;  // elements
  Arena arena(ctx.backend.device());
  const std::int64_t most = ctx.options.quick ? kBeyondCaches / 64 : kBeyondCaches;
  const Tensor a(arena, 1, most, DType::f32), b(arena, 1, most, DType::f32),
      out(arena, 1, most, DType::f32);
  ctx.backend.device().fill_zero(a.view().data, a.bytes());
  ctx.backend.device().fill_zero(b.view().data, b.bytes());
  std::vector<double> counts, seconds;
  for (std::int64_t count = kSmallest; count <= most; count *= 16) counts.push_back(count);
  if (static_cast<std::int64_t>(counts.back()) != most) counts.push_back(most);
  for (const double count : counts) {
    const auto part = [&](const Tensor& tensor) {
      return tensor.view().col_range(0, static_cast<std::int64_t>(count));
    };
    seconds.push_back(seconds_of_one(ctx.backend, window_of(ctx),
                                     [&] { ctx.backend.add(part(out), part(a), part(b)); }));
  }
  seconds = mean_over_ranks(ctx.world, seconds);
  machine.launch_s = std::ranges::min(seconds);  // the work on 64 elements is negligible
  machine.memory_bytes_per_s = fit_rows_rate(
      std::vector<TimedRows>{{3 * 4 * counts.back(), seconds.back()}}, machine.launch_s);
  ctx.report(fmt::format("memory         {:9.2f} GB/s; an operation takes at least {:.2f} us",
                         machine.memory_bytes_per_s * 1e-9, machine.launch_s * 1e6));
}

/// Measures the rates of products, over shapes, transpositions and types.
void probe_products(const ProbeContext& ctx, Machine& machine) {
  machine.f32 = probe_products(ctx, DType::f32, machine.launch_s);
  machine.bf16 = probe_products(ctx, DType::bf16, machine.launch_s);
}

}  // namespace

std::vector<double> mean_over_ranks(Communicator& world, std::vector<double> values) {
  world.all_reduce(buffer(std::span(values)), "probe").wait();
  for (double& value : values) value /= world.size();
  return values;
}

double seconds_of_one(Backend& backend, double seconds, const std::function<void()>& run) {
  Stream& stream = backend.device().compute();
  run();  // the library prepares its kernel
  stream.synchronize();
  const double start = now_seconds();
  double taken = 0;
  std::int64_t calls = 0;
  for (std::int64_t more = 1; taken < seconds; more = calls) {  // twice as many each time
    for (std::int64_t i = 0; i < more; ++i) run();
    stream.synchronize();
    calls += more;
    taken = now_seconds() - start;
  }
  return taken / static_cast<double>(calls);
}

Machine probe(Communicator& world, const ProbeOptions& options) {
  if (world.size() < 2)
    refuse(
        "probe needs at least two ranks, because it measures links between them; set --ranks 2, ",
        "or start it under mpirun");
  if (options.devices_per_node > 0 && world.size() % options.devices_per_node != 0)
    refuse("--devices-per-node ", options.devices_per_node, " does not divide the ", world.size(),
           " ranks");
  const auto backend = make_cpu_backend(options.threads);
  const ProbeContext ctx{.world = world, .backend = *backend, .options = options};
  Machine machine{.name = options.name, .device = processor_name()};
  machine.devices_per_node =
      options.devices_per_node > 0 ? options.devices_per_node : ranks_of_host(world);
  const int nodes = world.size() / machine.devices_per_node;
  machine.source =
      fmt::format("probed {} with {} ranks on {} node{}, {} thread{} each", today(), world.size(),
                  nodes, nodes == 1 ? "" : "s", options.threads, options.threads == 1 ? "" : "s");
  double memory = available_memory() / machine.devices_per_node;
  world.all_reduce(buffer(std::span(&memory, 1)), "probe", ReduceOp::min).wait();
  machine.memory_bytes = memory;
  ctx.report(fmt::format("{}: {}; {} of memory per rank", machine.device, machine.source,
                         format_bytes(static_cast<std::int64_t>(memory))));
  const double start = now_seconds();
  probe_memory(ctx, machine);
  probe_products(ctx, machine);
  probe_steps(ctx, machine);
  probe_links(ctx, machine);
  ctx.report(fmt::format("took {:.0f} s", now_seconds() - start));
  return machine;
}

}  // namespace axonn
