#include "axonn/use/memorize/report/text_scores.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include <fmt/format.h>

#include "axonn/foundation/base/log.h"
#include "axonn/use/memorize/report/text_names.h"

namespace axonn {

namespace {

/// "0.850 ±0.259", and for each rate "75.0 (43-95)", in percent, or "not measurable".
TextRow separation_texts(const Separation& separation) {
  TextRow row{fmt::format("{:.3f} \u00b1{:.3f}", separation.auc, separation.auc - separation.low)};
  for (const auto& one : separation.true_positives)
    row.push_back(one ? fmt::format("{:.1f} ({:.0f}-{:.0f})", 100 * one->share, 100 * one->low,
                                    100 * one->high)
                      : "not measurable");
  return row;
}

}  // namespace

bool has_references(const MemorizationReport& report) {
  return std::ranges::any_of(report.runs, [](const RecitationRun& run) {
    return std::ranges::any_of(run.recitations, [](const Recitation& r) {
      return r.scores && !std::isnan(r.scores->ratio);
    });
  });
}

std::string membership_table(const MemorizationReport& report) {
  std::vector<TextRow> rows{names_of(report, "", ""), names_of(report, "loss", "group")};
  for (const char* title : {"", "AUC with 95 %", "TPR % at", "TPR % at"}) rows[0].push_back(title);
  for (const char* title : {"score", "interval", "0.1 % FPR", "1 % FPR"}) rows[1].push_back(title);
  bool more = false;
  for (const MembershipResult& result : membership_results(report)) {
    more = more || result.trial != 1;
    if (result.trial != 1) continue;
    TextRow row = names_of(report, result.variant, report.groups[result.group]);
    row.emplace_back(result.score);
    for (std::string& text : separation_texts(result.separation)) row.push_back(std::move(text));
    rows.push_back(std::move(row));
  }
  if (rows.size() == 2) return "";
  return fmt::format(
      "\nmembership: told from the control by scores (the blind score sees no model){}\n{}",
      more ? "; trial 1 of several" : "", text_table(rows, names_of(report, "", "").size() + 1));
}

std::string distance_table(const MemorizationReport& report) {
  std::vector<TextRow> rows{{"group", "docs", "loss", "reference", "KS distance", "p"}};
  for (const ReferenceDistance& of : reference_distances(report))
    rows.push_back({group_name(report.groups[of.group]), format_count(of.documents),
                    fmt::format("{:.3f}", of.loss), fmt::format("{:.3f}", of.reference_loss),
                    fmt::format("{:.3f}", of.distance.distance),
                    fmt::format("{:.2g}", of.distance.p)});
  if (rows.size() == 1) return "";
  return "\nlosses of documents under the model and the reference, nats a token\n" +
         text_table(rows, 1);
}

std::string references_table(const MemorizationReport& report) {
  std::vector<TextRow> rows{
      {"", "", "", "nats a", "LiRA AUC of references", "", ""},
      {"group", "trial", "docs", "token", "mean (range)", "right %", "flips %"}};
  for (const ReferenceResults::Group& of : report.references.groups) {
    const auto& lira = of.lira;
    rows.push_back({group_name(report.groups[of.group]), format_count(of.trial),
                    format_count(of.documents),
                    fmt::format("{:.3f} \u00b1{:.3f}", of.memorized.nats, of.memorized.error),
                    lira ? fmt::format("{:.3f} ({:.3f} to {:.3f})", lira->auc_mean, lira->auc_least,
                                       lira->auc_most)
                         : "-",
                    lira ? fmt::format("{:.1f}", 100 * lira->right) : "-",
                    lira ? fmt::format("{:.1f}", 100 * lira->flips) : "-"});
  }
  if (rows.size() == 2) return "";
  return fmt::format(
      "\ncounterfactual memorization by {} references, and decisions about each of them by the "
      "others\n{}",
      format_count(report.references.groups.front().references), text_table(rows, 1));
}

std::string exposure_table(const MemorizationReport& report, const MemorizationSummary& summary) {
  std::vector<TextRow> rows{names_of(report, "training", "group")};
  for (const char* title : {"canaries", "mean", "median", "at most", "rank 1 %"})
    rows[0].push_back(title);
  for (const ExposureFigures& of : exposure_figures(report, summary)) {
    TextRow& row = rows.emplace_back(
        names_of(report, summary.variants[of.variant].name, report.groups[of.group]));
    row.push_back(format_count(of.canaries));
    for (const double bits : {of.mean, of.median, of.most})
      row.push_back(fmt::format("{:.2f}", bits));
    row.push_back(fmt::format(
        "{:.1f}", 100 * static_cast<double>(of.first) / static_cast<double>(of.canaries)));
  }
  if (rows.size() == 1) return "";
  return "\nexposure of canaries, bits\n" + text_table(rows, names_of(report, "", "").size());
}

std::string capacity_table(const MemorizationReport& report) {
  std::vector<TextRow> rows{names_of(report, "training", "group")};
  for (const char* title : {"docs", "random", "coded", "memorized", "a parameter"})
    rows[0].push_back(title);
  for (const CapacityFigures& of : capacity_figures(report)) {
    if (of.trial != 1) continue;
    TextRow& row = rows.emplace_back(
        names_of(report, of.variant, of.group ? report.groups[*of.group] : "all learned"));
    row.push_back(format_count(of.documents));
    for (const double bits : {of.bits, of.coded, of.memorized})
      row.push_back(format_count(std::llround(bits)));
    row.push_back(of.bits_per_parameter ? fmt::format("{:.4f}", *of.bits_per_parameter) : "-");
  }
  if (rows.size() == 1) return "";
  return "\nbits of random choices in documents, and those that the model holds; trial 1\n" +
         text_table(rows, names_of(report, "", "").size());
}

}  // namespace axonn
