// Prints a BenchReport as text and as JSON.
#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "axonn/base/log.h"
#include "axonn/train/benchmark.h"

namespace axonn {

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
