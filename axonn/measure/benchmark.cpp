// Prints a BenchReport as text and as JSON.
#include "axonn/measure/benchmark.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <numeric>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "axonn/base/check.h"
#include "axonn/base/clock.h"
#include "axonn/base/log.h"
#include "axonn/base/random.h"
#include "axonn/measure/dry_step.h"
#include "axonn/train/tune.h"

namespace axonn {

namespace {

/// Returns random values in [-1, 1): some chips are faster on zeros.
Tensor random_matrix(const Context& ctx, std::int64_t rows, std::int64_t cols) {
  constexpr std::int64_t kPattern = 65521;  // repeated; a prime, so that no two rows are equal
  const Random random(1, "bench");
  Tensor pattern = ctx.empty(1, kPattern, DType::f32), all = ctx.empty(1, rows * cols, ctx.dtype);
  std::vector<float> host(kPattern);
  for (std::int64_t i = 0; i < kPattern; ++i)
    host[i] = static_cast<float>(2 * random.uniform(i) - 1);
  ctx.device().copy_from_host(pattern.view().data, host.data(), pattern.bytes());
  for (std::int64_t i = 0; i < all.cols(); i += kPattern) {
    const std::int64_t n = std::min(kPattern, all.cols() - i);
    ctx.backend.run(ops::Cast{all.view().col_range(i, n), pattern.view().col_range(0, n)});
  }
  return all.reshape(rows, cols);
}

/// One timed product: out (m, n) = a (m, k) · b (n, k)ᵀ, all of ctx.dtype.
class TimedProduct {
 public:
  TimedProduct(const Context& ctx, std::int64_t m, std::int64_t n, std::int64_t k)
      : ctx_(ctx),
        out_(ctx.empty(m, n, ctx.dtype)),
        a_(random_matrix(ctx, m, k)),
        b_(random_matrix(ctx, n, k)),
        flops_(2.0 * static_cast<double>(m * n * k)) {}

  void run() {
    Stream& stream = ctx_.backend.device().compute();
    stream.synchronize();
    const double start = now_seconds();
    ctx_.backend.matmul({.out = out_.view(), .a = a_.view(), .b = b_.view(), .b_transposed = true});
    stream.synchronize();
    rates_.push_back(flops_ / (now_seconds() - start));
  }

  double median_rate() {
    std::ranges::sort(rates_);
    return rates_[rates_.size() / 2];
  }

 private:
  Context ctx_;
  Tensor out_, a_, b_;
  double flops_;
  std::vector<double> rates_;
};

/// Products with shapes of common layers, and one that is as fast as products get, which on a GPU
/// must be larger.
std::vector<TimedProduct> fixed_products(const Context& ctx) {
  std::vector<TimedProduct> products;
  for (const auto& [m, n, k] : {std::array{1024, 2304, 768}, std::array{1024, 768, 3072},
                                std::array{1024, 3072, 768}, std::array{2048, 2048, 2048}})
    products.emplace_back(ctx, m, n, k);
  constexpr std::int64_t kLarge = 8192;
  const bool gpu = !ctx.backend.device().uuid().empty();
  if (gpu) products.emplace_back(ctx, kLarge, kLarge, kLarge);
  if (ctx.dtype == DType::f32 || gpu) return products;
  // bf16 operands can be multiplied as f32 as well, which some CPUs do faster. The peak is the best
  // of both.
  const Context as_floats(ctx.backend, ctx.arena(), ctx.grid);
  for (TimedProduct& product : fixed_products(as_floats)) products.push_back(std::move(product));
  return products;
}

double mean_of_last(const std::vector<double>& values) {
  return std::accumulate(values.begin() + kBenchWarmup, values.end(), 0.0) /
         static_cast<double>(values.size() - kBenchWarmup);
}

void reduce(Communicator& world, std::vector<double>& values, ReduceOp op) {
  world.all_reduce(buffer(std::span(values)), "bench", op).wait();
}

/// Number of consecutive steps, as in training: work that one step leaves in flight for the next
/// counts. Products are timed between such groups.
constexpr int kStepsTogether = 5;

/// Returns the report's entries that need no measurement.
BenchReport described(const Config& config, int threads) {
  const int ranks = config.parallelism.grid().ranks();
  BenchReport report;
  report.grid = config.parallelism.grid();
  report.threads = threads;
  report.global_batch = config.training.global_batch;
  report.flops = step_flops(config.model, config.training.global_batch, config.training.seq_len,
                            config.activation_checkpoint.mode == RecomputeMode::full);
  report.advertised_peak = config.parallelism.peak_tflops * 1e12 * ranks;
  return report;
}

/// Compares each rank's measured peak with its prediction. Returns the values of the rank with the
/// highest peak. Collective.
BenchMemory compare_memory(LoadedModel& model) {
  Communicator& world = model.grid().world();
  const ArenaStats& stats = model.arena().stats();
  BenchMemory memory{.measured_bytes = stats.peak_bytes,
                     .predicted_bytes = dry_step(model.config(), world.rank()).memory.peak_bytes,
                     .parts = stats.peak_by};
  std::vector<std::int64_t> peaks(world.size());
  world.all_gather(buffer(std::span(peaks)), buffer(std::span(&memory.measured_bytes, 1)), "bench")
      .wait();
  memory.largest_difference = std::abs(memory.measured_bytes - memory.predicted_bytes);
  world.all_reduce(buffer(std::span(&memory.largest_difference, 1)), "bench", ReduceOp::max).wait();
  const int fullest = static_cast<int>(std::ranges::max_element(peaks) - peaks.begin());
  world.broadcast(buffer(std::span(&memory.measured_bytes, 1)), fullest, "bench").wait();
  world.broadcast(buffer(std::span(&memory.predicted_bytes, 1)), fullest, "bench").wait();
  world.broadcast(buffer(std::span<std::int64_t>(memory.parts)), fullest, "bench").wait();
  return memory;
}

}  // namespace

Spread spread_of(std::vector<double> values) {
  AXONN_CHECK(!values.empty(), "spread_of: no values");
  std::ranges::sort(values);
  const auto count = static_cast<double>(values.size());
  const double mean = std::accumulate(values.begin(), values.end(), 0.0) / count;
  double squares = 0;
  for (const double value : values) squares += (value - mean) * (value - mean);
  const std::size_t middle = values.size() / 2;
  return {.min = values.front(),
          .median = (values[middle] + values[(values.size() - 1) / 2]) / 2,
          .max = values.back(),
          .deviation = count > 1 ? std::sqrt(squares / (count - 1)) : 0};
}

BenchReport benchmark(const Config& config, Communicator& world) {
  Training training(config, world);
  LoadedModel& model = training.model;
  model.initialise();
  if (config.training.tune)
    tune(training, {.cache = matmul_cache_path(config.training.tune_cache)});
  Context ctx = model.context();
  Arena beside(ctx.backend.device());  // memory of the timed products must not count as the step's
  auto products = fixed_products(Context(ctx.backend, beside, ctx.grid, ctx.dtype));
  std::vector<double> seconds, waited;
  WaitClock waits(model.grid()), step_waits = waits;
  BenchReport report = described(model.config(), model.threads());
  const auto run_products = [&] {
    for (int i = 0; i < kStepsTogether; ++i)
      for (TimedProduct& product : products) product.run();
    world.barrier("bench");
    return now_seconds();
  };
  double start = run_products();
  for (int i = 0; i < kBenchIterations; ++i) {
    if (i == kBenchWarmup) waits.restart();
    step_waits.restart();
    report.loss = training.run(i).loss;
    const bool last = (i + 1) % kStepsTogether == 0;
    if (last) model.settle();
    const double end = now_seconds();
    seconds.push_back(end - start);
    waited.push_back(step_waits.seconds());
    start = last ? run_products() : end;
  }
  NamedSeconds kinds = waits.by_kind();
  std::erase_if(kinds, [](const auto& kind) {  // barriers lie between the steps
    return kind.first.ends_with("barrier");
  });
  std::vector<double> peaks;
  for (TimedProduct& product : products) peaks.push_back(product.median_rate());
  reduce(world, peaks, ReduceOp::sum);
  reduce(world, seconds, ReduceOp::max);
  reduce(world, waited, ReduceOp::sum);
  report.exposed_by = mean_waits(world, kinds, kBenchIterations - kBenchWarmup);
  report.memory = compare_memory(model);

  report.step_s_each = seconds;
  report.step_s = mean_of_last(seconds);
  report.spread = spread_of({seconds.begin() + kBenchWarmup, seconds.end()});
  report.exposed_comm_s = mean_of_last(waited) / world.size();
  report.tokens_per_s =
      static_cast<double>(config.training.global_batch * config.training.seq_len) / report.step_s;
  report.product_peak = std::ranges::max(peaks);
  return report;
}

namespace {

double tflops(const BenchReport& report, double flops) { return flops / report.step_s * 1e-12; }

std::string memory_text(const BenchMemory& memory) {
  std::string text = fmt::format(
      "  memory            {} on the fullest rank, predicted {}: {}\n",
      format_bytes(memory.measured_bytes), format_bytes(memory.predicted_bytes),
      memory.largest_difference == 0
          ? "exact on every rank"
          : fmt::format("off by up to {} on some rank", format_bytes(memory.largest_difference)));
  for (int i = 0; i < kMemoryUses; ++i)
    if (memory.parts[i] > 0)
      text += fmt::format("    {:<22}{}\n", name_of(static_cast<MemoryUse>(i)),
                          format_bytes(memory.parts[i]));
  return text;
}

nlohmann::ordered_json memory_json(const BenchMemory& memory) {
  nlohmann::ordered_json parts = nlohmann::ordered_json::object();
  for (int i = 0; i < kMemoryUses; ++i)
    parts[std::string(name_of(static_cast<MemoryUse>(i)))] = memory.parts[i];
  return {{"measured_bytes", memory.measured_bytes},
          {"predicted_bytes", memory.predicted_bytes},
          {"largest_difference_bytes", memory.largest_difference},
          {"measured_bytes_by", parts}};
}

}  // namespace

std::string to_text(const BenchReport& r) {
  std::string text = fmt::format(
      "grid {}: {:.1f} ms per step (mean of the last {} of {}; {:.1f} to {:.1f}, median {:.1f}, "
      "deviation {:.1f})\n  tokens/s          {}\n  model             {:.3f} Tflop/s (6N + 6LCT)\n "
      "   {:.1f} % of the product peak, {:.3f} Tflop/s measured between the steps\n",
      to_string(r.grid), r.step_s * 1e3, kBenchIterations - kBenchWarmup, kBenchIterations,
      r.spread.min * 1e3, r.spread.max * 1e3, r.spread.median * 1e3, r.spread.deviation * 1e3,
      format_count(static_cast<std::int64_t>(r.tokens_per_s)), tflops(r, r.flops.model),
      r.percent_of_product_peak(), r.product_peak * 1e-12);
  if (r.advertised_peak > 0)
    text += fmt::format("    {:.1f} % of the advertised peak, {:.3f} Tflop/s\n",
                        r.percent_of_advertised_peak(), r.advertised_peak * 1e-12);
  text += fmt::format(
      "  hardware          {:.3f} Tflop/s (including recomputation)\n  Narayanan         {:.3f} "
      "Tflop/s (the paper's formula, which always counts recomputation)\n  compute           "
      "{:.1f} ms\n  exposed comm.     {:.1f} ms, {:.1f} % of the step\n",
      tflops(r, r.flops.hardware), tflops(r, r.flops.narayanan), r.compute_s() * 1e3,
      r.exposed_comm_s * 1e3, 100 * r.exposed_comm_s / r.step_s);
  for (const auto& [kind, seconds] : r.exposed_by)
    text += fmt::format("    {:<22}{:.1f} ms\n", kind, seconds * 1e3);
  return text + memory_text(r.memory);
}

std::string to_json(const BenchReport& r) {
  nlohmann::ordered_json exposed = nlohmann::ordered_json::object();
  for (const auto& [kind, seconds] : r.exposed_by) exposed[kind] = seconds;
  const auto known = [](double peak, double value) -> nlohmann::ordered_json {
    if (peak > 0) return value;
    return nullptr;
  };
  const nlohmann::ordered_json json = {
      {"grid", {{"x", r.grid.x}, {"y", r.grid.y}, {"z", r.grid.z}, {"data", r.grid.data}}},
      {"ranks", r.grid.ranks()},
      {"threads_per_rank", r.threads},
      {"global_batch_sequences", r.global_batch},
      {"step_s", r.step_s},
      {"step_s_min", r.spread.min},
      {"step_s_median", r.spread.median},
      {"step_s_max", r.spread.max},
      {"step_s_deviation", r.spread.deviation},
      {"step_s_each", r.step_s_each},
      {"tokens_per_s", r.tokens_per_s},
      {"model_tflops", tflops(r, r.flops.model)},
      {"hardware_tflops", tflops(r, r.flops.hardware)},
      {"narayanan_tflops", tflops(r, r.flops.narayanan)},
      {"advertised_peak_tflops", known(r.advertised_peak, r.advertised_peak * 1e-12)},
      {"percent_of_advertised_peak", known(r.advertised_peak, r.percent_of_advertised_peak())},
      {"product_peak_tflops", r.product_peak * 1e-12},
      {"percent_of_product_peak", r.percent_of_product_peak()},
      {"exposed_comm_s", r.exposed_comm_s},
      {"exposed_comm_s_by", exposed},
      {"compute_s", r.compute_s()},
      {"memory", memory_json(r.memory)},
      {"loss_nats", r.loss}};
  return json.dump(2) + "\n";
}

}  // namespace axonn
