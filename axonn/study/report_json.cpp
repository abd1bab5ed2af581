#include "axonn/study/report_json.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include <nlohmann/json.hpp>

#include "axonn/base/check.h"
#include "axonn/study/report_text.h"

namespace axonn {

namespace {

using Json = nlohmann::ordered_json;

constexpr std::size_t kPassages = 50;  // of a group and variant that the page shows

/// indent: of the lines; -1: all on one line.
std::string dumped(const Json& json, int indent = 1) {
  return json.dump(indent, ' ', false, Json::error_handler_t::replace) + "\n";
}

Json known(const std::optional<double>& value) { return value ? Json(*value) : Json(nullptr); }

Json known(const std::optional<TrialSpread>& spread) {
  if (!spread) return nullptr;
  return {{"mean", spread->mean}, {"min", spread->minimum}, {"max", spread->maximum}};
}

Json json_of(const Recitation& r) {
  return {{"document", r.document},
          {"group", r.group},
          {"prompt", r.prompt},
          {"exact", r.exact},
          {"longest_run", r.longest_run},
          {"token_accuracy", r.token_accuracy},
          {"edit_distance", r.edit_distance},
          {"loss", r.loss},
          {"before", r.before},
          {"truth", r.truth},
          {"written", r.written}};
}

/// The run without its recitations.
Json facts_of(const RecitationRun& run) {
  return {{"variant", run.variant},
          {"trial", run.trial},
          {"seed", run.seed},
          {"validation_loss", known(run.validation_loss)},
          {"kept_fraction", known(run.kept_fraction)},
          {"train_seconds", run.train_seconds},
          {"test_seconds", run.test_seconds}};
}

Json json_of(const RecitationRun& run) {
  Json json = facts_of(run), recitations = Json::array();
  for (const Recitation& r : run.recitations) recitations.push_back(json_of(r));
  json["recitations"] = std::move(recitations);
  return json;
}

Json json_of(const VariantSummary& variant) {
  return {{"name", variant.name},
          {"trials", variant.trials},
          {"validation_loss", known(variant.validation_loss)},
          {"kept_percent", known(variant.kept_percent)},
          {"train_seconds", variant.train_seconds},
          {"test_seconds", variant.test_seconds}};
}

Json json_of(const RecitationCell& cell, const MemorizationReport& report,
             const MemorizationSummary& summary) {
  return {{"variant", summary.variants[cell.variant].name},
          {"group", report.groups[cell.group]},
          {"prompt_tokens", report.prompt_lengths[cell.prompt]},
          {"trials", cell.trials},
          {"documents", cell.documents},
          {"recitations", cell.recitations},
          {"exact", cell.exact},
          {"exact_percent", cell.exact_percent.mean},
          {"exact_percent_min", cell.exact_percent.minimum},
          {"exact_percent_max", cell.exact_percent.maximum},
          {"exact_percent_low", cell.exact_interval.low},
          {"exact_percent_high", cell.exact_interval.high},
          {"longest_run", cell.longest_run},
          {"token_accuracy", cell.token_accuracy},
          {"edit_distance", cell.edit_distance},
          {"loss", cell.loss}};
}

/// The common beginning of report.json and of the page's JSON.
Json overview_of(const MemorizationReport& report, const MemorizationSummary& summary) {
  AXONN_CHECK(report.groups.size() == report.group_sizes.size(), "to_json: the report has ",
              report.groups.size(), " groups, but group sizes for ", report.group_sizes.size());
  Json groups = Json::array(), variants = Json::array();
  for (std::size_t i = 0; i < report.groups.size(); ++i)
    groups.push_back({{"name", report.groups[i]}, {"documents", report.group_sizes[i]}});
  for (const VariantSummary& variant : summary.variants) variants.push_back(json_of(variant));
  return {{"title", report.title},
          {"model", report.model},
          {"notes", report.notes},
          {"headline", headline(report, summary)},
          {"groups", std::move(groups)},
          {"suffix_tokens", report.suffix_tokens},
          {"prompt_lengths", report.prompt_lengths},
          {"variants", std::move(variants)}};
}

Json passages_of(const MemorizationReport& report, const std::string& variant, std::int64_t group) {
  const std::vector<RankedRecitation> ranked = most_recited(report, variant, group);
  Json shown = Json::array();
  for (std::size_t i = 0; i < std::min(ranked.size(), kPassages); ++i) {
    shown.push_back(json_of(*ranked[i].recitation));
    shown.back()["name"] = document_text(report, ranked[i].recitation->document);
    shown.back()["trial"] = ranked[i].run->trial;
  }
  return {{"documents", ranked.size()}, {"shown", std::move(shown)}};
}

/// A JSON value and its path, for error messages. Does not own the value.
class Node {
 public:
  Node(const Json& value, std::string file) : value_(&value), file_(std::move(file)) {}

  Node operator[](const char* key) const {
    want(value_->is_object(), "an object");
    const auto found = value_->find(key);
    if (found == value_->end()) refuse(place(), ": '", key, "' is missing");
    return {*found, file_, path_.empty() ? key : concat(path_, '.', key)};
  }

  template <typename F>
  auto all(F f) const {
    want(value_->is_array(), "a list");
    std::vector<decltype(f(*this))> values;
    values.reserve(value_->size());
    for (std::size_t i = 0; i < value_->size(); ++i)
      values.push_back(f(Node((*value_)[i], file_, concat(path_, '[', i, ']'))));
    return values;
  }

  std::string text() const {
    want(value_->is_string(), "a text");
    return value_->get<std::string>();
  }
  bool flag() const {
    want(value_->is_boolean(), "true or false");
    return value_->get<bool>();
  }
  std::uint64_t seed() const {
    want(value_->is_number_unsigned(), "a whole number, 0 or more");
    return value_->get<std::uint64_t>();
  }
  std::int64_t count() const {
    const std::uint64_t value = seed();
    want(std::in_range<std::int64_t>(value), "a whole number below 2^63");
    return static_cast<std::int64_t>(value);
  }
  double number() const {
    want(value_->is_number() || value_->is_null(), "a number");
    return value_->is_null() ? std::nan("") : value_->get<double>();
  }
  std::optional<double> number_if_any() const {
    return value_->is_null() ? std::nullopt : std::optional(number());
  }

 private:
  Node(const Json& value, std::string file, std::string path)
      : value_(&value), file_(std::move(file)), path_(std::move(path)) {}

  void want(bool right, const std::string& what) const {
    if (!right) refuse(place(), " is not ", what);
  }
  std::string place() const { return path_.empty() ? file_ : file_ + ": " + path_; }

  const Json* value_;
  std::string file_, path_;
};

Recitation recitation_from(const Node& node) {
  return {.document = node["document"].count(),
          .group = node["group"].count(),
          .prompt = node["prompt"].count(),
          .exact = node["exact"].flag(),
          .longest_run = node["longest_run"].count(),
          .token_accuracy = node["token_accuracy"].number(),
          .edit_distance = node["edit_distance"].count(),
          .loss = node["loss"].number(),
          .before = node["before"].text(),
          .truth = node["truth"].text(),
          .written = node["written"].text()};
}

RecitationRun run_of(const Node& node) {
  return {.variant = node["variant"].text(),
          .trial = node["trial"].count(),
          .seed = node["seed"].seed(),
          .validation_loss = node["validation_loss"].number_if_any(),
          .kept_fraction = node["kept_fraction"].number_if_any(),
          .train_seconds = node["train_seconds"].number(),
          .test_seconds = node["test_seconds"].number(),
          .recitations = node["recitations"].all(recitation_from)};
}

Json parsed(const std::string& text, const std::string& where) {
  try {
    return Json::parse(text);
  } catch (const Json::exception& error) {
    refuse(where, ": damaged: ", error.what());
  }
}

}  // namespace

std::string to_json(const RecitationRun& run) { return dumped(json_of(run)); }

std::string to_json(const MemorizationReport& report) {
  const MemorizationSummary summary = summarize(report);
  Json json = overview_of(report, summary), cells = Json::array(), runs = Json::array();
  for (const RecitationCell& cell : summary.cells)
    if (cell.trials > 0) cells.push_back(json_of(cell, report, summary));
  for (const RecitationRun& run : report.runs) runs.push_back(json_of(run));
  json["summary"] = std::move(cells);
  json["document_names"] = report.document_names;
  json["runs"] = std::move(runs);
  return dumped(json);
}

std::string page_json(const MemorizationReport& report) {
  const MemorizationSummary summary = summarize(report);
  Json json = overview_of(report, summary), cells = Json::array(), runs = Json::array(),
       passages = Json::array();
  for (const RecitationCell& cell : summary.cells) cells.push_back(json_of(cell, report, summary));
  for (const RecitationRun& run : report.runs) {
    runs.push_back(facts_of(run));
    runs.back()["seed"] = std::to_string(run.seed);
  }
  for (const VariantSummary& variant : summary.variants)
    for (std::int64_t group = 0; group < std::ssize(report.groups); ++group)
      passages.push_back(passages_of(report, variant.name, group));
  json["summary"] = std::move(cells);
  json["runs"] = std::move(runs);
  json["passages"] = std::move(passages);
  return dumped(json, -1);
}

RecitationRun parse_run(const std::string& text, const std::string& where) {
  return run_of(Node(parsed(text, where), where));
}

}  // namespace axonn
