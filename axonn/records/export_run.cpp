#include "axonn/records/export_run.h"

#include <cmath>
#include <filesystem>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include <fmt/format.h>

#include "axonn/base/check.h"
#include "axonn/base/files.h"
#include "axonn/base/hash.h"
#include "axonn/config/config_options.h"
#include "axonn/options/options_text.h"
#include "axonn/records/event_file.h"
#include "axonn/records/run_steps.h"
#include "axonn/records/sample_file.h"

namespace axonn {

namespace {

namespace fs = std::filesystem;

std::string config_path(const std::string& folder) { return folder + "/config.toml"; }

std::int64_t export_csv(const std::string& folder, const std::string& out) {
  std::vector<std::string> columns;
  std::map<std::string, std::size_t, std::less<>> place;
  read_run_steps(folder, [&](const RunStep& step) {
    for (const RunValue& one : step.values)
      if (const std::string name = series_of(one); place.try_emplace(name, columns.size()).second)
        columns.push_back(name);
  });
  std::string text = "step,time";
  for (const std::string& name : columns) text += ',' + name;  // no name has a comma or a quote
  text += '\n';
  const std::int64_t steps = read_run_steps(folder, [&](const RunStep& step) {
    std::vector<std::optional<double>> row(columns.size());
    for (const RunValue& one : step.values)
      if (const auto found = place.find(series_of(one)); found != place.end())
        row[found->second] = one.value;
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

/// A run in the file store of MLflow.
class MlflowRun {
 public:
  MlflowRun(const std::string& folder, const std::string& store)
      : source_(fs::weakly_canonical(folder)), store_(fs::absolute(store).lexically_normal()) {}

  std::int64_t write() {
    std::map<std::string, std::unique_ptr<OutputFile>> metrics;
    std::map<std::string, std::string> waiting;
    std::unique_ptr<TemporaryFolder> made;
    const std::int64_t steps = read_run_steps(source_, [&](const RunStep& step) {
      const auto ms = static_cast<std::int64_t>(std::llround(step.time * 1e3));
      if (!made) begin(ms, made);
      last_ = ms;
      for (const RunValue& one : step.values) {
        const std::string name = series_of(one);
        std::string& lines = waiting[name];
        lines += fmt::format("{} {} {}\n", ms, one.value, step.step);
        if (lines.size() >= kBuffer) flush(*made, metrics[name], name, lines);
      }
    });
    for (auto& [name, lines] : waiting) {
      flush(*made, metrics[name], name, lines);
      metrics[name]->finish();
    }
    write_parameters(made->path());
    write_meta(made->path());
    make_experiment();
    made->publish();
    return steps;
  }

 private:
  static constexpr std::size_t kBuffer = 64 << 10;
  static constexpr const char* kExperiment = "416581111110110";  // its id: a number

  std::string experiment() const { return store_ + '/' + kExperiment; }

  void begin(std::int64_t ms, std::unique_ptr<TemporaryFolder>& made) {
    first_ = ms;
    // The same run has the same name, so that it is not exported twice.
    id_ = hex_of(xxh3(source_)) + hex_of(xxh3(concat(source_, ' ', ms)));
    if (path_exists(experiment() + '/' + id_))
      refuse("the store ", store_, " has this run already, as ", id_,
             "; remove that folder, or name another store with --out");
    made = std::make_unique<TemporaryFolder>(experiment() + '/' + id_);
    for (const char* name : {"metrics", "params", "tags", "artifacts"})
      make_folders(made->path() + '/' + name);
  }

  static void flush(const TemporaryFolder& made, std::unique_ptr<OutputFile>& file,
                    const std::string& name, std::string& lines) {
    if (!file) {
      const std::string path = made.path() + "/metrics/" + name;
      make_folders(fs::path(path).parent_path());
      file = std::make_unique<OutputFile>(path);
    }
    file->append(std::as_bytes(std::span(lines)));
    lines.clear();
  }

  void write_parameters(const std::string& to) const {
    write_text(to + "/tags/mlflow.runName", fs::path(source_).filename().string());
    write_text(to + "/tags/mlflow.source.name", source_);
    if (!path_exists(config_path(source_))) return;
    Config config;
    OptionList list;
    list_options(config, list);
    Origins origins;
    read_toml_text(list, read_text(config_path(source_)), config_path(source_), origins,
                   UnknownSections::skip_keys);
    for (const OptionList::Section& section : list.sections())
      for (const Option& option : section.options) {
        std::string value = option.text();
        if (value.size() >= 2 && value.starts_with('"')) value = value.substr(1, value.size() - 2);
        write_text(to + "/params/" + option.key(), value);
      }
  }

  /// A string in single quotes, as YAML writes it.
  static std::string quoted(const std::string& text) {
    std::string result = "'";
    for (const char c : text) result += c == '\'' ? "''" : std::string(1, c);
    return result + "'";
  }

  void write_meta(const std::string& to) const {
    constexpr int kFinished = 3, kLocal = 4;  // RunStatus.FINISHED, SourceType.LOCAL
    write_text(
        to + "/meta.yaml",
        fmt::format("artifact_uri: {}\nend_time: {}\nentry_point_name: ''\nexperiment_id: '{}'\n"
                    "lifecycle_stage: active\nrun_id: {}\nrun_name: {}\nrun_uuid: {}\n"
                    "source_name: ''\nsource_type: {}\nsource_version: ''\nstart_time: {}\n"
                    "status: {}\ntags: []\nuser_id: ''\n",
                    quoted(concat("file://", experiment(), '/', id_, "/artifacts")), last_,
                    kExperiment, quoted(id_), quoted(fs::path(source_).filename().string()),
                    quoted(id_), kLocal, first_, kFinished));
  }

  void make_experiment() const {
    const std::string path = experiment() + "/meta.yaml";
    if (path_exists(path)) return;
    write_file_atomically(
        path, fmt::format("artifact_location: {}\ncreation_time: {}\nexperiment_id: '{}'\n"
                          "last_update_time: {}\nlifecycle_stage: active\nname: axonn\n",
                          quoted("file://" + experiment()), first_, kExperiment, last_));
  }

  std::string source_, store_, id_;
  std::int64_t first_ = 0, last_ = 0;  // milliseconds since 1970
};

}  // namespace

std::int64_t export_run(const std::string& folder, ExportFormat format, const std::string& out) {
  if (out.empty()) refuse("--out is empty");
  if (format == ExportFormat::csv) return export_csv(folder, out);
  if (format == ExportFormat::tensorboard) return export_events(folder, out);
  return MlflowRun(folder, out).write();
}

}  // namespace axonn
