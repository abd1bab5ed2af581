#include "axonn/use/memorize/curve.h"

#include <fstream>

#include <gmock/gmock.h>

#include "axonn/foundation/base/check.h"

#include "tests/support/temporary_path.h"
#include "tests/use/memorize/report/made_up_report.h"

using namespace axonn;
using namespace axonn::testing_support;
using testing::ElementsAre;
using testing::HasSubstr;

namespace {

/// Of four documents: the two of the control and the two that are learned.
CurvePoint point(std::int64_t step, std::vector<double> loss, std::vector<bool> exact) {
  return {.step = step,
          .validation_loss = 2.5,
          .loss = std::move(loss),
          .log10_p = {-40, -30, static_cast<double>(-step), -INFINITY},
          .exact = std::move(exact)};
}

MemorizationReport report_with_curve() {
  MemorizationReport report = small_study();
  report.runs.resize(1);
  report.exposures = {{}, {}, {5, 8, 20}, {2}};
  report.runs[0].curve = {point(10, {3, 3, 2.0, 1.0}, {false, false, false, true}),
                          point(20, {3, 3, 0.5, 1.8}, {false, false, true, false}),
                          point(30, {3, 5, 1.0, 3.0}, {false, false, false, true}),
                          point(40, {3, 3, 1.9, 3.0}, {false, false, true, true})};
  return report;
}

}  // namespace

TEST(CurveFile, KeepsTheLastLineOfEachStepAndSurvivesAKill) {
  test::TemporaryPath folder;
  EXPECT_TRUE(read_curve(folder.path()).empty());
  append_point(folder.path(), point(20, {9, 9, 9, 9}, {false, false, false, false}));
  std::ofstream(folder / "curve.jsonl", std::ios::app) << "{\"step\":30,\"valida";
  EXPECT_EQ(read_curve(folder.path()).size(), 1u) << "the second line was cut short";
  const CurvePoint last = point(20, {1, 2, 3, 4}, {false, true, false, true});
  append_point(folder.path(), last);
  append_point(folder.path(), point(10, {5, 6, 7, 8}, {true, true, true, true}));
  const std::vector<CurvePoint> curve = read_curve(folder.path());
  ASSERT_EQ(curve.size(), 2u);
  EXPECT_EQ(curve[0].step, 10);
  EXPECT_EQ(curve[1].loss, last.loss);
  EXPECT_EQ(curve[1].log10_p, last.log10_p) << "with minus infinity";
  EXPECT_EQ(curve[1].exact, last.exact);
  EXPECT_EQ(curve[1].validation_loss, last.validation_loss);
  std::ofstream(folder / "curve.jsonl") << "{\"step\": 1}\n";
  EXPECT_THAT([&] { read_curve(folder.path()); },
              testing::ThrowsMessage<UsageError>(
                  AllOf(HasSubstr("curve.jsonl:1"), HasSubstr("'validation_loss' is missing"))));
}

TEST(CurveCells, AreMeansOverTheDocumentsOfAGroup) {
  const std::vector<CurveCell> cells = curve_cells(report_with_curve());
  ASSERT_EQ(cells.size(), 8u) << "four steps, two groups";
  EXPECT_EQ(cells[4].step, 30);
  EXPECT_EQ(cells[4].loss, 4);
  EXPECT_EQ(cells[4].median_log10_p, -35);
  EXPECT_EQ(cells[4].exact_percent, 0);
  EXPECT_EQ(cells[5].loss, 2);
  EXPECT_EQ(cells[5].median_log10_p, -INFINITY) << "half of an infinite sum";
  EXPECT_EQ(cells[5].exact_percent, 50);
  EXPECT_EQ(cells[5].validation_loss, 2.5);
}

TEST(DocumentCurves, TellWhenASuffixWasLearnedAndForgotten) {
  const std::vector<DocumentCurve> curves = document_curves(report_with_curve());
  ASSERT_EQ(curves.size(), 2u) << "those that came";
  EXPECT_EQ(curves[0].document, 2);
  EXPECT_EQ(curves[0].exposures, 3);
  EXPECT_EQ(curves[0].last_exposure, 20);
  EXPECT_EQ(curves[0].first_learned, 20);
  EXPECT_EQ(curves[0].forgotten, 1);
  // At step 20 it is 2.5 nats below the control; 1.25 or less are left from step 40 on: 1.1.
  EXPECT_EQ(curves[0].half_life, 20);
  EXPECT_EQ(curves[1].last_exposure, 2);
  EXPECT_EQ(curves[1].first_learned, 10);
  EXPECT_EQ(curves[1].forgotten, 1);
  // 2 nats at step 10, 1.2 at step 20, 1 of the control's 4 at step 30: half.
  EXPECT_EQ(curves[1].half_life, 28);
}

TEST(DocumentCurves, HaveNoHalfLifeWhereNothingWasGained) {
  MemorizationReport report = report_with_curve();
  for (CurvePoint& one : report.runs[0].curve) one.loss[3] = 7;
  EXPECT_FALSE(document_curves(report)[1].half_life.has_value());
}

TEST(CurveCells, RefuseACurveOfOtherDocuments) {
  MemorizationReport report = report_with_curve();
  report.runs[0].curve[1].loss.pop_back();
  EXPECT_THAT([&] { curve_cells(report); },
              testing::ThrowsMessage<Error>(HasSubstr("step 20 has 3 documents, the test 4")));
}
