#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "axonn/use/memorize/report/report.h"

namespace axonn {

/// Appends a point to the file curve.jsonl of a run's folder: {"step", "validation_loss", "loss",
/// "log10_p", "exact"}, a line each.
void append_point(const std::string& folder, const CurvePoint& point);

/// The points of that file by step; none if there is no file. Of several lines of a step, as a run
/// writes that was killed and goes on from an earlier checkpoint, the last one counts. A last line
/// that a kill cut short does not count; throws UsageError, with the line, for another that is
/// damaged.
std::vector<CurvePoint> read_curve(const std::string& folder);

/// Means over the documents of a group at a measured step of a run.
struct CurveCell {
  std::string variant = {};
  std::int64_t trial = 1, group = 0, step = 0, documents = 0;
  double loss = 0, median_log10_p = 0, exact_percent = 0;
  std::optional<double> loss_error = {};  ///< standard error; empty with one document
  std::optional<double> validation_loss = {};
};
/// Of each run with a curve, step and group, in this order.
std::vector<CurveCell> curve_cells(const MemorizationReport& report);

/// What the curve of a document says. Steps are numbers of measured ones.
struct DocumentCurve {
  std::string variant = {};
  std::int64_t trial = 1, group = 0, document = 0;
  std::int64_t exposures = 0, last_exposure = 0;   ///< last_exposure: the step in which it came
  std::optional<std::int64_t> first_learned = {};  ///< the first step with an exact suffix
  std::int64_t forgotten = 0;                      ///< times that exact became not exact
  /// Steps from the last exposure to the first measurement at which half of its gain is lost. The
  /// gain is how far its loss is below the mean of the control's at the same step.
  std::optional<std::int64_t> half_life = {};
};
/// Of each run with a curve and document that came, in their order. Needs report.exposures.
std::vector<DocumentCurve> document_curves(const MemorizationReport& report);

}  // namespace axonn
