#include "axonn/train/benchmark.h"

#include <algorithm>
#include <array>
#include <numeric>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "axonn/base/clock.h"
#include "axonn/base/log.h"
#include "axonn/train/schedule.h"

namespace axonn {

namespace {

/// One product, timed: out (m, n) = a (m, k) · b (n, k)ᵀ.
class TimedProduct {
 public:
  TimedProduct(const Context& ctx, std::int64_t m, std::int64_t n, std::int64_t k)
      : ctx_(ctx),
        out_(ctx.empty(m, n, ctx.dtype)),
        a_(ctx.zeros(m, k, ctx.dtype)),
        b_(ctx.zeros(n, k, ctx.dtype)),
        flops_(2.0 * static_cast<double>(m * n * k)) {}

  void run() {
    const double start = now_seconds();
    ctx_.backend.matmul({.out = out_.view(), .a = a_.view(), .b = b_.view(), .b_transposed = true});
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

/// Shapes of common layers, and one that is as easy as products get.
std::vector<TimedProduct> fixed_products(const Context& ctx) {
  std::vector<TimedProduct> products;
  for (const auto& [m, n, k] : {std::array{1024, 2304, 768}, std::array{1024, 768, 3072},
                                std::array{1024, 3072, 768}, std::array{2048, 2048, 2048}})
    products.emplace_back(ctx, m, n, k);
  return products;
}

double mean_of_last(const std::vector<double>& values) {
  return std::accumulate(values.begin() + kBenchWarmup, values.end(), 0.0) /
         static_cast<double>(values.size() - kBenchWarmup);
}

void reduce(Communicator& world, std::vector<double>& values, ReduceOp op) {
  world.all_reduce(buffer(std::span(values)), "bench", op).wait();
}

/// Seconds a step, mean over the ranks, between two counts; without what took nothing, and without
/// the barriers, which stand between the steps.
NamedSeconds mean_waits(Communicator& world, const NamedSeconds& before,
                        const NamedSeconds& after) {
  std::vector<double> seconds;
  for (std::size_t i = 0; i < after.size(); ++i)
    seconds.push_back(after[i].second - before[i].second);
  reduce(world, seconds, ReduceOp::sum);
  NamedSeconds waits;
  for (std::size_t i = 0; i < after.size(); ++i)
    if (seconds[i] > 0 && !after[i].first.ends_with("barrier"))
      waits.emplace_back(after[i].first,
                         seconds[i] / world.size() / (kBenchIterations - kBenchWarmup));
  return waits;
}

}  // namespace

BenchReport benchmark(const Config& config, Communicator& world) {
  Session session(config, world, make_cpu_backend(compute_threads(config)), {});
  session.initialise();
  auto products = fixed_products(session.context());
  BenchReport report{.grid = config.parallelism.grid()};
  std::vector<double> seconds, waited;
  std::int64_t memory = 0;
  NamedSeconds kinds_before;
  for (int i = 0; i < kBenchIterations; ++i) {
    if (i == kBenchWarmup) kinds_before = session.waited_by_kind();
    session.arena().reset_peak();
    world.barrier("bench");
    const double start = now_seconds(), waited_before = session.waited_seconds();
    StepInput input = session.step_input(i);
    input.lr = learning_rate(config, i);
    report.loss = session.train_step(input).loss;
    seconds.push_back(now_seconds() - start);
    waited.push_back(session.waited_seconds() - waited_before);
    memory = std::max(memory, session.arena().stats().peak_bytes);
    world.barrier("bench");
    for (TimedProduct& product : products) product.run();
  }
  std::vector<double> peaks;
  for (TimedProduct& product : products) peaks.push_back(product.median_rate());
  reduce(world, peaks, ReduceOp::sum);
  reduce(world, seconds, ReduceOp::max);
  reduce(world, waited, ReduceOp::sum);
  report.exposed_by = mean_waits(world, kinds_before, session.waited_by_kind());
  std::vector<double> memories{static_cast<double>(memory)};
  reduce(world, memories, ReduceOp::max);

  report.step_s_each = seconds;
  report.step_s = mean_of_last(seconds);
  const auto [least, most] =
      std::ranges::minmax_element(seconds.begin() + kBenchWarmup, seconds.end());
  report.spread_s = *most - *least;
  report.exposed_comm_s = mean_of_last(waited) / world.size();
  report.tokens_per_s = static_cast<double>(session.tokens_per_step()) / report.step_s;
  report.flops =
      step_flops(session.config().model, config.training.global_batch, config.training.seq_len,
                 config.activation_checkpoint.mode == RecomputeMode::full);
  report.product_peak = std::ranges::max(peaks);
  report.memory_bytes = static_cast<std::int64_t>(memories.front());
  return report;
}

std::string to_text(const BenchReport& r) {
  const auto rate = [&](double flops) { return flops / r.step_s * 1e-12; };
  std::string text = fmt::format(
      "grid {}: {:.1f} ms a step (mean of the last {} of {}, spread {:.1f} ms)\n"
      "  tokens/s          {}\n"
      "  model             {:.3f} Tflop/s, {:.1f} % of the product peak, {:.3f} Tflop/s (6N + "
      "6LCT)\n"
      "  hardware          {:.3f} Tflop/s (and what is recomputed)\n"
      "  Narayanan         {:.3f} Tflop/s (the paper's formula, recomputation always counted)\n"
      "  compute           {:.1f} ms\n"
      "  exposed comm.     {:.1f} ms, {:.1f} % of the step\n"
      "  memory            {} on the fullest rank\n",
      to_string(r.grid), r.step_s * 1e3, kBenchIterations - kBenchWarmup, kBenchIterations,
      r.spread_s * 1e3, format_count(static_cast<std::int64_t>(r.tokens_per_s)),
      rate(r.flops.model), r.percent_of_product_peak(), r.product_peak * 1e-12,
      rate(r.flops.hardware), rate(r.flops.narayanan), r.compute_s() * 1e3, r.exposed_comm_s * 1e3,
      100 * r.exposed_comm_s / r.step_s, format_bytes(r.memory_bytes));
  for (const auto& [kind, seconds] : r.exposed_by)
    text += fmt::format("    {:<22}{:.1f} ms\n", kind, seconds * 1e3);
  return text;
}

std::string to_json(const BenchReport& r) {
  const auto rate = [&](double flops) { return flops / r.step_s * 1e-12; };
  nlohmann::ordered_json exposed = nlohmann::ordered_json::object();
  for (const auto& [kind, seconds] : r.exposed_by) exposed[kind] = seconds;
  const nlohmann::ordered_json json = {
      {"grid", {{"x", r.grid.x}, {"y", r.grid.y}, {"z", r.grid.z}, {"data", r.grid.data}}},
      {"step_s", r.step_s},
      {"step_s_each", r.step_s_each},
      {"tokens_per_s", r.tokens_per_s},
      {"model_tflops", rate(r.flops.model)},
      {"hardware_tflops", rate(r.flops.hardware)},
      {"narayanan_tflops", rate(r.flops.narayanan)},
      {"percent_of_peak", nullptr},  // no peak is advertised for this processor
      {"percent_of_product_peak", r.percent_of_product_peak()},
      {"product_peak_tflops", r.product_peak * 1e-12},
      {"exposed_comm_s", r.exposed_comm_s},
      {"exposed_comm_s_by", exposed},
      {"compute_s", r.compute_s()},
      {"memory_bytes", r.memory_bytes},
      {"loss", r.loss}};
  return json.dump(2) + "\n";
}

}  // namespace axonn
