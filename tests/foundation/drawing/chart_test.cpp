#include "axonn/foundation/drawing/chart.h"

#include <regex>

#include <gmock/gmock.h>

#include "tests/support/svg.h"

using namespace axonn;
using namespace axonn::testing_support;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::Not;

namespace {

/// Returns the first capture of every match of a pattern, in order.
std::vector<std::string> found(const std::string& text, const std::string& pattern) {
  const std::regex regex(pattern);
  std::vector<std::string> all;
  for (std::sregex_iterator at(text.begin(), text.end(), regex), end; at != end; ++at)
    all.push_back((*at)[1]);
  return all;
}

/// Returns the labels of the tick marks of the y axis, from the bottom.
std::vector<std::string> y_marks(const Chart& chart) {
  return found(to_svg(chart), R"re(/><text x="[0-9.]+" y="[0-9.]+" text-anchor="end">([^<]*)<)re");
}

Chart from_to(double low, double high, bool logarithmic = false) {
  return {.title = "t",
          .x = {.title = "x"},
          .y = {.title = "y", .low = low, .high = high, .logarithmic = logarithmic}};
}

}  // namespace

TEST(Chart, TickMarksAreRoundNumbersForAnyRange) {
  EXPECT_THAT(y_marks(from_to(0, 1)), ElementsAre("0", "0.2", "0.4", "0.6", "0.8", "1"));
  EXPECT_THAT(y_marks(from_to(3.1, 3.4)),
              ElementsAre("3.1", "3.15", "3.2", "3.25", "3.3", "3.35", "3.4"));
  EXPECT_THAT(y_marks(from_to(9000, 42000)),
              ElementsAre("10,000", "15,000", "20,000", "25,000", "30,000", "35,000", "40,000"));
  EXPECT_THAT(y_marks(from_to(7, 300, true)), ElementsAre("10", "20", "50", "100", "200"));
}

TEST(Chart, AxesHaveTitlesAndTextIsEscaped) {
  Chart chart = from_to(0, 1);
  chart.y.title = "tokens & seconds";
  chart.title = "a < b";
  const std::string svg = to_svg(chart);
  EXPECT_EQ(tag_fault(svg), "");
  EXPECT_THAT(svg, HasSubstr("tokens &amp; seconds"));
  EXPECT_THAT(svg, HasSubstr("a &lt; b"));
  EXPECT_THAT(svg, HasSubstr("prefers-color-scheme:dark"));
}

namespace {

struct Rectangle {
  double left, right, top, bottom;
};

/// The rectangles of the labels with this text, of 7 pixels a letter and 13 in height.
std::vector<Rectangle> boxes_of(const std::string& svg, const std::string& label) {
  const std::regex pattern(
      R"re(class="label" x="([-0-9.]+)" y="([-0-9.]+)" text-anchor="middle">)re" + label + "<");
  std::vector<Rectangle> all;
  for (std::sregex_iterator at(svg.begin(), svg.end(), pattern), end; at != end; ++at) {
    const double x = std::stod((*at)[1]), y = std::stod((*at)[2]),
                 half = 3.5 * static_cast<double>(label.size());
    all.push_back({x - half, x + half, y - 10, y + 3});
  }
  return all;
}

bool meet(const Rectangle& a, const Rectangle& b) {
  return a.left < b.right && b.left < a.right && a.top < b.bottom && b.top < a.bottom;
}

}  // namespace

TEST(Chart, LabelsOfClosePointsDoNotOverlap) {
  Chart chart = from_to(0, 100);
  for (const double y : {50.0, 50.5, 51.0, 49.0, 52.0})
    chart.points.push_back({.x = 0.5, .y = y, .color = "#000", .label = "label"});
  const std::vector<Rectangle> boxes = boxes_of(to_svg(chart), "label");
  ASSERT_EQ(boxes.size(), 5u);
  for (std::size_t i = 0; i < boxes.size(); ++i)
    for (std::size_t j = 0; j < i; ++j) EXPECT_FALSE(meet(boxes[i], boxes[j])) << i << ", " << j;
}

TEST(Chart, LabelsDoNotCoverCurves) {
  Chart chart = from_to(0, 100);
  chart.lines.push_back({.points = {{0, 50}, {1, 50}}, .color = "#000"});
  chart.points.push_back({.x = 0.5, .y = 50, .color = "#000", .label = "label"});
  const std::string svg = to_svg(chart);
  const double y = std::stod(found(svg, R"re(points="[0-9.]+,([0-9.]+) )re").at(0));
  const std::vector<Rectangle> boxes = boxes_of(svg, "label");
  ASSERT_EQ(boxes.size(), 1u);
  EXPECT_FALSE(meet(boxes[0], {0, 760, y - 1, y + 1})) << boxes[0].top << " " << y;
}

TEST(Chart, TheTitleOfTheYAxisIsBesideItsNumbers) {
  for (const double high : {1.0, 20'000'000.0}) {
    const std::string svg = to_svg(from_to(0, high));
    const double title = std::stod(found(svg, R"re(translate\(([0-9.]+) )re").at(0));
    const auto ends = found(svg, R"re(<text x="([0-9.]+)" y="[0-9.]+" text-anchor="end">)re");
    const std::size_t letters = y_marks(from_to(0, high)).back().size();
    EXPECT_GE(std::stod(ends.at(0)) - 7 * static_cast<double>(letters), title + 10) << high;
  }
}

TEST(Chart, ValuesOutOfRangeAreDrawnAtTheEdgeAndLabelsStayInThePicture) {
  Chart chart = from_to(0, 1);
  chart.lines.push_back({.points = {{0, 0}, {1, 1e9}}, .color = "#000"});
  chart.points.push_back({.x = 1, .y = 0.5, .color = "#000", .label = "a rather long label"});
  const std::string svg = to_svg(chart);
  EXPECT_THAT(svg, Not(HasSubstr(",-")));
  const std::vector<Rectangle> boxes = boxes_of(svg, "a rather long label");
  ASSERT_EQ(boxes.size(), 1u);
  EXPECT_LE(boxes[0].right, 760);
}
