#include "axonn/run/records/export_run.h"

#include <filesystem>
#include <map>
#include <memory>
#include <optional>
#include <vector>

#include <fmt/format.h>

#include "axonn/foundation/base/check.h"
#include "axonn/foundation/base/files.h"
#include "axonn/run/records/event_file.h"
#include "axonn/run/records/run_steps.h"
#include "axonn/run/records/sample_file.h"

namespace axonn {

namespace {

/// The path of a run as a folder below another: without its root and without "..".
std::string name_below(const std::string& folder) {
  std::filesystem::path name;
  for (const auto& part : std::filesystem::path(folder).lexically_normal().relative_path())
    if (part != ".." && part != ".") name /= part;
  return name.empty() ? "run" : name.string();
}

std::string config_path(const std::string& folder) { return folder + "/config.toml"; }

/// A value of a table: in quotes if it needs them.
std::string csv_value(const std::string& text) {
  if (text.find_first_of(",\"\r\n") == std::string::npos) return text;
  std::string quoted = "\"";
  for (const char c : text) quoted += c == '"' ? std::string("\"\"") : std::string(1, c);
  return quoted + '"';
}

std::int64_t export_csv(const std::vector<std::string>& folders, const std::string& out) {
  std::vector<std::string> columns;
  std::map<std::string, std::size_t, std::less<>> place;
  for (const std::string& folder : folders)
    read_run_steps(folder, [&](const RunStep& step) {
      for (const RunValue& one : step.values)
        if (const std::string name = series_of(one); place.try_emplace(name, columns.size()).second)
          columns.push_back(name);
    });
  const bool several = folders.size() > 1;
  std::string text = several ? "run,step,time" : "step,time";
  for (const std::string& name : columns) text += ',' + name;  // no name has a comma or a quote
  text += '\n';
  std::int64_t steps = 0;
  for (const std::string& folder : folders)
    steps += read_run_steps(folder, [&](const RunStep& step) {
      std::vector<std::optional<double>> row(columns.size());
      for (const RunValue& one : step.values)
        if (const auto found = place.find(series_of(one)); found != place.end())
          row[found->second] = one.value;
      if (several) text += csv_value(folder) + ',';
      text += fmt::format("{},{:.3f}", step.step, step.time);
      for (const auto& value : row) text += value ? fmt::format(",{}", *value) : ",";
      text += '\n';
    });
  write_file_atomically(out, text);
  return steps;
}

std::int64_t export_events(const std::string& folder, const std::string& out) {
  if (!event_files(out).empty())
    refuse(out, " has files of events of this program already; name another folder with --out");
  make_folders(out);
  std::unique_ptr<EventFile> events;
  const std::vector<TextSample> samples = read_samples(folder);
  auto sample = samples.begin();
  const std::int64_t steps = read_run_steps(folder, [&](const RunStep& step) {
    if (!events) {
      events =
          std::make_unique<EventFile>(next_event_file(out, step.time, 0), step.time, step.step);
      if (path_exists(config_path(folder)))
        events->write_text(step.step, step.time, "config", as_code(read_text(config_path(folder))));
    }
    for (; sample != samples.end() && sample->step <= step.step; ++sample)
      events->write_text(sample->step, sample->time, sample->tag(), to_markdown(*sample));
    const std::string fault = events->write(step);
    AXONN_CHECK(fault.empty(), fault);
  });
  return steps;
}

}  // namespace

std::int64_t export_runs(const std::vector<std::string>& folders, ExportFormat format,
                         const std::string& out) {
  if (out.empty()) refuse("--out is empty");
  if (format == ExportFormat::csv) return export_csv(folders, out);
  if (folders.size() == 1) return export_events(folders.front(), out);
  std::int64_t steps = 0;
  for (const std::string& folder : folders)
    steps += export_events(folder, concat(out, '/', name_below(folder)));
  return steps;
}

}  // namespace axonn
