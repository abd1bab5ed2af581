#include "axonn/use/memorize/curve.h"

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <map>
#include <utility>

#include "axonn/foundation/base/check.h"
#include "axonn/foundation/base/files.h"
#include "axonn/use/memorize/report/json.h"

namespace axonn {

namespace {

std::string curve_file(const std::string& folder) { return folder + "/curve.jsonl"; }

/// The point of a document at its index among those of the trial.
struct IndexedDocument {
  std::int64_t document, group;
  std::size_t index;
};

std::vector<IndexedDocument> indexed_documents(const RecitationRun& run) {
  std::map<std::int64_t, std::int64_t> groups;  // by document
  for (const Recitation& r : run.recitations) groups.emplace(r.document, r.group);
  std::vector<IndexedDocument> indexed;
  for (const auto& [document, group] : groups) indexed.push_back({document, group, indexed.size()});
  for (const CurvePoint& point : run.curve)
    AXONN_CHECK(point.loss.size() == indexed.size() && point.exact.size() == indexed.size() &&
                    point.log10_p.size() == indexed.size(),
                "curve of ", run.variant, ", trial ", run.trial, ": step ", point.step, " has ",
                point.loss.size(), " documents, the test ", indexed.size());
  return indexed;
}

/// The mean loss of a group's documents.
double mean_loss(const CurvePoint& point, const std::vector<IndexedDocument>& documents,
                 std::int64_t group) {
  double sum = 0, count = 0;
  for (const IndexedDocument& one : documents)
    if (one.group == group) {
      sum += point.loss[one.index];
      ++count;
    }
  return sum / count;
}

/// control: at each point of the run, the mean loss of the control's documents.
DocumentCurve document_curve(const MemorizationReport& report, const RecitationRun& run,
                             const IndexedDocument& one, const std::vector<double>& control) {
  const std::vector<std::int64_t>& came = report.exposures.at(one.document);
  DocumentCurve curve{.variant = run.variant,
                      .trial = run.trial,
                      .group = one.group,
                      .document = one.document,
                      .exposures = std::ssize(came),
                      .last_exposure = came.back()};
  bool before = false;
  std::optional<double> gain;  // at the first measurement after the last exposure
  for (std::size_t i = 0; i < run.curve.size(); ++i) {
    const CurvePoint& point = run.curve[i];
    const bool exact = point.exact[one.index];
    if (exact && !curve.first_learned) curve.first_learned = point.step;
    curve.forgotten += before && !exact;
    before = exact;
    if (point.step < curve.last_exposure) continue;
    const double now = control[i] - point.loss[one.index];
    if (!gain) gain = now;
    if (!curve.half_life && *gain > 0 && now <= *gain / 2)
      curve.half_life = point.step - curve.last_exposure;
  }
  return curve;
}

}  // namespace

void append_point(const std::string& folder, const CurvePoint& point) {
  const std::string path = curve_file(folder);
  // A kill may have cut the last line short.
  const bool cut = std::filesystem::exists(path) && !read_text(path).ends_with('\n') &&
                   std::filesystem::file_size(path) > 0;
  std::ofstream file(path, std::ios::app);
  file << (cut ? "\n" : "") << to_json(point) << std::flush;
  AXONN_CHECK(file, "cannot write to ", path);
}

std::vector<CurvePoint> read_curve(const std::string& folder) {
  const std::string path = curve_file(folder);
  if (!std::filesystem::exists(path)) return {};
  const std::string text = read_text(path);
  std::map<std::int64_t, CurvePoint> points;
  std::int64_t number = 0;
  for (std::size_t begin = 0, end; begin < text.size(); begin = end + 1) {
    end = std::min(text.find('\n', begin), text.size());
    const std::string line = text.substr(begin, end - begin);
    ++number;
    if (line.empty() || line.back() != '}') continue;  // cut short
    CurvePoint point = parse_point(line, concat(path, ':', number));
    points[point.step] = std::move(point);
  }
  std::vector<CurvePoint> curve;
  for (auto& [step, point] : points) curve.push_back(std::move(point));
  return curve;
}

std::vector<CurveCell> curve_cells(const MemorizationReport& report) {
  std::vector<CurveCell> cells;
  for (const RecitationRun& run : report.runs) {
    if (run.curve.empty()) continue;
    const std::vector<IndexedDocument> documents = indexed_documents(run);
    for (const CurvePoint& point : run.curve)
      for (std::int64_t group = 0; group < std::ssize(report.groups); ++group) {
        CurveCell cell{.variant = run.variant,
                       .trial = run.trial,
                       .group = group,
                       .step = point.step,
                       .validation_loss = point.validation_loss};
        std::vector<double> log10_p, losses;
        for (const IndexedDocument& one : documents) {
          if (one.group != group) continue;
          log10_p.push_back(point.log10_p[one.index]);
          losses.push_back(point.loss[one.index]);
          cell.exact_percent += point.exact[one.index] ? 100 : 0;
        }
        if (log10_p.empty()) continue;
        cell.documents = std::ssize(log10_p);
        cell.exact_percent /= static_cast<double>(cell.documents);
        cell.loss = mean_loss(point, documents, group);
        cell.loss_error = error_of_mean(losses);
        cell.median_log10_p = median_of(std::move(log10_p));
        cells.push_back(std::move(cell));
      }
  }
  return cells;
}

std::vector<DocumentCurve> document_curves(const MemorizationReport& report) {
  std::vector<DocumentCurve> curves;
  if (report.exposures.empty()) return curves;
  for (const RecitationRun& run : report.runs) {
    if (run.curve.empty()) continue;
    const std::vector<IndexedDocument> documents = indexed_documents(run);
    std::map<std::int64_t, std::vector<double>> losses;  // by control
    for (const std::int64_t control : report.controls)
      if (const auto [at, is_new] = losses.try_emplace(control); is_new)
        for (const CurvePoint& point : run.curve)
          at->second.push_back(mean_loss(point, documents, control));
    for (const IndexedDocument& one : documents)
      if (!report.exposures.at(one.document).empty())
        curves.push_back(
            document_curve(report, run, one, losses.at(report.controls.at(one.group))));
  }
  return curves;
}

}  // namespace axonn
