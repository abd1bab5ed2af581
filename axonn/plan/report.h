#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "axonn/plan/explain.h"
#include "axonn/plan/search.h"
#include "axonn/train/scaling.h"

namespace axonn {

/// What `axonn plan` says of one number of devices.
struct PlanReport {
  std::string model;  ///< its name, or where its config is
  Config config;      ///< as searched
  Machine machine;
  SearchOptions options;
  SearchResult result;
  double search_s = 0;
  std::int64_t tokens = 0;      ///< of a whole training, for days and device hours; 0: not asked
  std::vector<Saving> savings;  ///< of the best plan
  int devices_that_fit = 0;     ///< where none of options.devices does; 0: none is known

  std::int64_t batch_tokens() const {
    return config.training.global_batch * config.training.seq_len;
  }
};

/// Searches, and explains the best. Errors: as search().
PlanReport make_plans(PlanReport asked);

/// Flops a second of a plan's step, all devices together. See StepFlops for the conventions.
struct PlanFlops {
  double model = 0, hardware = 0, narayanan = 0;
  /// `model` of what the data sheets of all devices promise in bf16; 0: not known, or not in bf16.
  double percent_of_peak = 0;
  double narayanan_percent_of_peak = 0;
};
PlanFlops flops_of(const PlanReport& report, const Plan& plan);

/// As lines: the question, the table of plans, where the best one's time goes; or what would fit.
std::string to_text(const PlanReport& report);

/// {"plans": [...], ...}, best first; docs/planning.md says what each key is.
std::string to_json(const PlanReport& report);

/// Several numbers of devices: a table of the best plan of each, {"scaling": ..., "points": [...]},
/// and the curve.
std::string scaling_text(ScalingKind kind, const std::vector<PlanReport>& reports);
std::string scaling_json(ScalingKind kind, const std::vector<PlanReport>& reports);
std::string scaling_svg(ScalingKind kind, const std::vector<PlanReport>& reports);

}  // namespace axonn
