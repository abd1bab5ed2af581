#pragma once

#include <string>
#include <vector>

#include "axonn/plan/simulate.h"
#include "axonn/train/config.h"

namespace axonn::testing_support {

/// The overlaps that the authors switched on, one after another.
enum class Overlap { none, input_gradients, weight_gradients, weights };

/// A step that the paper's authors timed (arXiv 2502.08145): 2^24 tokens.
struct PublishedRun {
  std::string machine;
  int devices = 0;
  std::string model;  ///< "5B"
  std::string what;   ///< "weak scaling", or the optimisation switched on
  double seconds = 0;
  Overlap overlap = Overlap::weights;
  bool tuned = true;      ///< products in their fastest mode
  bool baseline = false;  ///< x inside a node and hybrid sharding, instead of the best grid
};

/// The seven weak scaling points of the paper.
std::vector<PublishedRun> weak_scaling();

/// Overlaps switched on one by one; and all optimisations from the baseline on, for one model.
std::vector<PublishedRun> overlap_steps();
std::vector<PublishedRun> gains_5b();
std::vector<PublishedRun> gains_80b();

/// The run's configuration on a grid: the authors' model and batch, and only features that their
/// program had: bf16, recomputed activations, rows not cut over x and y, no chunks, and no overlap
/// of the sums over data.
Config published_config(const PublishedRun& run, const GridShape& grid);

struct Predicted {
  PublishedRun run;
  GridShape grid;
  StepTime time;

  double error() const { return time.step_s / run.seconds - 1; }
};

/// Predicts the run's step. The grid is chosen as the authors did: the fastest, with all overlaps,
/// of the ten that their communication model ranks best; or the baseline's.
Predicted predict(const PublishedRun& run);
std::vector<Predicted> predict(const std::vector<PublishedRun>& runs);

/// The first cells of the run's row in docs/planning.md: "| frontier | 8192 | 80B | + OAG | ".
std::string table_key(const PublishedRun& run);

/// The whole row: "| frontier | 8192 | 80B | + OAG | 2,1,512,8 | 18.49 | 17.33 | -6.3 % |".
std::string table_row(const Predicted& predicted);

}  // namespace axonn::testing_support
