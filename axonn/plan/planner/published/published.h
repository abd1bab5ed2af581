#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "axonn/plan/planner/machine/machine.h"
#include "axonn/plan/planner/search.h"
#include "axonn/run/config/prepared_run.h"

namespace axonn {

/// A model of published steps, by the sizes that its figures depend on.
struct PublishedModel {
  std::string name, known;  ///< known: as model.name, instead of sizes; "": by sizes
  ModelConfig config = {.family = ModelFamily::llama};
};

/// A step that another trainer's authors or users published, and the settings of the run.
struct PublishedStep {
  std::string program, model, machine, grid;
  std::string source;                                    ///< a key of the documentation's list
  std::int64_t seq_len = 0, micro_batch = 0, batch = 0;  ///< batches in sequences
  double tokens_per_s = 0;                               ///< of each device
  RecomputeMode recompute = RecomputeMode::none;
  std::vector<std::string> values = {};  ///< that backward computes again, of mode `values`
  int chunks = 1;                        ///< 2: it overlaps tensor parallelism
  int context = 1;
  int experts = 1;  ///< as parallelism.experts: ranks of z that share them
  /// Whether each rank has all weights but those of experts: gathers and sums over z, which stands
  /// for ranks that share experts or sequences, are once a step.
  bool whole_weights = false;
  /// Whether a row that several experts of another node want travels there once.
  bool rows_once = false;
  bool sequence_parallel = true;
  int stages = 1;               ///< of a pipeline, each with the grid's devices; 1: there is none
  int stage_chunks = 1;         ///< into which the layers of a stage are divided (interleaving)
  int devices_per_node = 0;     ///< 0: as in the machine file
  double node_bytes_per_s = 0;  ///< likewise

  int devices() const { return stages * parse_grid(grid).ranks(); }
  double seconds() const { return static_cast<double>(batch * seq_len) / tokens_per_s / devices(); }
};

/// Steps with the models and programs that they name.
struct PublishedSteps {
  std::vector<PublishedModel> models;
  std::vector<OtherProgram> programs;
  std::vector<PublishedStep> steps;

  /// Throws UsageError if a step names what is not there.
  const PublishedModel& model_of(const PublishedStep& step) const;
  const OtherProgram& program_of(const PublishedStep& step) const;
  /// The step's run, and its machine, with its program's habits.
  PreparedRun run_of(const PublishedStep& step) const;
  Machine machine_of(const PublishedStep& step) const;
};

/// Reads steps from a TOML file, "": those that come with the program. Throws UsageError for a file
/// that cannot be read, and for unknown keys and names.
PublishedSteps read_published_steps(const std::string& file = "");

struct PredictedStep {
  double seconds = 0;
  double error = 0;                      ///< of the predicted time; negative: it is too fast
  std::pair<double, double> range = {};  ///< of seconds, as the machine file states it
};

/// Predicts the step with its own settings and its program's habits. The p stages of a pipeline are
/// taken to be equal: with m micro-batches and c chunks a stage they take (1 + (p - 1) / (c m)) / p
/// of the time of all layers on the grid of one stage, and one way through the links and back
/// (Narayanan et al., "Efficient Large-Scale Language Model Training on GPU Clusters", 2021).
PredictedStep predict(const PublishedSteps& all, const PublishedStep& step);
/// The same on a machine other than machine_of(step).
PredictedStep predict_on(const Machine& machine, const PublishedSteps& all,
                         const PublishedStep& step);

/// This program's fastest plan for the step's model, batch and devices; none if nothing fits.
std::optional<Plan> best_plan(const PublishedSteps& all, const PublishedStep& step);

/// The cells of a Markdown table that name a step; these with what was published and predicted; and
/// those of the best plan. table_head(): the rows above the first one.
std::string table_key(const PublishedStep& step);
std::string table_row(const PublishedStep& step, const PredictedStep& predicted);
std::string best_cells(const PublishedStep& step, const std::optional<Plan>& best);
std::string table_head();

}  // namespace axonn
