#pragma once

#include <string>
#include <utility>
#include <vector>

namespace axonn {

/// A chart of curves and points. `axonn train` draws losses with it, and `axonn bench` scaling.
struct Chart {
  struct Axis {
    std::string title;  ///< with its unit
    double low = 0, high = 1;
    bool logarithmic = false;  ///< then low must be above 0
    bool integers = false;     ///< no tick marks between integers
    /// Values of the tick marks; empty: 1, 2 and 5 times powers of ten.
    std::vector<double> marks = {};
  };
  struct Line {
    std::vector<std::pair<double, double>> points;
    std::string color;
    double width = 2;
    bool dashed = false;
    std::string name = {};  ///< in the legend; "": not in it
  };
  struct Point {
    double x = 0, y = 0;
    std::string color;
    std::string label = {};  ///< near it; labels never overlap
  };

  std::string title;
  Axis x, y;
  std::vector<Line> lines = {};
  std::vector<Point> points = {};
};

/// Returns a standalone SVG, readable on light and dark backgrounds. Points of lines above the
/// range of the y axis are drawn at its edge.
std::string to_svg(const Chart& chart);

}  // namespace axonn
