#pragma once

#include <string>
#include <vector>

#include "axonn/plan/estimate.h"

namespace axonn::testing_support {

/// What the authors switched on, one after another.
enum class Overlap { none, input_gradients, weight_gradients, weights };

/// A step that the paper's authors timed (arXiv 2502.08145): 2^24 tokens.
struct PublishedRun {
  std::string machine;
  int devices = 0;
  std::string model;  ///< "5B"
  std::string what;   ///< "weak scaling", or what was switched on
  double seconds = 0;
  Overlap overlap = Overlap::weights;
  bool tuned = true;      ///< products in their fastest mode
  bool baseline = false;  ///< x in the node and hybrid sharding, instead of the best grid
};

/// The seven points of its weak scaling.
std::vector<PublishedRun> weak_scaling();

/// Overlap switched on step by step, and the steps from the baseline to the end, of one model.
std::vector<PublishedRun> overlap_steps();
std::vector<PublishedRun> gains_5b();
std::vector<PublishedRun> gains_80b();

/// The run's configuration on a grid: the authors' models and batch, and of this program's ways
/// those that they had as well: bf16, activations recomputed, rows not cut over x and y, no chunks,
/// and data's sums not hidden.
Config published_config(const PublishedRun& run, const GridShape& grid);

struct Predicted {
  PublishedRun run;
  GridShape grid;
  StepTime time;

  double error() const { return time.step_s / run.seconds - 1; }
};

/// The run's step on its machine: on the grid that is fastest, everything switched on, among the
/// ten that the authors' communication model ranks best, which is how they chose it.
Predicted predict(const PublishedRun& run);
std::vector<Predicted> predict(const std::vector<PublishedRun>& runs);

/// What was run, as the table of docs/planning.md says it: "| frontier | 8192 | 80B | + OAG | ".
std::string table_key(const PublishedRun& run);

/// The whole row: "| frontier | 8192 | 80B | + OAG | 2,1,512,8 | 18.49 | 17.33 | -6.3 % |".
std::string table_row(const Predicted& predicted);

}  // namespace axonn::testing_support
