#include "axonn/train/step_inputs.h"

#include <algorithm>

namespace axonn {

namespace {

/// A micro-batch of arbitrary tokens, spread over the vocab; with positions and document starts if
/// the data is packed.
Tokens any_tokens(const Context& ctx, const Config& config) {
  const TrainingConfig& training = config.training;
  constexpr std::int64_t kStride = 7919;  // a prime, so that neighbours differ in the vocab
  std::vector<std::int32_t> ids(training.micro_batch * training.seq_len), positions, starts;
  for (std::int64_t i = 0, id = 0; i < std::ssize(ids); ++i) {
    ids[i] = static_cast<std::int32_t>(id);
    id = (id + kStride) % config.model.vocab;
  }
  if (!config.data.jsonl.empty()) {  // packed sequences
    positions.resize(ids.size());
    starts.resize(ids.size());
    for (std::int64_t i = 0; i < std::ssize(ids); ++i)
      positions[i] = static_cast<std::int32_t>(i % training.seq_len);
  }
  return make_tokens(ctx, ids, ids, {training.micro_batch, training.seq_len},
                     {.positions = positions, .starts = starts});
}

}  // namespace

StepInput made_up_input(const LoadedModel& model) {
  const TrainingConfig& t = model.config().training;
  StepInput input;
  input.micro_batches =
      static_cast<int>(t.global_batch / model.grid().batch_places() / t.micro_batch);
  input.tokens = input.all_targets = t.global_batch * t.seq_len;
  input.max_norm = t.max_norm;
  input.tokens_of = [&model](int) { return any_tokens(model.context(), model.config()); };
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
