#include "axonn/train/dry_step.h"

#include <algorithm>

#include "axonn/base/check.h"
#include "axonn/comm/dry_world.h"
#include "axonn/ops/dry_backend.h"

namespace axonn {

namespace {

/// The micro-batch's tokens, all of them token 0.
Tokens dry_tokens(const Context& ctx, const TrainingConfig& training) {
  const std::vector<std::int32_t> zeros(training.micro_batch * training.seq_len);
  return make_tokens(ctx, zeros, zeros, {training.micro_batch, training.seq_len});
}

}  // namespace

Config with_vocab(Config config) {
  if (config.model.vocab == 0)
    config.model.vocab = make_tokenizer(config.data.tokenizer)->vocab_size();
  return config;
}

DryStep dry_step(const Config& config, int rank, const DryStepOptions& options) {
  AXONN_CHECK(config.model.vocab > 0 && config.training.micro_batch > 0,
              "dry_step: the config is not resolved; its vocab is ", config.model.vocab,
              " and its micro_batch ", config.training.micro_batch);
  DryStep result;
  Schedule* const schedule = options.schedule ? &result.schedule : nullptr;
  const auto world = make_dry_world(config.parallelism.grid(), rank, schedule);
  Session session(config, *world, make_dry_backend(schedule),
                  {.data = false, .make_model = options.make_model});
  StepInput input = session.step_input(0);
  input.micro_batches = std::min(input.micro_batches, options.most_micro_batches);
  input.tokens_of = [&](int) { return dry_tokens(session.context(), config.training); };
  for (int step = 0; step < 2; ++step) {
    result.schedule.events.clear();
    session.train_step(input);
  }
  result.memory = session.arena().stats();
  return result;
}

}  // namespace axonn
