#include <cmath>
#include <limits>
#include <utility>

#include <nlohmann/json.hpp>

#include "axonn/base/check.h"
#include "axonn/study/report.h"
#include "axonn/study/summary.h"

namespace axonn {

namespace {

using Json = nlohmann::ordered_json;

std::string dumped(const Json& json) {
  return json.dump(1, ' ', false, Json::error_handler_t::replace) + "\n";
}

Json known(const std::optional<double>& value) { return value ? Json(*value) : Json(nullptr); }

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

Json json_of(const RecitationRun& run) {
  Json recitations = Json::array();
  for (const Recitation& r : run.recitations) recitations.push_back(json_of(r));
  return {{"variant", run.variant},
          {"trial", run.trial},
          {"seed", run.seed},
          {"validation_loss", known(run.validation_loss)},
          {"kept_fraction", known(run.kept_fraction)},
          {"train_seconds", run.train_seconds},
          {"test_seconds", run.test_seconds},
          {"recitations", std::move(recitations)}};
}

Json summary_of(const MemorizationReport& report) {
  const MemorizationSummary summary = summarize(report);
  Json cells = Json::array();
  for (const RecitationCell& cell : summary.cells) {
    if (cell.trials == 0) continue;
    cells.push_back({{"variant", summary.variants[cell.variant].name},
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
                     {"loss", cell.loss}});
  }
  return cells;
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
  /// A whole number from 0 to end - 1.
  std::int64_t count(std::int64_t end = std::numeric_limits<std::int64_t>::max()) const {
    const bool whole = value_->is_number_unsigned() &&
                       value_->get<std::uint64_t>() < static_cast<std::uint64_t>(end);
    want(whole, concat("a whole number from 0 to below ", end));
    return value_->get<std::int64_t>();
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

/// The indices in a recitation must be below these numbers.
struct Limits {
  std::int64_t documents = std::numeric_limits<std::int64_t>::max();
  std::int64_t groups = documents, prompts = documents;
};

Recitation recitation_of(const Node& node, const Limits& limits) {
  return {.document = node["document"].count(limits.documents),
          .group = node["group"].count(limits.groups),
          .prompt = node["prompt"].count(limits.prompts),
          .exact = node["exact"].flag(),
          .longest_run = node["longest_run"].count(),
          .token_accuracy = node["token_accuracy"].number(),
          .edit_distance = node["edit_distance"].count(),
          .loss = node["loss"].number(),
          .before = node["before"].text(),
          .truth = node["truth"].text(),
          .written = node["written"].text()};
}

RecitationRun run_of(const Node& node, const Limits& limits) {
  return {.variant = node["variant"].text(),
          .trial = node["trial"].count(),
          .seed = node["seed"].seed(),
          .validation_loss = node["validation_loss"].number_if_any(),
          .kept_fraction = node["kept_fraction"].number_if_any(),
          .train_seconds = node["train_seconds"].number(),
          .test_seconds = node["test_seconds"].number(),
          .recitations =
              node["recitations"].all([&](const Node& one) { return recitation_of(one, limits); })};
}

MemorizationReport report_of(const Node& node) {
  const auto text = [](const Node& one) { return one.text(); };
  const auto count = [](const Node& one) { return one.count(); };
  MemorizationReport report{
      .title = node["title"].text(),
      .model = node["model"].text(),
      .notes = node["notes"].all(text),
      .groups = node["groups"].all([](const Node& one) { return one["name"].text(); }),
      .group_sizes = node["groups"].all([](const Node& one) { return one["documents"].count(); }),
      .document_names = node["document_names"].all(text),
      .suffix_tokens = node["suffix_tokens"].count(),
      .prompt_lengths = node["prompt_lengths"].all(count),
      .runs = {}};
  const Limits limits{.documents = std::ssize(report.document_names),
                      .groups = std::ssize(report.groups),
                      .prompts = std::ssize(report.prompt_lengths)};
  report.runs = node["runs"].all([&](const Node& one) { return run_of(one, limits); });
  return report;
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
  AXONN_CHECK(report.groups.size() == report.group_sizes.size(), "to_json: the report has ",
              report.groups.size(), " groups, but group sizes for ", report.group_sizes.size());
  Json groups = Json::array(), runs = Json::array();
  for (std::size_t i = 0; i < report.groups.size(); ++i)
    groups.push_back({{"name", report.groups[i]}, {"documents", report.group_sizes[i]}});
  for (const RecitationRun& run : report.runs) runs.push_back(json_of(run));
  return dumped({{"title", report.title},
                 {"model", report.model},
                 {"notes", report.notes},
                 {"groups", std::move(groups)},
                 {"suffix_tokens", report.suffix_tokens},
                 {"prompt_lengths", report.prompt_lengths},
                 {"summary", summary_of(report)},
                 {"document_names", report.document_names},
                 {"runs", std::move(runs)}});
}

RecitationRun parse_run(const std::string& text, const std::string& where) {
  return run_of(Node(parsed(text, where), where), {});
}

MemorizationReport parse_report(const std::string& text, const std::string& where) {
  return report_of(Node(parsed(text, where), where));
}

}  // namespace axonn
