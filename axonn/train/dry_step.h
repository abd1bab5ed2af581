#pragma once

#include "axonn/tensor/arena.h"
#include "axonn/tensor/schedule.h"
#include "axonn/train/config.h"
#include "axonn/train/session.h"

namespace axonn {

struct DryStepOptions {
  bool schedule = false;  ///< note what the step does
  /// Of a step of more micro-batches, this many are run: the first, one between, and the last. All
  /// others are like the second.
  int most_micro_batches = 3;
  ModelMaker make_model = axonn::make_model;
};

/// What one rank's steps take and do.
struct DryStep {
  /// After two steps, the peak over both: to the byte that of the rank's arena in a run, since
  /// memory is asked for by the same code in the same order.
  ArenaStats memory;
  /// Of the second step, the first in which it is known which block comes next, and to which the
  /// step before has left something; a step of more than three micro-batches has the second of
  /// three as often as need be.
  Schedule schedule;
};

/// config with the vocab that its tokenizer says, where it says none itself: then a model of it can
/// be built without its data. Errors: UsageError where there is no such tokenizer.
Config with_vocab(Config config);

/// Runs the trainer's own step of one rank of config's grid, with the run's model, layers and
/// optimizer, on a device without memory, operations without arithmetic, and without the other
/// ranks. So what a step takes is not modelled a second time: it is counted. Milliseconds, whatever
/// the sizes are.
///
/// config is validated and resolved, and has a vocab. Errors: UsageError where the grid cannot cut
/// the model; it names what would do.
DryStep dry_step(const Config& config, int rank, const DryStepOptions& options = {});

}  // namespace axonn
