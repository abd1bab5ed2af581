#pragma once

#include <memory>

#include "axonn/comm/communicator.h"
#include "axonn/data/batches.h"
#include "axonn/train/loaded_model.h"
#include "axonn/train/step.h"

namespace axonn {

/// The input of a step with made-up tokens, which all count: step 0, without a learning rate. The
/// tokens have positions and document starts if the config's data is packed. model must outlive it.
StepInput made_up_input(const LoadedModel& model);

/// Makes the inputs of training steps from batches.
class StepInputs {
 public:
  /// Both must outlive it.
  StepInputs(const LoadedModel& model, Batches& batches) : model_(model), batches_(batches) {}

  /// The input of step n, without a learning rate. If the goldfish loss leaves out targets it is
  /// collective: all ranks must ask for the same steps. Each call then starts an all-reduce of 8
  /// bytes that counts the next step's targets, so that only the first call waits for one. Throws
  /// as Batches::at().
  StepInput at(std::int64_t n);

 private:
  /// The all-reduce of a step's number of counted targets.
  struct Count {
    std::int64_t step = -1;
    double targets = 0;
    Work work = {};
  };
  void begin_count(std::int64_t step, std::int64_t here);
  std::int64_t counted(std::int64_t step, const Batch& batch);

  const LoadedModel& model_;
  Batches& batches_;
  Count count_;
};

}  // namespace axonn
