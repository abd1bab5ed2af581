#include "axonn/base/chart.h"

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

TEST(Chart, AWidenedAxisEndsOnTickMarksAndContainsItsOldRange) {
  for (const auto& [low, high, logarithmic] :
       {std::tuple{3.14, 3.42, false}, std::tuple{38'000.0, 123'456.0, true},
        std::tuple{0.03, 4000.0, true}, std::tuple{5.0, 5.1, true}}) {
    const Chart::Axis axis =
        widened({.title = "", .low = low, .high = high, .logarithmic = logarithmic});
    EXPECT_LE(axis.low, low);
    EXPECT_GE(axis.high, high);
    Chart chart = from_to(axis.low, axis.high, logarithmic);
    const std::vector<std::string> marks = y_marks(chart);
    ASSERT_GE(marks.size(), 3u);
    const auto number = [](std::string text) {
      std::erase(text, ',');
      return std::stod(text);
    };
    EXPECT_NEAR(number(marks.front()), axis.low, 1e-9 * axis.low);
    EXPECT_NEAR(number(marks.back()), axis.high, 1e-9 * axis.high);
  }
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

TEST(Chart, LabelsOfClosePointsDoNotOverlap) {
  Chart chart = from_to(0, 100);
  for (const double y : {50.0, 50.5, 51.0, 49.0, 52.0})
    chart.points.push_back({.x = 0.5, .y = y, .color = "#000", .label = "label"});
  std::vector<double> heights;
  for (const std::string& y : found(to_svg(chart), R"re(y="([0-9.]+)"[^>]*>label<)re"))
    heights.push_back(std::stod(y));
  ASSERT_EQ(heights.size(), 5u);
  std::ranges::sort(heights);
  for (std::size_t i = 1; i < heights.size(); ++i) EXPECT_GE(heights[i] - heights[i - 1], 13);
}

TEST(Chart, ValuesOutOfRangeAreDrawnAtTheEdgeAndLabelsStayInThePicture) {
  Chart chart = from_to(0, 1);
  chart.lines.push_back({.points = {{0, 0}, {1, 1e9}}, .color = "#000"});
  chart.points.push_back({.x = 1, .y = 0.5, .color = "#000", .label = "a rather long label"});
  const std::string svg = to_svg(chart);
  EXPECT_THAT(svg, Not(HasSubstr(",-")));
  EXPECT_THAT(found(svg, R"re(text-anchor="([a-z]+)">a rather long label)re"), ElementsAre("end"));
}
