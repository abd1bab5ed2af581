#include <nlohmann/json.hpp>

#include "axonn/model/model.h"
#include "axonn/plan/report.h"

namespace axonn {

namespace {

using Json = nlohmann::ordered_json;

Json known(double value) { return value > 0 ? Json(value) : Json(nullptr); }

Json json_of(const GridShape& grid) {
  return {{"x", grid.x}, {"y", grid.y}, {"z", grid.z}, {"data", grid.data}};
}

Json json_of(const PlanReport& r, const Plan& plan) {
  const PlanFlops flops = flops_of(r, plan);
  Json json = {
      {"grid", json_of(plan.grid)},
      {"predicted_s", plan.time.step_s},
      {"compute_s", plan.time.compute_s},
      {"exposed_comm_s", plan.time.exposed_s()},
      {"memory_bytes", plan.memory_bytes},
      {"pflops", flops.model * 1e-15},
      {"percent_of_peak", known(flops.percent_of_peak)},
      {"micro_batch", plan.micro_batch},
      {"activation_checkpoint", kRecomputeModes[static_cast<int>(plan.recompute)]},
      {"micro_batches", plan.micro_batch_count(r.config.training.global_batch)},
      {"tokens_per_s", static_cast<double>(r.batch_tokens()) / plan.time.step_s},
      {"hardware_pflops", flops.hardware * 1e-15},
      {"narayanan_pflops", flops.narayanan * 1e-15},
      {"narayanan_percent_of_peak", known(flops.narayanan_percent_of_peak)},
      {"compute_s_by", plan.time.compute_by},
      {"exposed_comm_s_by", plan.time.exposed_by},
      {"comm_s_by", plan.time.comm_by},
      {"behind", why_behind(r.result.plans.front(), plan)},
  };
  if (r.tokens > 0) {
    json["days"] = r.training_days(plan);
    json["device_hours"] = r.device_hours(plan);
  }
  return json;
}

Json all_of(const PlanReport& r) {
  Json json = {{"plans", Json::array()},
               {"flops_convention", "model"},
               {"model", r.model},
               {"parameters", parameter_count(r.config.model)},
               {"machine", r.machine.name},
               {"devices", r.options.devices},
               {"strategy", kStrategies[static_cast<int>(r.options.strategy)]},
               {"cost", kCostModels[static_cast<int>(r.options.cost)]},
               {"dtype", name_of(r.config.training.dtype)},
               {"batch_tokens", r.batch_tokens()},
               {"seq_len", r.config.training.seq_len},
               {"device_memory_bytes", r.machine.memory_bytes},
               {"search",
                {{"seconds", r.search_s},
                 {"grids", r.result.grids},
                 {"can_cut", r.result.cut},
                 {"fit", r.result.fit},
                 {"simulated", r.result.simulated}}}};
  for (const Plan& plan : r.result.plans) json["plans"].push_back(json_of(r, plan));
  for (const Saving& saving : r.savings)
    json[saving.set ? "saves_s" : "would_save_s"][saving.setting] = saving.seconds;
  if (const auto& least = r.result.smallest) {
    json["least_memory"] = {{"grid", json_of(least->grid)}, {"memory_bytes", least->memory_bytes}};
    json["devices_that_fit"] = r.devices_that_fit > 0 ? Json(r.devices_that_fit) : Json(nullptr);
  }
  return json;
}

}  // namespace

std::string to_json(const PlanReport& report) { return all_of(report).dump(2) + "\n"; }

std::string scaling_json(ScalingKind kind, const std::vector<PlanReport>& reports) {
  Json points = Json::array();
  for (const PlanReport& report : reports) points.push_back(all_of(report));
  return Json{{"scaling", kScalingKinds[static_cast<int>(kind)]}, {"points", points}}.dump(2) +
         "\n";
}

}  // namespace axonn
