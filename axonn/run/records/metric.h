#pragma once

#include <string_view>

namespace axonn {

/// A figure of a step besides those that every run has. The views are of literals, or of names that
/// live as long as the terms of the loss.
struct Metric {
  std::string_view name;  ///< its key in metrics.jsonl
  double value = 0;
  int decimals = -1;              ///< digits after the point; -1: as many as the value needs
  std::string_view in_line = {};  ///< its name in the log's lines; empty: it is not in them
};

}  // namespace axonn
