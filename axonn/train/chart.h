#pragma once

#include <string>
#include <utility>
#include <vector>

namespace axonn {

/// A picture of curves: what `axonn train` draws of its losses, and `axonn bench` of its scaling.
struct Chart {
  struct Axis {
    std::string title;  ///< with its unit
    double low = 0, high = 1;
    bool logarithmic = false;  ///< then low is above 0
    bool integers = false;     ///< no marks between them
    /// Where the marks are; none: 1, 2 and 5 times powers of ten.
    std::vector<double> marks = {};
  };
  struct Line {
    std::vector<std::pair<double, double>> points;
    std::string color;
    double width = 2;
    bool dashed = false;
    std::string name = {};  ///< in the legend; "": not there
  };
  struct Point {
    double x = 0, y = 0;
    std::string color;
    std::string label = {};  ///< beside it; labels never lie on one another
  };

  std::string title;
  Axis x, y;
  std::vector<Line> lines = {};
  std::vector<Point> points = {};
};

/// The axis made wider, so that it begins and ends on a mark.
Chart::Axis widened(Chart::Axis axis);

/// Standalone SVG, readable on white and on dark. What is above the y axis' range is drawn at its
/// edge.
std::string to_svg(const Chart& chart);

}  // namespace axonn
