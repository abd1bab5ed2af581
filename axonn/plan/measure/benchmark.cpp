#include "axonn/plan/measure/benchmark.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <numeric>
#include <optional>
#include <utility>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "axonn/foundation/base/check.h"
#include "axonn/foundation/base/clock.h"
#include "axonn/foundation/base/log.h"
#include "axonn/plan/measure/dry_step.h"
#include "axonn/plan/measure/fixed_products.h"
#include "axonn/run/config/recompute.h"
#include "axonn/run/train/tune.h"

namespace axonn {

namespace {

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

/// Compares each rank's measured peak with its prediction. Returns the values of the rank with the
/// highest peak. Collective.
BenchMemory compare_memory(const PreparedRun& run, LoadedModel& model) {
  Communicator& world = model.grid().world();
  const ArenaStats& stats = model.arena().stats();
  BenchMemory memory{.measured_bytes = stats.peak_bytes,
                     .predicted_bytes = dry_step(run, world.rank()).memory.peak_bytes,
                     .parts = stats.peak_by,
                     .even_loads = model.config().model.experts > 0};
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

double tflops(const BenchReport& report, double flops) { return flops / report.step_s * 1e-12; }

std::string memory_text(const BenchMemory& memory) {
  std::string text = fmt::format(
      "  memory            {} on the fullest rank, predicted {}: {}\n",
      format_bytes(memory.measured_bytes), format_bytes(memory.predicted_bytes),
      memory.largest_difference == 0
          ? "exact on every rank"
          : fmt::format("off by up to {} on some rank{}", format_bytes(memory.largest_difference),
                        memory.even_loads ? ": the prediction is for experts of equal loads" : ""));
  for (int i = 0; i < kMemoryUses; ++i)
    if (memory.parts[i] > 0)
      text += fmt::format("    {:<22}{}\n", name_of(static_cast<MemoryUse>(i)),
                          format_bytes(memory.parts[i]));
  return text;
}

using Json = nlohmann::ordered_json;

Json json_of(const GridShape& grid) {
  return {{"x", grid.x}, {"y", grid.y}, {"z", grid.z}, {"data", grid.data}};
}

Json json_of(const NamedSeconds& seconds) { return Json::object_t(seconds.begin(), seconds.end()); }

Json json_of(const BenchMemory& memory) {
  Json parts = Json::object();
  for (int i = 0; i < kMemoryUses; ++i)
    parts[std::string(name_of(static_cast<MemoryUse>(i)))] = memory.parts[i];
  return {{"measured_bytes", memory.measured_bytes},
          {"predicted_bytes", memory.predicted_bytes},
          {"largest_difference_bytes", memory.largest_difference},
          {"measured_bytes_by", parts}};
}

constexpr int kWarmup = 2, kSteps = 5;

/// Adds up the time that the phases of several steps take on this rank.
class PhaseClock {
 public:
  PhaseClock(const Grid& grid, Device& device) : device_(device), waits_(grid) {}

  /// From now on, time counts for this phase.
  void enter(Phase phase) {
    if (phase_) book();
    device_.compute().synchronize();  // on a GPU: what was enqueued belongs to the phase before
    phase_ = phase;
    since_ = now_seconds();
    waits_.restart();
  }
  /// Adds the time since enter() to the current phase.
  void book() {
    device_.compute().synchronize();
    Cost& cost = costs_[static_cast<int>(*phase_)];
    cost.seconds += now_seconds() - since_;
    NamedSeconds waited = waits_.by_kind();
    for (std::size_t i = 0; i < cost.waited.size(); ++i) waited[i].second += cost.waited[i].second;
    cost.waited = std::move(waited);
  }

  /// Returns the cost of a phase, mean over the ranks and kSteps steps. Collective.
  PhaseCost cost(Communicator& world, Phase phase) const {
    const Cost& mine = costs_[static_cast<int>(phase)];
    double seconds = mine.seconds;
    world.all_reduce(buffer(std::span(&seconds, 1)), "overlap").wait();
    PhaseCost out{.compute_s = seconds / world.size() / kSteps,
                  .comm_by = mean_waits(world, mine.waited, kSteps)};
    for (const auto& [kind, waited] : out.comm_by) out.comm_s += waited;
    out.compute_s -= out.comm_s;
    return out;
  }

 private:
  struct Cost {
    double seconds = 0;
    NamedSeconds waited;
  };
  Device& device_;
  WaitClock waits_;
  std::array<Cost, 3> costs_;
  std::optional<Phase> phase_;
  double since_ = 0;
};

StepCost measure(const PreparedRun& run, Communicator& world, const ProgressTarget& target) {
  Training training(run, world, nullptr, {.progress = target});
  training.model.initialise();
  PhaseClock clock(training.model.grid(), training.model.backend().device());
  double begin = 0, progress = 0;
  for (int i = 0; i < kWarmup + kSteps; ++i) {
    if (i == kWarmup) {
      begin = now_seconds();
      progress = world.progress_seconds();
    }
    StepInput input = training.input(i);
    if (i >= kWarmup) input.on_phase = [&](Phase phase) { clock.enter(phase); };
    training.step.run(training.model.context(), input);
  }
  clock.book();
  std::array<double, 2> totals{now_seconds() - begin, world.progress_seconds() - progress};
  world.all_reduce(buffer(std::span(totals).first(1)), "overlap", ReduceOp::max).wait();
  world.all_reduce(buffer(std::span(totals).last(1)), "overlap").wait();
  return {.forward = clock.cost(world, Phase::forward),
          .backward = clock.cost(world, Phase::backward),
          .optimizer = clock.cost(world, Phase::optimizer),
          .step_s = totals[0] / kSteps,
          .progress_share = totals[1] / world.size() / totals[0]};
}

/// Moves the gather of updated weights over data from the optimizer phase to forward, since with
/// overlap the next forward waits for it.
void move_weights_to_forward(StepCost& cost) {
  NamedSeconds& from = cost.optimizer.comm_by;
  const auto at = std::ranges::find(from, "data all_gather", &NamedSeconds::value_type::first);
  if (at == from.end()) return;
  cost.forward.comm_s += at->second;
  cost.optimizer.comm_s -= at->second;
  cost.forward.comm_by.push_back(std::move(*at));
  from.erase(at);
}

std::string line(const char* name, const PhaseCost& cost) {
  std::string text = fmt::format("    {:<10} compute {:8.1f} ms, communication {:8.1f} ms", name,
                                 cost.compute_s * 1e3, cost.comm_s * 1e3);
  for (const auto& [kind, seconds] : cost.comm_by)
    if (seconds > 0.02 * cost.comm_s) text += fmt::format(", {} {:.1f}", kind, seconds * 1e3);
  return text + '\n';
}

std::string lines(const StepCost& cost) {
  return line("forward", cost.forward) + line("backward", cost.backward) +
         line("optimizer", cost.optimizer);
}

Json json_of(const PhaseCost& cost) {
  return {
      {"compute_s", cost.compute_s}, {"comm_s", cost.comm_s}, {"comm_s_by", json_of(cost.comm_by)}};
}

Json json_of(const StepCost& cost) {
  return {{"step_s", cost.step_s},
          {"forward", json_of(cost.forward)},
          {"backward", json_of(cost.backward)},
          {"optimizer", json_of(cost.optimizer)},
          {"progress_share", cost.progress_share}};
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

BenchReport benchmark(const PreparedRun& run, Communicator& world, const ProgressTarget& progress) {
  const Config& config = run.config();
  Training training(run, world, nullptr, {.progress = progress});
  LoadedModel& model = training.model;
  model.initialise();
  if (config.training.tune)
    tune(training, {.cache = matmul_cache_path(config.training.tune_cache), .progress = progress});
  Context ctx = model.context();
  Arena beside(ctx.backend.device());  // memory of the timed products must not count as the step's
  auto products = fixed_products(Context(ctx.backend, beside, ctx.grid, ctx.dtype));
  std::vector<double> seconds, waited;
  WaitClock waits(model.grid()), step_waits = waits;
  double loss = 0;
  const auto run_products = [&] {
    for (int i = 0; i < kStepsTogether; ++i)
      for (PeakProduct& product : products) product.run();
    world.barrier("bench");
    return now_seconds();
  };
  double start = run_products();
  for (int i = 0; i < kBenchIterations; ++i) {
    if (i == kBenchWarmup) waits.restart();
    step_waits.restart();
    loss = training.run(i).loss;
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
  for (PeakProduct& product : products) peaks.push_back(product.median_rate());
  reduce(world, peaks, ReduceOp::sum);
  reduce(world, seconds, ReduceOp::max);
  reduce(world, waited, ReduceOp::sum);
  const GridShape grid = config.parallelism.grid();
  const std::int64_t batch = config.training.global_batch, seq_len = config.training.seq_len;
  const double step_s = mean_of_last(seconds);
  return {.grid = grid,
          .threads = model.threads(),
          .global_batch = batch,
          .step_s_each = seconds,
          .step_s = step_s,
          .spread = spread_of({seconds.begin() + kBenchWarmup, seconds.end()}),
          .exposed_comm_s = mean_of_last(waited) / world.size(),
          .exposed_by = mean_waits(world, kinds, kBenchIterations - kBenchWarmup),
          .tokens_per_s = static_cast<double>(batch * seq_len) / step_s,
          .flops = step_flops(model.config().model, batch, seq_len, fully_recomputed(config)),
          .product_peak = std::ranges::max(peaks),
          .advertised_peak = config.parallelism.peak_tflops * 1e12 * grid.ranks(),
          .memory = compare_memory(run, model),
          .loss = loss};
}

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
      "  hardware          {:.3f} Tflop/s (including recomputation)\n  Narayanan         {}\n"
      "  compute           {:.1f} ms\n  exposed comm.     {:.1f} ms, {:.1f} % of the step\n",
      tflops(r, r.flops.hardware),
      r.flops.narayanan
          ? fmt::format("{:.3f} Tflop/s (the paper's formula, which always counts recomputation)",
                        tflops(r, *r.flops.narayanan))
          : "does not apply (the paper's formula is for dense GPT and Llama models)",
      r.compute_s() * 1e3, r.exposed_comm_s * 1e3, 100 * r.exposed_comm_s / r.step_s);
  for (const auto& [kind, seconds] : r.exposed_by)
    text += fmt::format("    {:<22}{:.1f} ms\n", kind, seconds * 1e3);
  return text + memory_text(r.memory);
}

std::string to_json(const BenchReport& r) {
  const auto known = [](double peak, double value) { return peak > 0 ? Json(value) : Json(); };
  const Json json = {
      {"grid", json_of(r.grid)},
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
      {"narayanan_tflops", r.flops.narayanan ? Json(tflops(r, *r.flops.narayanan)) : Json(nullptr)},
      {"advertised_peak_tflops", known(r.advertised_peak, r.advertised_peak * 1e-12)},
      {"percent_of_advertised_peak", known(r.advertised_peak, r.percent_of_advertised_peak())},
      {"product_peak_tflops", r.product_peak * 1e-12},
      {"percent_of_product_peak", r.percent_of_product_peak()},
      {"exposed_comm_s", r.exposed_comm_s},
      {"exposed_comm_s_by", json_of(r.exposed_by)},
      {"compute_s", r.compute_s()},
      {"memory", json_of(r.memory)},
      {"loss_nats", r.loss}};
  return json.dump(2) + "\n";
}

double OverlapReport::ideal_s() const {
  return std::max(off.forward.compute_s, off.forward.comm_s) +
         std::max(off.backward.compute_s, off.backward.comm_s) + off.optimizer.compute_s;
}

OverlapReport overlap_benchmark(const PreparedRun& run, Communicator& world,
                                const ProgressTarget& progress) {
  const Config& config = run.config();
  OverlapReport report{.grid = config.parallelism.grid(), .chunks = config.parallelism.chunks};
  const PreparedRun without = run.with([](Config& some) {
    some.parallelism.chunks = 1;
    some.parallelism.overlap = Overlap::none();
  });
  report.off = measure(without, world, progress);
  report.on = measure(run, world, progress);
  move_weights_to_forward(report.off);
  return report;
}

std::string to_text(const OverlapReport& r) {
  return fmt::format(
      "grid {}: {:.1f} ms per step (mean of {}), {:.1f} ms without overlap, {:.1f} ms with perfect "
      "overlap: {:.2f} times that\n  without overlap, progress threads {:.1f} % of a core each\n{} "
      " with overlap, {} chunks, progress threads {:.1f} % of a core each\n{}",
      to_string(r.grid), r.on.step_s * 1e3, kSteps, r.off.step_s * 1e3, r.ideal_s() * 1e3,
      r.ratio(), 100 * r.off.progress_share, lines(r.off), r.chunks, 100 * r.on.progress_share,
      lines(r.on));
}

std::string to_json(const OverlapReport& r) {
  const Json json = {{"grid", json_of(r.grid)},
                     {"chunks", r.chunks},
                     {"without_overlap", json_of(r.off)},
                     {"with_overlap", json_of(r.on)},
                     {"ideal_s", r.ideal_s()},
                     {"ratio", r.ratio()}};
  return json.dump(2) + "\n";
}

MeasuredSteps measure_steps(const PreparedRun& run, Communicator& world,
                            const MeasureOptions& options) {
  AXONN_CHECK(options.steps > 0, "measure_steps: got ", options.steps, " steps, wanted at least 1");
  Training training(run, world, nullptr, {.data = false});
  LoadedModel& model = training.model;
  model.initialise();
  const Context ctx = model.context();
  StepInput input = made_up_input(model);
  input.lr = run->optimizer.lr;
  training.step.run(ctx, input);  // from the second step on, prefetching knows the order of blocks
  world.barrier("measure");
  double start = now_seconds();
  training.step.run(ctx, input);
  double first = now_seconds() - start;
  world.all_reduce(buffer(std::span(&first, 1)), "measure", ReduceOp::max).wait();
  const int count = std::clamp(static_cast<int>(options.seconds / first), 1, options.steps);
  model.settle();
  const WaitClock waits(model.grid());
  std::vector<double> timed;
  world.barrier("measure");
  start = now_seconds();
  for (int i = 0; i < count; ++i) {  // without pauses, as in training
    ++input.step;
    training.step.run(ctx, input);
    if (i + 1 == count) model.settle();
    const double end = now_seconds();
    timed.push_back(end - std::exchange(start, end));
  }
  const NamedSeconds waited = waits.by_kind();
  world.all_reduce(buffer(std::span<double>(timed)), "measure", ReduceOp::max).wait();
  MeasuredSteps measured{.step_s = spread_of(timed).median,
                         .waited_by = mean_waits(world, waited, static_cast<double>(timed.size())),
                         .memory_bytes = model.arena().stats().peak_bytes};
  for (const auto& [kind, seconds] : measured.waited_by) measured.waited_s += seconds;
  world.all_reduce(buffer(std::span(&measured.memory_bytes, 1)), "measure", ReduceOp::max).wait();
  return measured;
}

}  // namespace axonn
