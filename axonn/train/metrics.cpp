#include "axonn/train/metrics.h"

#include <cerrno>
#include <cmath>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "axonn/base/check.h"
#include "axonn/io/files.h"

namespace axonn {

MetricsFile::MetricsFile(const std::string& path, std::int64_t after_step) : path_(path) {
  if (after_step > 0) keep_until(path, after_step);
  file_.open(path, after_step > 0 ? std::ios::app : std::ios::trunc);
  if (!file_)
    refuse("cannot write ", path, "; check that output.dir is a folder with write permission");
}

void MetricsFile::keep_until(const std::string& path, std::int64_t after_step) {
  std::string kept;
  std::ifstream in(path);
  for (std::string line; std::getline(in, line);) {
    const auto entry = nlohmann::json::parse(line, nullptr, false);
    // Skips lines that a crash cut short or another program wrote.
    if (!entry.is_object() || !entry.contains("step") || !entry["step"].is_number_integer())
      continue;
    const std::int64_t step = entry["step"];
    if (step > after_step) continue;
    kept += line + '\n';
    const auto add = [&](const char* key, Curve& curve) {
      if (entry.contains(key) && entry[key].is_number())
        curve.emplace_back(step, entry[key].get<double>());
    };
    add("loss", losses_);
    add("val_loss", validation_);
  }
  write_file_atomically(path, kept);
}

void MetricsFile::write(const StepMetrics& m) {
  // NaN and infinity are not valid JSON: written as null.
  const auto number = [](double value) {
    return std::isfinite(value) ? fmt::format("{}", value) : std::string("null");
  };
  std::string line = fmt::format(
      R"({{"step": {}, "loss": {}, "grad_norm": {}, "lr": {}, "tokens": {}, "step_ms": {:.3f}, )"
      R"("tokens_per_s": {:.1f}, "model_tflops": {:.6g}, "mfu": {}, "exposed_comm_ms": {:.3f}, )"
      R"("memory_bytes": {})",
      m.step, number(m.loss), number(m.grad_norm), number(m.lr), m.tokens, m.step_ms,
      m.tokens_per_s, m.model_tflops, number(m.mfu), m.exposed_comm_ms, m.memory_bytes);
  std::string kinds;
  for (const auto& [kind, ms] : m.exposed_by)
    kinds += fmt::format(R"({}"{}": {:.3f})", kinds.empty() ? "" : ", ", kind, ms);
  if (!kinds.empty()) line += fmt::format(R"(, "exposed_comm_ms_by": {{{}}})", kinds);
  if (!std::isnan(m.val_loss)) line += fmt::format(R"(, "val_loss": {})", number(m.val_loss));
  if (!std::isnan(m.kept)) line += fmt::format(R"(, "goldfish_kept": {:.6f})", m.kept);
  file_ << line << "}\n" << std::flush;
  if (!file_)
    fail(Where::here(), "writing step ", m.step, " to ", path_, ": ", cause_and_remedy(errno));
  if (std::isfinite(m.loss)) losses_.emplace_back(m.step, m.loss);
  if (std::isfinite(m.val_loss)) validation_.emplace_back(m.step, m.val_loss);
}

}  // namespace axonn
