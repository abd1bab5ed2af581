#include "axonn/train/run_steps.h"

#include <cmath>
#include <fstream>
#include <limits>
#include <map>

#include <nlohmann/json.hpp>

#include "axonn/base/check.h"
#include "axonn/base/files.h"

namespace axonn {

namespace {

constexpr double kNotANumber = std::numeric_limits<double>::quiet_NaN();

/// The series of a key of metrics.jsonl. Tools show series with the same word before the slash
/// together.
std::string series_of(const std::string& key) {
  static const std::map<std::string, std::string, std::less<>> kSeries = {
      {"loss", "loss/train"},
      {"val_loss", "loss/validation"},
      {"grad_norm", "optimizer/grad_norm"},
      {"lr", "optimizer/lr"},
      {"skipped", "optimizer/skipped"},
      {"tokens", "data/tokens"},
      {"goldfish_kept", "data/goldfish_kept"},
      {"step_ms", "speed/step_ms"},
      {"tokens_per_s", "speed/tokens_per_s"},
      {"model_tflops", "speed/model_tflops"},
      {"mfu", "speed/mfu"},
      {"exposed_comm_ms", "communication/exposed_ms"},
      {"exposed_comm_ms_by", "communication/exposed_ms_by"},
      {"memory_bytes", "memory/peak_bytes"},
      {"save_failures", "checkpoints/failed"}};
  const auto found = kSeries.find(key);
  return found == kSeries.end() ? "other/" + key : found->second;
}

}  // namespace

std::optional<RunStep> parse_run_step(std::string_view line) {
  const auto entry = nlohmann::ordered_json::parse(line, nullptr, false);
  if (!entry.is_object() || !entry.contains("step") || !entry["step"].is_number_integer())
    return std::nullopt;
  RunStep result{.step = entry["step"], .time = entry.value("time", 0.0), .values = {}};
  for (const auto& [key, value] : entry.items()) {
    if (key == "step" || key == "time") continue;
    if (value.is_number()) result.values.emplace_back(series_of(key), value.get<double>());
    if (value.is_boolean()) result.values.emplace_back(series_of(key), value.get<bool>() ? 1 : 0);
    // Null is NaN or infinity; but an unknown mfu, too.
    if (value.is_null() && key != "mfu") result.values.emplace_back(series_of(key), kNotANumber);
    if (!value.is_object()) continue;
    for (const auto& [part, number] : value.items())
      if (number.is_number())
        result.values.emplace_back(concat(series_of(key), '/', part), number.get<double>());
  }
  return result;
}

std::int64_t read_run_steps(const std::string& folder,
                            const std::function<void(const RunStep&)>& take) {
  const std::string path = folder + "/metrics.jsonl";
  std::ifstream file(path);
  if (!file)
    refuse("cannot read ", path, "; ",
           is_folder(folder) ? "is this the output.dir of a run?" : "there is no such folder");
  std::int64_t steps = 0;
  double seconds = 0;
  for (std::string line; std::getline(file, line);) {
    std::optional<RunStep> step = parse_run_step(line);
    if (!step) continue;
    for (const auto& [name, value] : step->values)
      if (name == "speed/step_ms" && std::isfinite(value)) seconds += value / 1e3;
    if (step->time == 0) step->time = seconds;
    take(*step);
    ++steps;
  }
  if (steps == 0) refuse(path, " has no steps");
  return steps;
}

}  // namespace axonn
