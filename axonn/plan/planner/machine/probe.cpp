#include "axonn/plan/planner/machine/probe.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <ctime>
#include <map>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include <fmt/chrono.h>
#include <fmt/format.h>
#include <unistd.h>

#include "axonn/compute/ops/forwarding_backend.h"
#include "axonn/compute/tensor/file_memory.h"
#include "axonn/compute/tensor/gpu/cuda_device.h"
#include "axonn/compute/tensor/gpu/gpu_platform.h"
#include "axonn/foundation/base/check.h"
#include "axonn/foundation/base/clock.h"
#include "axonn/foundation/base/host.h"
#include "axonn/foundation/base/log.h"
#include "axonn/network/model/families/family.h"
#include "axonn/plan/measure/dry_step.h"
#include "axonn/plan/planner/machine/fit.h"
#include "axonn/plan/planner/machine/measuring.h"
#include "axonn/plan/planner/simulate.h"
#include "axonn/ranks/comm/device/device_communicator.h"
#include "axonn/ranks/comm/self.h"
#include "axonn/run/config/prepared_run.h"
#include "axonn/run/load/devices.h"
#include "axonn/run/train/training.h"

namespace axonn {

namespace {

/// The inputs of a part of a probe. Each part sets its figures of the machine, the same on all
/// ranks.
struct ProbeContext {
  Communicator& world;
  Communicator& links;  // of the same ranks, for the device's memory
  Backend& backend;
  const ProbeOptions& options;
  ProgressLine& progress;
  std::int64_t parts, begun = 0;

  bool on_gpu() const { return !backend.device().uuid().empty(); }
  void begin_part() { progress(begun++, parts); }
  void report(const std::string& line) const {
    progress.clear();
    if (world.rank() == 0 && options.report) options.report(line);
  }
  /// Seconds for one operation. Ranks that share a core take turns of some milliseconds: a mean
  /// over only a few turns would depend on which rank had the core.
  double window() const { return options.quick ? 0.002 : 0.02; }
};

/// The mean over ranks of each value. Collective.
std::vector<double> mean_over_ranks(Communicator& world, std::vector<double> values) {
  world.all_reduce(buffer(std::span(values)), "probe").wait();
  for (double& value : values) value /= world.size();
  return values;
}

/// The number of ranks on the first rank's host. Throws UsageError if other hosts have more or
/// fewer, or if a host's ranks are not consecutive.
int ranks_of_host(Communicator& world) {
  std::array<char, 256> name{};
  ::gethostname(name.data(), name.size() - 1);
  auto mine = static_cast<std::int64_t>(std::hash<std::string>{}(name.data()));
  std::vector<std::int64_t> hosts(world.size());
  world.all_gather(buffer(std::span(hosts)), buffer(std::span(&mine, 1)), "probe").wait();
  const auto ranks = static_cast<int>(std::ranges::count(hosts, hosts.front()));
  for (int rank = 0; rank < world.size(); ++rank)
    if (world.size() % ranks != 0 || hosts[rank] != hosts[rank / ranks * ranks] ||
        (rank + ranks < world.size() && hosts[rank] == hosts[rank + ranks]))
      refuse(
          "probe: wanted the same number of ranks on each node, with consecutive numbers; start ",
          "the ranks like this, or set --devices-per-node");
  return ranks;
}

/// Bytes of memory that this rank may use: its share of its GPU's, or of its node's. Collective.
double memory_of_rank(const Device& device, Communicator& world, int devices_per_node) {
  auto mine = static_cast<std::int64_t>(std::hash<std::string>{}(device.uuid()));
  std::vector<std::int64_t> all(world.size());
  world.all_gather(buffer(std::span(all)), buffer(std::span(&mine, 1)), "probe").wait();
  double memory = available_memory() / devices_per_node;
  for (const CudaGpu& gpu : cuda_status().gpus)
    if (gpu.uuid == device.uuid())
      memory = static_cast<double>(gpu.memory_bytes / std::ranges::count(all, mine));
  world.all_reduce(buffer(std::span(&memory, 1)), "probe", ReduceOp::min).wait();
  return memory;
}

/// Measures the disk of each node, to which all its ranks write at once, as in a run.
void probe_disk(ProbeContext& ctx, Machine& machine) {
  if (ctx.options.disk.empty()) return;
  ctx.begin_part();
  const std::int64_t of_node = (ctx.options.quick ? 64 : 1024) * std::int64_t{1 << 20},
                     bytes = std::max(of_node / machine.devices_per_node, std::int64_t{1 << 24});
  FileMemory file(ctx.options.disk);
  ctx.world.barrier("probe");
  const double seconds = mean_over_ranks(ctx.world, {file.time_transfers(bytes)}).front();
  machine.disk_bytes_per_s =
      2 * static_cast<double>(machine.devices_per_node * bytes) / seconds;  // there and back
  ctx.report(fmt::format("disk of a node: {}/s",
                         format_bytes(static_cast<std::int64_t>(machine.disk_bytes_per_s))));
}

std::string today() { return fmt::format("{:%Y-%m-%d}", fmt::localtime(std::time(nullptr))); }

/// Measures the rate of products of this type, over shapes and transpositions.
ProductRate probe_products(ProbeContext& ctx, DType dtype, double launch_s) {
  ctx.begin_part();
  std::vector<std::int64_t> sizes{16, 64, 256};
  if (!ctx.options.quick) sizes.push_back(1024);
  if (!ctx.options.quick && ctx.on_gpu()) sizes = {64, 256, 1024, 4096};
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
              seconds_of_one(ctx.backend, ctx.window(), [&] { ctx.backend.matmul(product); }));
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
void probe_memory(ProbeContext& ctx, Machine& machine) {
  ctx.begin_part();
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
    seconds.push_back(seconds_of_one(ctx.backend, ctx.window(), [&] {
      ctx.backend.run(ops::Add{part(out), part(a), part(b)});
    }));
  }
  seconds = mean_over_ranks(ctx.world, seconds);
  machine.launch_s = std::ranges::min(seconds);  // the work on 64 elements is negligible
  const TimedRows largest{3 * 4 * counts.back(), seconds.back()};
  machine.memory_bytes_per_s = fit_rows_rate({&largest, 1}, machine.launch_s);
  ctx.report(fmt::format("memory         {:9.2f} GB/s; an operation takes at least {:.2f} us",
                         machine.memory_bytes_per_s * 1e-9, machine.launch_s * 1e6));
}

/// Records the time of each operation of another backend. Waits for the device before and after
/// each, so that operations do not overlap.
class TimedBackend final : public ForwardingBackend {
 public:
  using ForwardingBackend::ForwardingBackend;

  /// Nothing is fused, so that the operations are those of a dry step.
  bool fuses(const Matmul&) override { return false; }

  /// Operations and seconds since the last call, in order.
  std::vector<std::pair<std::string, double>> take() { return std::exchange(timed_, {}); }

 protected:
  void around(const OperationCall& call, const std::function<void()>& run) override {
    Stream& stream = device().compute();
    stream.synchronize();
    const double start = now_seconds();
    run();
    stream.synchronize();
    timed_.emplace_back(call.name, now_seconds() - start);
  }

 private:
  std::vector<std::pair<std::string, double>> timed_;
};

/// A model with every operation of its family, so small that its steps are short even on a share of
/// a core.
Config small_model(const Family& family, DType dtype, bool quick) {
  Config config;
  config.model = {.family = model_family(family.name),
                  .layers = 2,
                  .hidden = quick ? 64 : 256,
                  .heads = 4,
                  .vocab = quick ? 256 : 1024};
  family.use_all_operations(config.model);
  config.training.steps = 1;
  config.training.seq_len = quick ? 32 : 128;
  config.training.global_batch = 1;
  config.training.threads = 1;  // not used: the session is given its backend
  config.training.dtype = dtype;
  config.parallelism.transport = TransportKind::threads;  // nothing is sent
  config.optimizer.lr = 1e-4;
  config.data.synthetic = 1;  // never read: the tokens are made up
  return config;              // prepared() derives the micro-batch from the batch
}

/// The operations of the backend in a step of the run, in order.
std::vector<Recording::Compute> operations_of(const PreparedRun& run) {
  std::vector<Recording::Compute> operations;
  for (const Recording::Event& event : dry_step(run, 0, {.recording = true}).recording.events)
    if (const auto* op = std::get_if<Recording::Compute>(&event);
        op && op->kind != OperationKind::device)
      operations.push_back(*op);
  return operations;
}

struct OperationTimes {
  std::vector<TimedRows> attention;  // with flops in place of bytes
  std::map<std::string, std::vector<TimedRows>> rowwise;
};

/// Seconds that waiting for a GPU adds to an operation that TimedBackend times.
double seconds_of_waiting(const ProbeContext& ctx, double launch_s) {
  if (!ctx.on_gpu()) return 0;
  Device& device = ctx.backend.device();
  Arena arena(device);
  const Tensor a(arena, 1, 64, DType::f32);
  device.fill_zero(a.view().data, a.bytes());
  const double alone = seconds_of_one(ctx.backend, ctx.window(), [&] {
    ctx.backend.run(ops::Add{a.view(), a.view(), a.view()});
    device.compute().synchronize();
  });
  return std::max(mean_over_ranks(ctx.world, {alone}).front() - launch_s, 0.0);
}

/// Adds the seconds of each operation in a step of config that each rank runs alone, averaged over
/// steps and ranks. `waiting` is seconds_of_waiting().
void time_steps(const ProbeContext& ctx, Config config, double waiting, OperationTimes& times) {
  const double seconds = ctx.options.quick ? 0.02 : 1.5, enough = ctx.options.quick ? 0 : 0.03;
  constexpr int kMostSequences = 64;
  config.training.verify_state = false;  // a dry step updates large groups at once, not in parts
  // Increases the batch on a faster device, so that launches do not dominate.
  for (;; config.training.global_batch *= 2) {
    const auto alone = make_self();
    auto backend = std::make_unique<TimedBackend>(ctx.backend);
    TimedBackend& timed_backend = *backend;
    const PreparedRun run = prepared(config);
    Training training(run, *alone, std::move(backend), {.data = false});
    training.model.initialise();
    const StepInput input = made_up_input(training.model);
    const auto step_s = [&] {
      const double start = now_seconds();
      training.step.run(training.model.context(), input);
      return now_seconds() - start;
    };
    step_s();
    const double taken = mean_over_ranks(ctx.world, {step_s()}).front();
    if (taken < enough && config.training.global_batch < kMostSequences) continue;
    const int count = std::clamp(static_cast<int>(seconds / taken), 3, 100);
    const std::vector<Recording::Compute> operations = operations_of(run);
    std::vector<double> sums(operations.size());
    timed_backend.take();
    for (int i = 0; i < count; ++i) {
      step_s();
      const auto timed = timed_backend.take();
      AXONN_CHECK(timed.size() == operations.size(), "probe: a step has ", timed.size(),
                  " operations and a dry step ", operations.size());
      for (std::size_t j = 0; j < timed.size(); ++j) {
        AXONN_CHECK(timed[j].first == operations[j].operation, "probe: operation ", j, " is ",
                    timed[j].first, " and in a dry step ", operations[j].operation);
        sums[j] += timed[j].second / count;
      }
    }
    sums = mean_over_ranks(ctx.world, sums);
    for (double& sum : sums) sum = std::max(sum - waiting, sum / 2);
    for (std::size_t j = 0; j < operations.size(); ++j) {
      const Recording::Compute& op = operations[j];
      if (op.kind == OperationKind::attention)
        times.attention.push_back({op.flops, sums[j]});
      else if (op.kind != OperationKind::product)
        times.rowwise[op.operation].push_back({static_cast<double>(op.bytes()), sums[j]});
    }
    return;
  }
}

/// Measures row-wise operations and attention, within steps of small models that each rank runs
/// alone. Needs launch_s.
void probe_steps(ProbeContext& ctx, Machine& machine) {
  OperationTimes times;
  const double waiting = seconds_of_waiting(ctx, machine.launch_s);
  for (const Family* const family : families())
    for (const DType dtype : {DType::f32, DType::bf16}) {
      ctx.begin_part();
      time_steps(ctx, small_model(*family, dtype, ctx.options.quick), waiting, times);
    }
  machine.attention_flops_per_s = fit_rows_rate(times.attention, machine.launch_s);
  ctx.report(fmt::format("attention      {:9.1f} Gflop/s", machine.attention_flops_per_s * 1e-9));
  for (const auto& [operation, rows] : times.rowwise) {
    const double rate = fit_rows_rate(rows, machine.launch_s);
    machine.rowwise_bytes_per_s[operation] = rate;
    ctx.report(fmt::format("  {:<27} {:9.2f} GB/s", operation, rate * 1e-9));
  }
}

constexpr std::array kCollectives = {Operation::all_gather, Operation::reduce_scatter,
                                     Operation::all_reduce};

/// Buffers for collectives of up to so many bytes.
class Buffers {
 public:
  Buffers(Device& device, std::int64_t bytes)
      : arena_(device),
        whole_(arena_, 1, bytes / bytes_of(DType::f32), DType::f32),
        piece_(arena_, 1, bytes / bytes_of(DType::f32) / 2, DType::f32) {
    for (const Tensor* tensor : {&whole_, &piece_})
      device.fill_zero(tensor->view().data, tensor->bytes());
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

/// Seconds per call of run, which leaves no work on the device, averaged over ranks and over calls
/// for about `seconds`.
double seconds_of_all(Communicator& world, double seconds, const std::function<void()>& run) {
  const auto time = [&](int count) {
    world.barrier("probe");
    const double start = now_seconds();
    for (int i = 0; i < count; ++i) run();
    return mean_over_ranks(world, {now_seconds() - start}).front() / count;
  };
  constexpr int kLeastRounds = 8;  // however long one takes
  return time(std::clamp(static_cast<int>(seconds / time(1)), kLeastRounds, 50));
}

/// Adds the rates of the groups of one shape to the machine.
void probe_group(const ProbeContext& ctx, const GroupShape& shape,
                 const std::vector<std::int64_t>& sizes, const std::function<void()>& work,
                 Machine& machine) {
  const int rank = ctx.world.rank(), block = shape.inner * shape.size;
  const auto group = ctx.links.split(rank / block * shape.inner + rank % shape.inner, "probe");
  Buffers buffers(ctx.backend.device(), sizes.back() + 4096);
  const double window = ctx.options.quick ? 0.01 : 0.2;
  std::string line = fmt::format("  {:>3} apart {:>4} members", shape.inner, shape.size);
  for (const Operation operation : kCollectives) {
    std::vector<TimedCollective> times;
    for (const std::int64_t bytes : sizes) {
      const double with = seconds_of_all(ctx.world, window, [&] {
        work();
        buffers.start(*group, operation, bytes).wait();
        ctx.backend.device().compute().synchronize();
      });
      const double without = seconds_of_all(ctx.world, window / 3, work);
      times.push_back({.operation = std::string(name_of(operation)),
                       .size = shape.size,
                       .bytes = Buffers::bytes_of_whole(*group, bytes),
                       // A smaller difference is noise.
                       .seconds = std::max(with - without, 1e-7)});
    }
    GroupRate rate = fit_group_rate(times);
    rate.operation = name_of(operation);
    rate.inner = shape.inner;
    for (const TimedCollective& timed : times) {
      rate.bytes.push_back(timed.bytes);
      rate.nanoseconds.push_back(std::llround(1e9 * timed.seconds));
    }
    machine.groups.push_back(rate);
    line += fmt::format("  {} {:.3f} GB/s + {:.0f} us", name_of(operation), rate.bytes_per_s * 1e-9,
                        rate.latency_s * 1e6);
  }
  ctx.report(line);
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

/// Slowdowns of compute and of a collective of all ranks beside each other: medians over the three
/// collectives, because one may be of a small difference of times.
Slowdowns probe_slowdowns(const ProbeContext& ctx, std::int64_t bytes,
                          const std::function<void()>& work) {
  constexpr double kMost = 10;  // largest slowdown: with more, overlap is useless anyway
  Device& device = ctx.backend.device();
  Buffers buffers(device, bytes + 4096);
  const double window = ctx.options.quick ? 0.02 : 0.4;
  std::vector<double> of_compute, of_collective;
  for (const Operation operation : kCollectives) {
    const double through = seconds_of_all(ctx.world, window, [&] {
      buffers.start(ctx.links, operation, bytes).wait();
      device.compute().synchronize();
    });
    const double alone = seconds_of_all(ctx.world, window, work);
    // So little work that the collective certainly outlasts it.
    const int pieces = std::max(1, static_cast<int>(0.2 * through / alone));
    double worked = 0;
    int rounds = 0;
    const double both = seconds_of_all(ctx.world, 2 * window, [&] {
      Work pending = buffers.start(ctx.links, operation, bytes);
      const double start = now_seconds();
      for (int i = 0; i < pieces; ++i) work();
      worked += now_seconds() - start;
      ++rounds;
      pending.wait();
      device.compute().synchronize();
    });
    const double under = mean_over_ranks(ctx.world, {worked / rounds}).front();
    // The rest of the collective, after the work was done, ran alone.
    const double done = std::max(through - (both - under), under / (1 + kMost));
    of_compute.push_back(std::max(0.0, under / (pieces * alone) - 1));
    of_collective.push_back(std::max(0.0, under / done - 1));
  }
  return {median(of_compute), median(of_collective)};
}

std::vector<GroupShape> group_shapes(int ranks) {
  std::vector<GroupShape> shapes;
  for (int inner = 1; inner < ranks; ++inner)
    for (int size = 2; inner * size <= ranks; ++size)
      if (ranks % (inner * size) == 0) shapes.push_back({inner, size});
  return shapes;
}

/// Measures collectives of every group shape in grids of the world's ranks, all groups of a shape
/// at once, and the slowdowns of compute and collectives that overlap.
void probe_links(ProbeContext& ctx, Machine& machine) {
  std::vector<std::int64_t> sizes{4 << 10, 256 << 10};
  if (!ctx.options.quick)
    sizes = {4 << 10, 16 << 10, 64 << 10, 256 << 10, 1 << 20, 4 << 20, 16 << 20};
  // Compute between collectives. In a step, too, ranks start a collective after compute, and those
  // that share a core not at the same time: waiting for the last is part of a collective's time.
  constexpr std::int64_t kRows = 128;
  constexpr double kWindow = 0.02, kLength = 2e-3;
  Device& device = ctx.backend.device();
  Arena arena(device);
  const Tensor a(arena, kRows, kRows, DType::f32), out(arena, kRows, kRows, DType::f32);
  device.fill_zero(a.view().data, a.bytes());
  const auto product = [&] {
    ctx.backend.matmul({.out = out.view(), .a = a.view(), .b = a.view()});
  };
  const double once = seconds_of_one(ctx.backend, kWindow, product);
  const double slowest = mean_over_ranks(ctx.world, {once}).front();
  const int products = std::max(1, static_cast<int>(kLength / slowest));
  const auto work = [&] {
    for (int i = 0; i < products; ++i) product();
    device.compute().synchronize();
  };
  ctx.report("groups (all groups of one shape at once)");
  for (const GroupShape& shape : group_shapes(ctx.world.size())) {
    ctx.begin_part();
    probe_group(ctx, shape, sizes, work, machine);
  }
  set_links(machine);
  ctx.begin_part();
  const Slowdowns slowdowns =
      probe_slowdowns(ctx, std::min(sizes.back(), std::int64_t{4 << 20}), work);
  machine.overlap_slowdown = slowdowns.of_compute;
  machine.collective_slowdown = slowdowns.of_collective;
  machine.fitted = "rates, half sizes and latencies, to the measured times";
  machine.error = 0.3;  // bench/plan_ranking: most times planned are within it
  ctx.report(fmt::format("overlap: compute takes {:.0f} % longer, and a collective {:.0f} %",
                         100 * slowdowns.of_compute, 100 * slowdowns.of_collective));
}

}  // namespace

Machine probe(Communicator& world, const ProbeOptions& options) {
  if (world.size() < 2)
    refuse(
        "probe needs at least two ranks, because it measures links between them; set --ranks 2, ",
        "or start it under mpirun");
  if (options.devices_per_node > 0 && world.size() % options.devices_per_node != 0)
    refuse("--devices-per-node ", options.devices_per_node, " does not divide the ", world.size(),
           " ranks");
  Config config;
  config.parallelism.device = options.device;
  config.parallelism.transport = options.transport;
  const auto backend = make_backend(config, world, options.threads);
  Device& device = backend->device();
  const auto device_world = make_device_world(config.parallelism, world, backend->arena());
  ProgressLine line(world.rank() == 0 ? options.progress : ProgressTarget{}, "measuring", "parts");
  ProbeContext ctx{
      .world = world,
      .links = device_world ? *device_world : world,
      .backend = *backend,
      .options = options,
      .progress = line,
      // Besides the groups: memory, two types of products, four models, overlap.
      .parts = (options.disk.empty() ? 8 : 9) + std::ssize(group_shapes(world.size()))};
  for (const std::string& remark : backend->take_remarks()) ctx.report("note: " + remark);
  Machine machine{.name = options.name, .device = ctx.on_gpu() ? device.name() : processor_name()};
  if (ctx.on_gpu()) machine.backend = gpu_platform() == &kHip ? DeviceKind::hip : DeviceKind::cuda;
  machine.devices_per_node =
      options.devices_per_node > 0 ? options.devices_per_node : ranks_of_host(world);
  const int nodes = world.size() / machine.devices_per_node;
  machine.source = fmt::format("probed {} with {} ranks on {} node{}", today(), world.size(), nodes,
                               nodes == 1 ? "" : "s");
  if (ctx.on_gpu())
    machine.source += have_own_gpus(world, device) ? ", a GPU each" : ", which share GPUs";
  else
    machine.source +=
        fmt::format(", {} thread{} each", options.threads, options.threads == 1 ? "" : "s");
  machine.memory_bytes = memory_of_rank(device, world, machine.devices_per_node);
  ctx.report(fmt::format("{}: {}; {} of memory per rank", machine.device, machine.source,
                         format_bytes(static_cast<std::int64_t>(machine.memory_bytes))));
  const double start = now_seconds();
  probe_memory(ctx, machine);
  machine.f32 = probe_products(ctx, DType::f32, machine.launch_s);
  machine.bf16 = probe_products(ctx, DType::bf16, machine.launch_s);
  probe_steps(ctx, machine);
  probe_links(ctx, machine);
  probe_disk(ctx, machine);
  ctx.report(fmt::format("took {:.0f} s", now_seconds() - start));
  return machine;
}

}  // namespace axonn
