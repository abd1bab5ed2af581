#include "axonn/run/records/run_steps.h"

#include <algorithm>
#include <cmath>
#include <fstream>
#include <limits>
#include <map>

#include <nlohmann/json.hpp>

#include "axonn/foundation/base/check.h"
#include "axonn/foundation/base/files.h"

namespace axonn {

namespace {

constexpr double kNotANumber = std::numeric_limits<double>::quiet_NaN();

constexpr std::size_t kLongestName = 80;

/// Takes a line's values as they are parsed: three times as fast as through a tree of the line.
class StepReader final : public nlohmann::json_sax<nlohmann::json> {
 public:
  RunStep step;
  bool has_step = false;

  // Null stands for NaN or infinity, but with mfu for a peak that is unknown.
  bool null() override { return key_ == "mfu" || put(kNotANumber); }
  bool boolean(bool value) override { return put(value ? 1 : 0); }
  bool number_integer(number_integer_t value) override { return put_whole(value); }
  bool number_unsigned(number_unsigned_t value) override {
    return put_whole(static_cast<std::int64_t>(value));
  }
  bool number_float(number_float_t value, const string_t&) override { return put(value); }
  bool string(string_t&) override { return true; }
  bool binary(binary_t&) override { return true; }
  bool key(string_t& value) override {
    if (objects_ == 1) part_.clear();
    (objects_ == 1 ? key_ : part_) = value;
    return true;
  }
  bool start_object(std::size_t) override { return ++objects_ > 0; }
  bool end_object() override { return --objects_ >= 0; }
  bool start_array(std::size_t) override { return ++arrays_ > 0; }
  bool end_array() override { return --arrays_ >= 0; }
  bool parse_error(std::size_t, const std::string&, const nlohmann::json::exception&) override {
    return false;
  }

 private:
  bool is(std::string_view key) const { return key_ == key && objects_ == 1 && arrays_ == 0; }
  bool put_whole(std::int64_t value) {
    if (!is("step")) return put(static_cast<double>(value));
    step.step = value;
    return has_step = true;
  }
  bool put(double value) {
    if (is("time"))
      step.time = value;
    else if (arrays_ == 0 && (objects_ == 1 || objects_ == 2) && key_.size() <= kLongestName &&
             part_.size() <= kLongestName)
      step.values.push_back({key_, objects_ == 2 ? part_ : "", value});
    return true;
  }

  int objects_ = 0, arrays_ = 0;
  std::string key_, part_;
};

}  // namespace

double RunStep::value_of(std::string_view key) const {
  const auto found = std::ranges::find_if(
      values, [&](const RunValue& one) { return one.key == key && one.part.empty(); });
  return found == values.end() ? kNotANumber : found->value;
}

std::optional<RunStep> parse_run_step(std::string_view line) {
  StepReader reader;
  if (!nlohmann::json::sax_parse(line, &reader) || !reader.has_step) return std::nullopt;
  // A step without targets has no loss, rather than one that is not finite.
  if (std::isfinite(reader.step.value_of("no_targets")))
    std::erase_if(reader.step.values, [](const RunValue& one) { return one.key == "loss"; });
  return std::move(reader.step);
}

std::string series_of(const RunValue& value) {
  static const std::map<std::string, std::string, std::less<>> kSeries = {
      {"loss", "loss/train"},
      {"val_loss", "loss/validation"},
      {"val_loss_ema", "loss/validation_ema"},
      {"grad_norm", "optimizer/grad_norm"},
      {"balance_loss", "experts/balance_loss"},
      {"router_z_loss", "experts/router_z_loss"},
      {"max_expert_load", "experts/max_load"},
      {"output_z_loss", "loss/output_z_loss"},
      {"mtp_loss", "loss/mtp_loss"},
      {"cross_entropy", "loss/cross_entropy"},
      {"teacher_cross_entropy", "loss/teacher_cross_entropy"},
      {"rewards/chosen", "rewards/chosen"},
      {"rewards/rejected", "rewards/rejected"},
      {"rewards/accuracies", "rewards/accuracies"},
      {"rewards/margins", "rewards/margins"},
      {"kl", "rewards/kl"},
      {"nll_loss", "loss/chosen"},
      {"logps/chosen", "logps/chosen"},
      {"logps/rejected", "logps/rejected"},
      {"lr", "optimizer/lr"},
      {"skipped", "optimizer/skipped"},
      {"loss_scale", "optimizer/loss_scale"},
      {"skipped_steps", "optimizer/skipped_steps"},
      {"no_targets", "data/no_targets"},
      {"tokens", "data/tokens"},
      {"epoch", "data/epoch"},
      {"batch", "data/batch"},
      {"goldfish_kept", "data/goldfish_kept"},
      {"step_ms", "speed/step_ms"},
      {"tokens_per_s", "speed/tokens_per_s"},
      {"model_tflops", "speed/model_tflops"},
      {"mfu", "speed/mfu"},
      {"exposed_comm_ms", "communication/exposed_ms"},
      {"exposed_comm_ms_by", "communication/exposed_ms_by"},
      {"memory_bytes", "memory/peak_bytes"},
      {"save_failures", "checkpoints/failed"}};
  const auto found = kSeries.find(value.key);
  constexpr std::string_view kHeldOut = "val_";  // of figures that training has, too
  std::string name = found == kSeries.end() ? "other/" + value.key : found->second;
  if (found == kSeries.end() && value.key.starts_with(kHeldOut))
    if (const auto same = kSeries.find(value.key.substr(kHeldOut.size())); same != kSeries.end())
      name = same->second + "_validation";
  return value.part.empty() ? name : name + '/' + value.part;
}

std::int64_t keep_steps(const std::string& path, std::int64_t after_step,
                        const std::function<void(const RunStep&)>& take) {
  if (after_step == 0) return 0;
  std::string kept;
  std::ifstream in(path);
  for (std::string line; std::getline(in, line);) {
    const std::optional<RunStep> step = parse_run_step(line);
    if (!step || step->step > after_step) continue;
    kept += line + '\n';
    if (take) take(*step);
  }
  write_file_atomically(path, kept);
  return std::ssize(kept);
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
    if (const double ms = step->value_of("step_ms"); std::isfinite(ms)) seconds += ms / 1e3;
    if (step->time == 0) step->time = seconds;
    take(*step);
    ++steps;
  }
  if (steps == 0) refuse(path, " has no steps");
  return steps;
}

}  // namespace axonn
