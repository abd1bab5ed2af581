#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "axonn/plan/planner/machine/machine.h"
#include "axonn/run/config/config.h"

namespace axonn::testing_support {

struct RowSettings {
  RecomputeMode recompute = RecomputeMode::none;
  std::vector<std::string> values = {};  ///< that backward computes again, of mode `values`
  int chunks = 1;                        ///< 2: it overlaps tensor parallelism
};

struct RowNodes {  ///< 0: as in the machine file
  int devices = 0;
  double bytes_per_s = 0;
};

/// A published speed of another program, in bf16, with a dense model and without a pipeline, and
/// the settings of that run.
struct PublishedRow {
  const char* program;  ///< with the version or date of the figure
  const char* model;    ///< "Llama 3 8B"
  const char* machine;  ///< a machine file
  GridShape grid;
  std::int64_t seq_len = 0, micro_batch = 0, batch = 0;  ///< batches in sequences
  double tokens_per_s = 0;                               ///< of each device
  RowSettings settings = {};
  RowNodes nodes = {};

  double seconds() const {
    return static_cast<double>(batch * seq_len) / tokens_per_s / grid.ranks();
  }
};

/// Rows of the programs' own pages, which docs/planning-model.md names, on DGX-like machines and
/// Alps.
const std::vector<PublishedRow>& published_rows();

/// The row of this program, model and number of devices, which must exist.
const PublishedRow& published_row(std::string_view program, std::string_view model, int devices);

struct PredictedRow {
  PublishedRow row;
  double seconds = 0;
  std::pair<double, double> range = {};  ///< that the machine file states

  /// Of the predicted time.
  double error() const { return seconds / row.seconds() - 1; }
};

/// Predicts the row's step with its own settings. `change` is applied to its machine.
PredictedRow predict(
    const PublishedRow& row, void (*change)(Machine&) = [](Machine&) {});

/// The first cells of the row in docs/planning-model.md, and all of them.
std::string table_key(const PublishedRow& row);
std::string table_row(const PredictedRow& predicted);

}  // namespace axonn::testing_support
