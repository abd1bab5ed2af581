#include "axonn/run/records/run_state.h"

#include <algorithm>

#include <nlohmann/json.hpp>

#include "axonn/foundation/base/check.h"

namespace axonn {

namespace {

constexpr const char* kStateFile = "state.json";

}  // namespace

bool BestLoss::note(double loss_of_step, std::int64_t step_of_loss) {
  const bool best = step == 0 || loss_of_step < loss;
  if (best) *this = {.loss = loss_of_step, .step = step_of_loss};
  if (!best) ++worse;
  return best;
}

StateTexts to_texts(const RunState& state, std::string config_toml) {
  const OutlierMeans& means = state.outliers;
  const DataPosition& data = state.data;
  auto stages = nlohmann::json::array();
  for (const StagePosition& stage : data.stages) {
    stages.push_back({{"name", stage.name},
                      {"samples_done", stage.samples_done},
                      {"seq_len", stage.seq_len},
                      {"fingerprint", stage.fingerprint}});
    if (!stage.forgotten.empty()) stages.back()["forgotten"] = stage.forgotten;
  }
  nlohmann::json json = {{"steps_done", state.steps_done},
                         {"consumed", data.consumed},
                         {"tokens_seen", state.tokens_seen},
                         {"seed", data.seed},
                         {"data", {{"shuffle", data.shuffle}, {"stages", std::move(stages)}}},
                         {"outliers",
                          {{"loss", means.loss},
                           {"norm", means.norm},
                           {"steps", means.steps},
                           {"skipped", means.skipped},
                           {"skipped_total", means.skipped_total},
                           {"losses", means.losses},
                           {"norms", means.norms}}}};
  if (const LossScaleState& scale = state.loss_scale; scale.scale > 0)
    json["loss_scale"] = {{"scale", scale.scale},
                          {"steps", scale.steps},
                          {"overflows", scale.overflows},
                          {"hysteresis", scale.hysteresis},
                          {"skipped_total", scale.skipped_total}};
  if (state.best.step > 0)
    json["best"] = {
        {"loss", state.best.loss}, {"step", state.best.step}, {"worse", state.best.worse}};
  if (!state.optimizer.empty()) json["optimizer"] = state.optimizer;
  StateTexts texts{{kStateFile, json.dump(2) + "\n"}, {"config.toml", std::move(config_toml)}};
  if (!state.products.products.empty()) texts.emplace(kProductsFile, to_json(state.products));
  return texts;
}

namespace {

/// The position in the data of a state.json, also of an older one. `samples`: those done, if it
/// does not say.
DataPosition place_of(const nlohmann::json& json, std::int64_t samples, const Config& config) {
  const auto data = json.value("data", nlohmann::json::object());
  DataPosition place{.consumed = json.value("consumed", json.value("samples_done", samples)),
                     .seed = json.value("seed", config.training.seed),
                     .shuffle = data.value("shuffle", config.data.shuffle)};
  const auto add = [&](const nlohmann::json& stage, std::int64_t samples_done) {
    place.stages.push_back({.name = stage.value("name", std::string()),
                            .samples_done = samples_done,
                            .seq_len = stage.value("seq_len", config.training.seq_len),
                            .fingerprint = stage.value("fingerprint", std::string()),
                            .forgotten = stage.value("forgotten", std::vector<std::string>())});
  };
  if (data.contains("stages"))
    for (const nlohmann::json& stage : data["stages"]) add(stage, stage.at("samples_done"));
  else
    add(data, json.value("samples_done", samples));
  return place;
}

}  // namespace

RunState read_run_state(const CheckpointReader& reader, const Config& config) {
  const std::string file = concat(reader.folder(), '/', kStateFile);
  const auto json = nlohmann::json::parse(reader.text(kStateFile), nullptr, false);
  if (!json.is_object() || !json.contains("steps_done") || !json["steps_done"].is_number_integer())
    refuse(file, " does not state how many steps were done");
  RunState state{.steps_done = json["steps_done"]};
  const TrainingConfig& t = config.training;
  try {
    const auto means = json.value("outliers", nlohmann::json::object());
    const std::int64_t samples = state.steps_done * t.global_batch;
    state.tokens_seen = json.value("tokens_seen", samples * t.seq_len);
    state.data = place_of(json, samples, config);
    state.optimizer = json.value("optimizer", std::map<std::string, double>());
    const auto best = json.value("best", nlohmann::json::object());
    state.best = {.loss = best.value("loss", 0.0),
                  .step = best.value("step", std::int64_t{0}),
                  .worse = best.value("worse", std::int64_t{0})};
    if (const auto scale = json.value("loss_scale", nlohmann::json::object()); !scale.empty())
      state.loss_scale = {.scale = scale.at("scale"),
                          .steps = scale.at("steps"),
                          .overflows = scale.at("overflows"),
                          .hysteresis = scale.at("hysteresis"),
                          .skipped_total = scale.at("skipped_total")};
    state.outliers = {.loss = means.value("loss", 0.0),
                      .norm = means.value("norm", 0.0),
                      .steps = means.value("steps", 0.0),
                      .skipped = means.value("skipped", std::int64_t{0}),
                      .skipped_total = means.value("skipped_total", std::int64_t{0}),
                      .losses = means.value("losses", std::vector<double>()),
                      .norms = means.value("norms", std::vector<double>())};
  } catch (const nlohmann::json::exception& error) {
    refuse(file, ": ", error.what());
  }
  std::int64_t least = std::min(state.steps_done, state.data.consumed);
  for (const StagePosition& stage : state.data.stages) least = std::min(least, stage.samples_done);
  if (least < 0) refuse(file, " counts ", least, " steps or samples");
  if (t.tune && reader.has_text(kProductsFile))
    state.products = parse_matmul_choices(reader.text(kProductsFile),
                                          concat(reader.folder(), '/', kProductsFile));
  return state;
}

}  // namespace axonn
