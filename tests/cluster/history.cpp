#include "tests/cluster/history.h"

#include <cmath>
#include <cstdlib>
#include <fstream>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "axonn/foundation/base/files.h"
#include "axonn/foundation/base/hash.h"

namespace axonn::cluster {

std::map<std::int64_t, StepValues> noted_steps(const std::string& run) {
  std::map<std::int64_t, StepValues> steps;
  std::ifstream file(run + "/metrics.jsonl");
  for (std::string line; std::getline(file, line);) {
    const nlohmann::json json = nlohmann::json::parse(line, nullptr, /*allow_exceptions=*/false);
    if (!json.is_object() || !json.contains("step")) continue;
    StepValues& values = steps[json["step"]];
    for (const char* name : {"loss", "grad_norm", "val_loss", "val_loss_ema", "lr", "tokens"})
      if (json.contains(name) && json[name].is_number()) values[name] = json[name];
  }
  return steps;
}

std::map<std::string, std::uint64_t> hashes_of(const std::string& checkpoint) {
  std::map<std::string, std::uint64_t> hashes;
  std::error_code error;
  for (const auto& file : std::filesystem::directory_iterator(checkpoint, error))
    if (file.path().extension() == ".safetensors")
      hashes[file.path().filename()] = xxh3(read_text(file.path()));
  return hashes;
}

std::int64_t step_after(const std::string& text, const std::string& before) {
  const std::size_t at = text.rfind(before);
  return at == text.npos ? -1 : std::atoll(text.c_str() + at + before.size());
}

std::string difference(const std::map<std::int64_t, StepValues>& got,
                       const std::map<std::int64_t, StepValues>& want, double tolerance,
                       bool complete) {
  for (const auto& [step, values] : want) {
    const auto found = got.find(step);
    if (found == got.end()) {
      if (complete) return fmt::format("metrics.jsonl lacks step {}", step);
      continue;
    }
    for (const auto& [name, value] : values) {
      const auto own = found->second.find(name);
      if (own == found->second.end()) return fmt::format("step {} lacks {}", step, name);
      if (std::abs(own->second - value) <= tolerance * std::abs(value)) continue;
      return fmt::format("{} of step {} is {:.17g}, not {:.17g}", name, step, own->second, value);
    }
  }
  for (const auto& [step, values] : got)
    if (!want.contains(step)) return fmt::format("metrics.jsonl has a step {}", step);
  return "";
}

}  // namespace axonn::cluster
