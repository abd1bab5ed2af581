#include "axonn/use/memorize/report/json.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <string_view>
#include <utility>

#include <nlohmann/json.hpp>

#include "axonn/foundation/base/check.h"
#include "axonn/use/memorize/curve.h"
#include "axonn/use/memorize/report/fields.h"
#include "axonn/use/memorize/report/text.h"

namespace axonn {

/// page.html with page.js in it; CMakeLists.txt writes its definition.
extern const char kPageTemplate[];

namespace {

using Json = nlohmann::ordered_json;

/// indent: of the lines; -1: all on one line.
std::string dumped(const Json& json, int indent = 1) {
  return json.dump(indent, ' ', false, Json::error_handler_t::replace) + "\n";
}

template <typename T>
Json known(const T& value) {
  return value;
}

Json known(const std::optional<double>& value) { return value ? Json(*value) : Json(nullptr); }

Json known(const std::optional<TrialSpread>& spread) {
  if (!spread) return nullptr;
  return {{"mean", spread->mean}, {"min", spread->minimum}, {"max", spread->maximum}};
}

Json json_of(const Recitation& r) {
  Json json;
  const auto set = [&](const char* key, const auto& value) { json[key] = value; };
  visit_recitation(r, set);
  if (r.record) {
    json["log10_p"] = r.record->log10_p;
    visit_record(*r.record, set);
  }
  if (r.scores)
    visit_scores(
        *r.scores, [](const char*, double value) { return !std::isnan(value); }, set);
  if (r.exposure) {
    visit_exposure(*r.exposure, set);
    json["exposure"] = r.exposure->bits();
  }
  if (r.information) visit_information(*r.information, set);
  for (const NearRecord& one : r.near) {
    Json& near = json["near"].emplace_back();
    const auto set_near = [&](const char* key, const auto& value) { near[key] = value; };
    visit_near(one, set_near);
    if (one.samples == 0) continue;
    visit_near_samples(one, set_near);
    const Interval interval = clopper_pearson(one.found, one.samples);
    near["sampled_low"] = interval.low;
    near["sampled_high"] = interval.high;
  }
  return json;
}

Json json_of(const CurvePoint& point) {
  return {{"step", point.step},
          {"validation_loss", known(point.validation_loss)},
          {"loss", point.loss},
          {"log10_p", point.log10_p},
          {"exact", point.exact}};
}

/// With six decimals, so that a page with many tokens stays small.
Json json_of(const std::vector<double>& values) {
  Json list = Json::array();
  for (const double value : values) list.push_back(std::round(value * 1e6) / 1e6);
  return list;
}

Json json_of(const Reading& reading) {
  Json spans = Json::array();
  for (const TokenSpan& span : reading.extracted) spans.push_back({span.first, span.end});
  return {{"document", reading.document},    {"tokens", reading.tokens},
          {"log_p", json_of(reading.log_p)}, {"rank", reading.rank},
          {"log_q", json_of(reading.log_q)}, {"extracted", std::move(spans)}};
}

/// The run without its recitations and its curve.
Json facts_of(const RecitationRun& run) {
  Json json;
  visit_run(run, [&](const char* key, const auto& value) { json[key] = known(value); });
  json["policies"] = run.policies;
  return json;
}

/// Writes the lines that dumped() writes of a whole, piece by piece.
class JsonLines {
 public:
  explicit JsonLines(const TextSink& to) : to_(to) {}

  /// bracket: { or [.
  void open(const char* bracket) {
    separate();
    to_(bracket);
    empty_.push_back(true);
  }
  void close(const char* bracket) {
    const bool empty = empty_.back();
    empty_.pop_back();
    if (!empty) to_("\n" + std::string(empty_.size(), ' '));
    to_(bracket);
    if (empty_.empty()) to_("\n");
  }
  void key(const char* name) {
    separate();
    to_(Json(name).dump() + ": ");
    keyed_ = true;
  }
  void value(const Json& json) {
    separate();
    std::string text = dumped(json);
    text.pop_back();  // the end of its last line
    for (std::size_t at = 0; (at = text.find('\n', at)) != std::string::npos; ++at)
      text.insert(at + 1, empty_.size(), ' ');
    to_(text);
  }
  void line(const Json& json) {
    separate();
    to_(json.dump(-1, ' ', false, Json::error_handler_t::replace));
  }
  /// The values of an object in the open one.
  void values(const Json& object) {
    for (const auto& [name, json] : object.items()) {
      key(name.c_str());
      value(json);
    }
  }

 private:
  void separate() {
    if (std::exchange(keyed_, false) || empty_.empty()) return;
    to_((empty_.back() ? "\n" : ",\n") + std::string(empty_.size(), ' '));
    empty_.back() = false;
  }

  const TextSink& to_;
  std::vector<bool> empty_;  // of the open objects and lists, the outermost first
  bool keyed_ = false;
};

void write_run(const RecitationRun& run, JsonLines& to) {
  to.open("{");
  to.values(facts_of(run));
  to.key("recitations");
  to.open("[");
  for (const Recitation& one : run.recitations) to.value(json_of(with_texts(run, one)));
  to.close("]");
  Json more;
  for (const CurvePoint& point : run.curve) more["curve"].push_back(json_of(point));
  to.values(more);
  if (run.readings.empty()) return;
  to.key("readings");
  to.open("[");
  for (const Reading& one : run.readings) to.line(json_of(one));
  to.close("]");
}

Json json_of(const VariantSummary& variant) {
  return {{"name", variant.name},
          {"trials", variant.trials},
          {"validation_loss", known(variant.validation_loss)},
          {"kept_percent", known(variant.kept_percent)},
          {"train_seconds", variant.train_seconds},
          {"test_seconds", variant.test_seconds}};
}

/// The variant, group and prompt of a figure.
template <typename F>
Json indices_of(const F& of, const MemorizationReport& report, const MemorizationSummary& summary) {
  Json json{{"variant", summary.variants[of.variant].name},
            {"group", report.groups[of.group]},
            {"prompt_tokens", report.prompt_lengths[of.prompt]}};
  if (const std::int64_t offset = report.offset_of(of.prompt); offset != kBeforeSuffix)
    json["offset"] = offset;
  if (const std::int64_t suffix = report.suffix_of(of.prompt); suffix != report.suffix_tokens)
    json["suffix_tokens"] = suffix;
  return json;
}

Json json_of(const RecitationCell& cell, const MemorizationReport& report,
             const MemorizationSummary& summary) {
  Json json = indices_of(cell, report, summary);
  json.update({{"trials", cell.trials},
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
               {"loss", cell.loss},
               {"longest_run_error", known(cell.longest_run_error)},
               {"loss_error", known(cell.loss_error)}});
  return json;
}

Json json_of(const ExtractionRate& rate, const MemorizationReport& report,
             const MemorizationSummary& summary) {
  const double percent =
      100 * static_cast<double>(rate.extractable) / static_cast<double>(rate.suffixes);
  Json json = indices_of(rate, report, summary);
  json.update({{"policy", rate.policy},
               {"n", rate.n},
               {"p", rate.p},
               {"suffixes", rate.suffixes},
               {"extractable", rate.extractable},
               {"percent", percent},
               {"percent_low", rate.interval.low},
               {"percent_high", rate.interval.high}});
  return json;
}

Json json_of(const MatchedRate& rate, const MemorizationReport& report,
             const MemorizationSummary& summary) {
  Json json = indices_of(rate, report, summary);
  json.update({{"policy", rate.policy},
               {"alpha", rate.alpha},
               {"controls", rate.controls},
               {"suffixes", rate.suffixes}});
  const auto measured = [&](const auto& value) { return rate.memorized ? Json(value) : Json(); };
  json["memorized"] = measured(rate.memorized.value_or(0));
  json["memorized_percent_low"] = measured(rate.interval.low);
  json["memorized_percent_high"] = measured(rate.interval.high);
  json["memorized_and_extractable"] = measured(rate.extractable);
  return json;
}

/// A list of the shares that could be measured.
Json json_of(const std::array<std::optional<TruePositives>, 2>& all) {
  Json list = Json::array();
  for (const auto& one : all)
    if (one)
      list.push_back({{"false_positive_rate", one->false_rate},
                      {"true_positives", one->found},
                      {"true_positive_rate", one->share},
                      {"low", one->low},
                      {"high", one->high},
                      {"bootstrap_low", one->from},
                      {"bootstrap_high", one->to}});
  return list;
}

Json json_of(const MembershipResult& result, const MemorizationReport& report) {
  const Separation& separation = result.separation;
  return {{"variant", result.variant},
          {"trial", result.trial},
          {"group", report.groups[result.group]},
          {"score", result.score},
          {"members", separation.members},
          {"non_members", separation.others},
          {"auc", separation.auc},
          {"auc_error", separation.auc_error},
          {"auc_low", separation.low},
          {"auc_high", separation.high},
          {"at_false_positive_rates", json_of(separation.true_positives)}};
}

Json json_of(const NearRate& rate, const MemorizationReport& report,
             const MemorizationSummary& summary) {
  return {{"variant", summary.variants[rate.variant].name},
          {"group", report.groups[rate.group]},
          {"epsilon", rate.epsilon},
          {"n", rate.n},
          {"p", rate.p},
          {"suffixes", rate.suffixes},
          {"extractable_at_least", rate.at_least},
          {"extractable_at_most", rate.at_most}};
}

Json json_of(const NearMass& mass, const MemorizationReport& report,
             const MemorizationSummary& summary) {
  Json json = {{"variant", summary.variants[mass.variant].name},
               {"group", report.groups[mass.group]},
               {"epsilon", mass.epsilon},
               {"documents", mass.documents},
               {"mean_low", mass.low},
               {"mean_high", mass.high},
               {"samples", mass.samples},
               {"found", mass.found}};
  const auto sampled = [&](double value) { return mass.samples > 0 ? Json(value) : Json(); };
  json["sampled"] = sampled(static_cast<double>(mass.found) / static_cast<double>(mass.samples));
  json["sampled_low"] = sampled(mass.interval.low);
  json["sampled_high"] = sampled(mass.interval.high);
  return json;
}

Json json_of(const ExposureFigures& of, const MemorizationReport& report,
             const MemorizationSummary& summary) {
  return {{"variant", summary.variants[of.variant].name},
          {"group", report.groups[of.group]},
          {"canaries", of.canaries},
          {"candidates", of.candidates},
          {"mean_bits", of.mean},
          {"median_bits", of.median},
          {"most_bits", of.most},
          {"rank_1", of.first}};
}

Json json_of(const CapacityFigures& of, const MemorizationReport& report) {
  return {{"variant", of.variant},
          {"trial", of.trial},
          {"group", of.group ? Json(report.groups[*of.group]) : Json(nullptr)},
          {"documents", of.documents},
          {"random_bits", of.bits},
          {"coded_bits", of.coded},
          {"memorized_bits", of.memorized},
          {"bits_per_parameter", known(of.bits_per_parameter)}};
}

Json json_of(const ReferenceDistance& of, const MemorizationReport& report) {
  return {{"group", report.groups[of.group]},
          {"documents", of.documents},
          {"loss", of.loss},
          {"reference_loss", of.reference_loss},
          {"ks_distance", of.distance.distance},
          {"ks_p", of.distance.p}};
}

/// What references say, by their lists; none without references.
Json json_of(const ReferenceResults& results, const MemorizationReport& report) {
  Json groups = Json::array(), documents = Json::array(), pairs = Json::array();
  for (const ReferenceResults::Group& of : results.groups) {
    Json& to = groups.emplace_back(Json{{"trial", of.trial},
                                        {"group", report.groups[of.group]},
                                        {"documents", of.documents},
                                        {"references", of.references},
                                        {"memorized_nats", of.memorized.nats},
                                        {"memorized_error", of.memorized.error}});
    const auto lira = [&](auto member) { return of.lira ? Json((*of.lira).*member) : Json(); };
    to["lira_auc_mean"] = lira(&LiraDecisions::auc_mean);
    to["lira_auc_min"] = lira(&LiraDecisions::auc_least);
    to["lira_auc_max"] = lira(&LiraDecisions::auc_most);
    to["lira_right"] = lira(&LiraDecisions::right);
    to["lira_flips"] = lira(&LiraDecisions::flips);
  }
  for (const ReferenceResults::Document& of : results.documents)
    documents.push_back({{"trial", of.trial},
                         {"group", report.groups[of.group]},
                         {"document", of.document},
                         {"memorized_nats", of.memorized.nats},
                         {"memorized_error", of.memorized.error}});
  for (const auto& [trial, of] : results.pairs)
    pairs.push_back({{"trial", trial},
                     {"document", of.of},
                     {"name", document_text(report, of.of)},
                     {"on", of.on},
                     {"on_name", document_text(report, of.on)},
                     {"nats", of.mean.nats},
                     {"error", of.mean.error},
                     {"deviations", of.deviations}});
  return {{"references", std::move(groups)},
          {"counterfactual", std::move(documents)},
          {"influences", std::move(pairs)}};
}

Json json_of(const CurveCell& cell, const MemorizationReport& report) {
  return {{"variant", cell.variant},
          {"trial", cell.trial},
          {"group", report.groups[cell.group]},
          {"step", cell.step},
          {"documents", cell.documents},
          {"loss", cell.loss},
          {"loss_error", known(cell.loss_error)},
          {"median_log10_p", cell.median_log10_p},
          {"exact_percent", cell.exact_percent},
          {"validation_loss", known(cell.validation_loss)}};
}

Json json_of(const DocumentCurve& curve, const MemorizationReport& report) {
  const auto step = [](const std::optional<std::int64_t>& value) {
    return value ? Json(*value) : Json(nullptr);
  };
  return {{"variant", curve.variant},
          {"trial", curve.trial},
          {"group", report.groups[curve.group]},
          {"document", curve.document},
          {"exposures", curve.exposures},
          {"last_exposure", curve.last_exposure},
          {"first_learned", step(curve.first_learned)},
          {"forgotten", curve.forgotten},
          {"half_life", step(curve.half_life)}};
}

Json json_of_group(const MemorizationReport& report, std::size_t group) {
  Json json = {{"name", report.groups[group]}, {"documents", report.group_sizes[group]}};
  if (!report.group_epochs.empty()) json["epochs"] = report.group_epochs.at(group);
  if (!report.group_designs.empty()) {
    const GroupDesign& design = report.group_designs.at(group);
    json.update({{"from", design.from},
                 {"to", design.to},
                 {"perturbation", design.perturbation},
                 {"variants", design.variants},
                 {"offset", design.offset},
                 {"loss", design.loss},
                 {"form", design.form()}});
  }
  json["control"] = report.is_control(static_cast<std::int64_t>(group));
  return json;
}

Json json_of(const ReportOrigin& origin) {
  return {{"program", origin.program},
          {"command", origin.command},
          {"date", origin.date},
          {"machine", origin.machine},
          {"config", origin.config}};
}

/// The common beginning of report.json and of the page's JSON.
Json overview_of(const MemorizationReport& report, const MemorizationSummary& summary) {
  AXONN_CHECK(report.groups.size() == report.group_sizes.size(), "to_json: the report has ",
              report.groups.size(), " groups, but group sizes for ", report.group_sizes.size());
  Json groups = Json::array(), variants = Json::array();
  for (std::size_t i = 0; i < report.groups.size(); ++i) groups.push_back(json_of_group(report, i));
  for (const VariantSummary& variant : summary.variants) variants.push_back(json_of(variant));
  Json rates = Json::array(), matched = Json::array(), membership = Json::array();
  for (const ExtractionRate& rate :
       extraction_rates(suffix_probabilities(report, summary), report.extraction))
    rates.push_back(json_of(rate, report, summary));
  for (const MatchedRate& rate : matched_rates(report, summary))
    matched.push_back(json_of(rate, report, summary));
  for (const MembershipResult& result : membership_results(report))
    membership.push_back(json_of(result, report));
  Json curves = Json::array(), near = Json::array(), exposure = Json::array();
  Json capacity = Json::array();
  for (const CapacityFigures& figures : capacity_figures(report))
    capacity.push_back(json_of(figures, report));
  for (const ExposureFigures& figures : exposure_figures(report, summary))
    exposure.push_back(json_of(figures, report, summary));
  for (const NearRate& rate : near_rates(report, summary))
    near.push_back(json_of(rate, report, summary));
  Json masses = Json::array();
  for (const NearMass& mass : near_masses(report, summary))
    masses.push_back(json_of(mass, report, summary));
  for (const CurveCell& cell : curve_cells(report)) curves.push_back(json_of(cell, report));
  Json references = json_of(report.references, report), distances = Json::array();
  for (const ReferenceDistance& distance : reference_distances(report))
    distances.push_back(json_of(distance, report));
  return {{"title", report.title},
          {"model", report.model},
          {"notes", report.notes},
          {"headline", headline(report, summary)},
          {"groups", std::move(groups)},
          {"suffix_tokens", report.suffix_tokens},
          {"prompt_lengths", report.prompt_lengths},
          {"prompt_offsets", report.prompt_offsets},
          {"prompt_suffixes", report.prompt_suffixes},
          {"n", report.extraction.n},
          {"p", report.extraction.p},
          {"variants", std::move(variants)},
          {"by_loss", report.by_loss},
          {"extraction", std::move(rates)},
          {"near", std::move(near)},
          {"near_mass", std::move(masses)},
          {"exposure", std::move(exposure)},
          {"parameters", report.parameters},
          {"capacity", std::move(capacity)},
          {"matched", std::move(matched)},
          {"membership", std::move(membership)},
          {"references", std::move(references["references"])},
          {"influences", std::move(references["influences"])},
          {"against_reference", std::move(distances)},
          {"curves", std::move(curves)},
          {"origin", json_of(report.origin)}};
}

/// The best recitations, without what the page does not show of each.
Json passages_of(const MemorizationReport& report, const std::string& variant, std::int64_t group) {
  Json shown = Json::array();
  for (const auto& [run, recitation] : most_recited(report, variant, group)) {
    if (std::ssize(shown) == kMostPassages) break;
    Json& one = shown.emplace_back();
    const Recitation shown_one = with_texts(*run, *recitation);
    visit_recitation(shown_one, [&](const char* key, const auto& value) { one[key] = value; });
    shown.back()["name"] = document_text(report, recitation->document);
    shown.back()["trial"] = run->trial;
  }
  return shown;
}

/// The JSON of html_page(), on one line.
std::string page_json(const MemorizationReport& report) {
  const MemorizationSummary summary = summarize(report);
  Json json = overview_of(report, summary), cells = Json::array(), runs = Json::array(),
       passages = Json::array(), suffixes = Json::array(), readings = Json::array();
  for (const RecitationCell& cell : summary.cells) cells.push_back(json_of(cell, report, summary));
  for (const RecitationRun& run : report.runs) {
    runs.push_back(facts_of(run));
    runs.back()["seed"] = std::to_string(run.seed);
    for (const Reading& reading : run.readings) {
      Json& one = readings.emplace_back(json_of(reading));
      one.erase("log_q");
      one.update({{"variant", run.variant}, {"trial", run.trial}});
    }
  }
  for (const VariantSummary& variant : summary.variants)
    for (std::int64_t group = 0; group < std::ssize(report.groups); ++group)
      passages.push_back(passages_of(report, variant.name, group));
  for (SuffixProbabilities& one : suffix_probabilities(report, summary)) {
    if (one.prompt != summary.longest_prompt()) continue;
    std::ranges::sort(one.log10_p, std::greater());
    suffixes.push_back({{"variant", one.variant},
                        {"group", one.group},
                        {"policy", one.policy},
                        {"log10_p", std::move(one.log10_p)}});
  }
  json["suffixes"] = std::move(suffixes);
  json["summary"] = std::move(cells);
  json["runs"] = std::move(runs);
  json["passages"] = std::move(passages);
  json["readings"] = std::move(readings);
  return dumped(json, -1);
}

}  // namespace

std::string to_json(const CurvePoint& point) { return dumped(json_of(point), -1); }
std::string to_json(const Recitation& recitation) { return dumped(json_of(recitation), -1); }

std::string to_json(const std::vector<double>& values) { return dumped(values, -1); }

std::string to_json(const RecitationRun& run) {
  std::string text;
  const TextSink sink = [&](std::string_view more) { text += more; };
  JsonLines lines(sink);
  write_run(run, lines);
  if (!run.losses.empty()) lines.values({{"losses", run.losses}});
  lines.close("}");
  return text;
}

void write_json(const MemorizationReport& report, const TextSink& to) {
  const MemorizationSummary summary = summarize(report);
  Json cells = Json::array(), curves;
  for (const RecitationCell& cell : summary.cells)
    if (cell.trials > 0) cells.push_back(json_of(cell, report, summary));
  for (const DocumentCurve& curve : document_curves(report))
    curves["documents"].push_back(json_of(curve, report));
  JsonLines lines(to);
  lines.open("{");
  lines.values(overview_of(report, summary));
  lines.values({{"counterfactual", json_of(report.references, report)["counterfactual"]}});
  lines.values({{"summary", std::move(cells)}});
  lines.key("document_names");
  lines.open("[");
  for (const std::string& name : report.document_names) lines.value(name);
  for (std::int64_t n = 0; n < report.documents.size(); ++n) lines.value(report.documents.name(n));
  lines.close("]");
  lines.values(curves);
  lines.key("runs");
  lines.open("[");
  for (const RecitationRun& run : report.runs) {
    write_run(run, lines);
    lines.close("}");
  }
  lines.close("]");
  lines.close("}");
}

std::string to_json(const MemorizationReport& report) {
  std::string text;
  write_json(report, [&](std::string_view more) { text += more; });
  return text;
}

std::string html_page(const MemorizationReport& report) {
  constexpr std::string_view kOpen = "id=\"report\">", kEmpty = "null";
  std::string page = kPageTemplate, json;
  for (const char c : page_json(report))  // no text of the report can end the element
    json += c == '<' ? "\\u003c" : std::string(1, c);
  const std::size_t at = page.find(kOpen);
  AXONN_CHECK(at != std::string::npos, "page.html has no element for the report");
  return page.replace(at + kOpen.size(), kEmpty.size(), json);
}

}  // namespace axonn
