#include "axonn/plan/planner/memory_fit.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "axonn/foundation/base/check.h"
#include "axonn/plan/planner/costs.h"
#include "axonn/plan/planner/estimate.h"
#include "axonn/plan/planner/recompute_budget.h"
#include "axonn/run/config/recompute.h"
#include "axonn/use/rewards/rollout_sampler.h"

namespace axonn {

namespace {

/// Ways to keep what does not change from step to step, the most exact first.
std::vector<std::pair<MomentType, Quantization>> forms_of(const Config& config,
                                                          const OpenSettings& open) {
  std::vector<std::pair<MomentType, Quantization>> forms{
      {config.optimizer.moments, config.model.quantize}};
  const bool adapters = config.model.lora.rank > 0;
  if (!adapters && open.moments)
    for (const MomentType moments : {MomentType::bf16, MomentType::eight_bits})
      if (moments > config.optimizer.moments) forms.emplace_back(moments, config.model.quantize);
  if (adapters && open.quantize && config.model.quantize == Quantization::none)
    for (const Quantization kind : {Quantization::q8_0, Quantization::nf4})
      forms.emplace_back(config.optimizer.moments, kind);
  return forms;
}

/// What may be in the file of [offload], in the order of attempts: all of one element are compared.
std::vector<std::vector<OffloadConfig>> offloads_of(const OffloadConfig& given,
                                                    const OpenSettings& open) {
  if (given.dir.empty() || !open.offload) return {{given}};
  const auto of = [&](bool parameters, bool gradients, bool optimizer) {
    return OffloadConfig{given.dir, parameters, gradients, optimizer};
  };
  return {{of(false, false, false)},
          {of(false, false, true), of(false, true, true), of(true, false, false),
           of(true, false, true), of(true, true, true)}};
}

/// The settings with what they give, or nothing if they contradict others, such as moments that the
/// optimizer does not have, or do not fit.
std::optional<FittedSettings> settings_within(const PreparedRun& run, FittedSettings settings,
                                              const ArenaBudget& budget, bool recomputes) {
  try {
    PreparedRun chosen = run.with([&](Config& config) {
      config.training.micro_batch = settings.micro_batch;
      config.optimizer.moments = settings.moments;
      config.model.quantize = settings.quantize;
      config.offload = settings.offload;
    });
    const std::int64_t most = budget(chosen);
    if (most <= 0) return std::nullopt;
    if (recomputes) {
      chosen = within_budget(
          chosen.with([&](Config& config) { config.activation_checkpoint.budget = most; }));
      const RecomputedBlocks blocks = recomputed_blocks(chosen->activation_checkpoint);
      if (blocks.of_others.bits() != 0 || blocks.first > 0) settings.budget = most;
    }
    settings.peak_bytes = peak_of_run(chosen);
    if (settings.peak_bytes > most) return std::nullopt;
    settings.seconds = predict(chosen, machine_of(chosen.config())).time.step_s;
    return settings;
  } catch (const UsageError&) {
    return std::nullopt;
  }
}

}  // namespace

std::int64_t peak_of_run(const PreparedRun& run) {
  std::int64_t peak = largest_peak(run);
  if (may_write_rollouts(run->rl))
    peak = std::max(peak, rollout_cost(run, machine_of(run.config())).memory_bytes);
  return peak;
}

std::optional<FittedSettings> fit_memory(const PreparedRun& run, const ArenaBudget& budget,
                                         const OpenSettings& open) {
  AXONN_CHECK(!run->parallelism.automatic(), "fit_memory: the grid is automatic");
  if (!run->offload.dir.empty()) check_disk(machine_of(run.config()));
  const auto fastest = [&](FittedSettings settings, const std::vector<OffloadConfig>& offloads) {
    std::optional<FittedSettings> best;
    for (const OffloadConfig& offload : offloads) {
      settings.offload = offload;
      settings.micro_batch = run->training.micro_batch;
      for (; settings.micro_batch > 0; settings.micro_batch /= 2) {
        const auto one = settings_within(run, settings, budget, open.recomputation);
        if (one && (!best || one->seconds < best->seconds)) best = one;
        if (!open.micro_batch) break;
      }
    }
    return best;
  };
  for (const auto& [moments, quantize] : forms_of(run.config(), open))
    for (const auto& offloads : offloads_of(run->offload, open))
      if (const auto best = fastest({.moments = moments, .quantize = quantize}, offloads))
        return best;
  return std::nullopt;
}

}  // namespace axonn
