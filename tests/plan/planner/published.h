#pragma once

#include <string>
#include <vector>

#include "axonn/plan/planner/machine/machine.h"
#include "axonn/plan/planner/simulate.h"
#include "axonn/run/config/config.h"

namespace axonn::testing_support {

/// The overlaps that the authors switched on, one after another.
enum class PublishedOverlap { none, input_gradients, weight_gradients, weights };

/// A step that the authors of arXiv 2502.08145 timed: 2^24 tokens.
struct PublishedRun {
  std::string machine;  ///< "frontier"
  int devices = 0;
  std::string model;  ///< "5B"
  std::string what;   ///< "weak scaling", or the optimisation switched on
  double seconds = 0;
  PublishedOverlap overlap = PublishedOverlap::weights;
  bool tuned = true;      ///< products in their fastest mode
  bool baseline = false;  ///< x inside a node and hybrid sharding, instead of the best grid

  bool operator==(const PublishedRun&) const = default;
};

/// The nine weak scaling points whose figures are known: seven with their times, and the largest of
/// Frontier and of Alps, whose flop/s are in the paper's abstract.
std::vector<PublishedRun> weak_scaling();

/// Overlaps switched on one by one, without the last, which is the point of weak_scaling(); and all
/// optimisations from the baseline on, for one model, without repetitions of the others.
std::vector<PublishedRun> overlap_steps();
std::vector<PublishedRun> gains_5b();
std::vector<PublishedRun> gains_80b();

/// All of the above.
std::vector<PublishedRun> published_runs();

/// The run's configuration on a grid: the authors' model and batch, and only features that their
/// program had: bf16, recomputed activations, rows not cut over x and y, no chunks, and no overlap
/// of the sums over data. The micro-batch is the largest that fits into their program's memory,
/// with logits and their gradient in f32 and bf16.
Config published_config(const PublishedRun& run, const GridShape& grid);

struct Predicted {
  PublishedRun run;
  GridShape grid;
  StepTime time;

  double error() const { return time.step_s / run.seconds - 1; }
};

/// Predicts the run's step on `machine`, or on that of its machine's "-paper" file. The grid is
/// chosen as the authors did: the fastest, with all overlaps, of the ten that their communication
/// model ranks best; or the baseline's.
Predicted predict(const PublishedRun& run, const Machine& machine);
Predicted predict(const PublishedRun& run);
std::vector<Predicted> predict(const std::vector<PublishedRun>& runs);

/// The machine of the run's "-paper" file, with its fitted constants fitted anew to two runs, of
/// which none is `left_out`. docs/planning-model.md names the constants and the runs.
Machine fitted_without(const PublishedRun& left_out);

/// Predicts each run with constants that were fitted without it.
std::vector<Predicted> leave_one_out(const std::vector<PublishedRun>& runs);

/// The mean and the largest of the absolute errors.
struct Errors {
  double mean = 0, worst = 0;
};
Errors errors_of(const std::vector<Predicted>& all);

/// The first cells of the run's row in docs/planning-model.md:
/// "| frontier | 8192 | 80B | + OAG | ".
std::string table_key(const PublishedRun& run);

/// The whole row: "| frontier | 8192 | 80B | + OAG | 2,1,512,8 | 18.49 | 18.67 | +1.0 % |".
std::string table_row(const Predicted& predicted);

}  // namespace axonn::testing_support
