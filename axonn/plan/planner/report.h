#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "axonn/compute/tensor/arena.h"
#include "axonn/plan/measure/scaling.h"
#include "axonn/plan/planner/search.h"

namespace axonn {

/// The effect of one setting on the time of a plan's step.
struct Saving {
  std::string setting;  ///< "overlap_weights"
  double seconds = 0;   ///< that it saves, or would save
  bool set = true;      ///< whether the plan has the setting; false: it would save `seconds`
};

/// The time that each overlap that is on saves, with the others unchanged; that collectives in two
/// levels save where they are faster (`collectives`); and the time that
/// cutting a micro-batch into chunks saves or would save. Estimates the step again for each. Leaves
/// out settings without effect on this grid.
std::vector<Saving> savings(const PreparedRun& run, const Machine& machine, const Plan& plan);

/// Why other is slower than best: "+4.0 %: 0.8 s more of exposed z reduce_scatter, 0.3 s more of
/// products".
std::string why_behind(const Plan& best, const Plan& other);

/// The output of `axonn plan` for one number of devices.
struct PlanReport {
  std::string model;  ///< its name, or the path of its config
  PreparedRun run;    ///< as searched
  Machine machine;
  SearchOptions options;
  SearchResult result;
  double search_s = 0;
  std::int64_t tokens = 0;  ///< of a whole training, for days and device hours; 0: not shown
  std::vector<std::string> assumed;  ///< settings that the user did not give: "bf16"
  std::vector<Saving> savings;       ///< of the best plan
  MemoryParts memory = {};           ///< of a rank at its peak on the best plan
  int devices_that_fit = 0;  ///< a number that fits, if options.devices does not; 0: none found

  std::int64_t batch_tokens() const { return run->training.global_batch * run->training.seq_len; }
  /// The time of the whole training on a plan.
  double training_s(const Plan& plan) const {
    return static_cast<double>(tokens) / static_cast<double>(batch_tokens()) * plan.time.step_s;
  }
  double tokens_per_s(const Plan& plan) const {
    return static_cast<double>(batch_tokens()) / plan.time.step_s;
  }
  double tokens_per_s_per_device(const Plan& plan) const {
    return tokens_per_s(plan) / options.devices;
  }
  double training_days(const Plan& plan) const { return training_s(plan) / 86400; }
  double device_hours(const Plan& plan) const { return training_s(plan) / 3600 * options.devices; }
};

/// Searches, and explains the best plan. Throws as search() does.
PlanReport make_plans(PlanReport asked);

/// Flops per second of a plan's step on all devices. See StepFlops for the conventions.
struct PlanFlops {
  double model = 0, hardware = 0;
  std::optional<double> narayanan = {};
  /// `model` over the advertised bf16 peak of all devices; 0: unknown, or not in bf16.
  double percent_of_peak = 0;
  double narayanan_percent_of_peak = 0;  ///< likewise of `narayanan`
};
PlanFlops flops_of(const PlanReport& report, const Plan& plan);

/// The report as text: the question, the table of plans, and the parts of the best plan's time; or
/// what would fit.
std::string to_text(const PlanReport& report);

/// {"plans": [...], ...}, best first; docs/planning.md explains the keys.
std::string to_json(const PlanReport& report);

/// Reports on several numbers of devices: a table of the best plan for each, the JSON
/// {"scaling": ..., "points": [...]}, and a chart.
std::string scaling_text(ScalingKind kind, const std::vector<PlanReport>& reports);
std::string scaling_json(ScalingKind kind, const std::vector<PlanReport>& reports);
std::string scaling_svg(ScalingKind kind, const std::vector<PlanReport>& reports);

}  // namespace axonn
