#include "axonn/train/step_inputs.h"

#include <algorithm>

namespace axonn {

StepInput made_up_input(const LoadedModel& model) {
  const TrainingConfig& t = model.config().training;
  StepInput input;
  input.micro_batches =
      static_cast<int>(t.global_batch / model.grid().batch_places() / t.micro_batch);
  input.tokens = input.all_targets = t.global_batch * t.seq_len;
  input.max_norm = t.max_norm;
  return input;
}

void StepInputs::begin_count(std::int64_t step, std::int64_t here) {
  const Grid& grid = model_.grid();
  const bool counts = grid.coord(Axis::x) == 0 && grid.coord(Axis::y) == 0;
  count_.work.wait();
  count_.step = step;
  count_.targets = counts ? static_cast<double>(here) : 0;
  count_.work = grid.world().all_reduce(buffer(std::span(&count_.targets, 1)), "counted targets");
}

std::int64_t StepInputs::counted(std::int64_t step, const Batch& batch) {
  if (count_.step != step) begin_count(step, batch.counted);
  count_.work.wait();
  const auto targets = static_cast<std::int64_t>(count_.targets);
  std::int64_t next = 0;
  try {
    next = batches_.at(step + 1)->counted;
  } catch (const std::exception&) {  // thrown again when that step is asked for, if it ever is
  }
  begin_count(step + 1, next);
  return std::max<std::int64_t>(targets, 1);  // without targets the mean loss is 0
}

StepInput StepInputs::at(std::int64_t n) {
  const std::shared_ptr<const Batch> batch = batches_.at(n);
  StepInput input;
  input.step = n;
  input.micro_batches = batches_.micro_batches();
  input.all_targets = batch->whole.targets;
  input.inputs = batch->whole.inputs;
  input.tokens = batches_.masked() ? counted(n, *batch) : input.all_targets;
  input.max_norm = model_.config().training.max_norm;
  input.tokens_of = [this, batch](int micro) {
    return make_tokens(model_.context(), batch->micro_batches[micro]);
  };
  return input;
}

}  // namespace axonn
