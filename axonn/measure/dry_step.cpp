#include "axonn/measure/dry_step.h"

#include <algorithm>

#include "axonn/base/check.h"
#include "axonn/comm/dry_world.h"
#include "axonn/ops/dry_backend.h"

namespace axonn {

namespace {

/// Removes the first of two steps, which has `first` events, from the schedule. Both steps end with
/// the same work in flight, so a wait for work of the first step becomes a wait for the same work
/// at the end of the second.
void keep_second(Schedule& schedule, std::size_t first) {
  const std::size_t second = schedule.events.size() - first;
  for (std::size_t i = first; i < schedule.events.size(); ++i) {
    auto* const wait = std::get_if<Schedule::Wait>(&schedule.events[i]);
    if (!wait) continue;
    const bool before = wait->started < first;
    const std::size_t like = before ? wait->started + second : wait->started;
    AXONN_CHECK(
        like >= first && schedule.events[like].index() == schedule.events[wait->started].index(),
        "dry_step: two steps end differently, at event ", wait->started, " of ", first);
    wait->started = like - first;
  }
  schedule.events.erase(schedule.events.begin(),
                        schedule.events.begin() + static_cast<std::ptrdiff_t>(first));
}

}  // namespace

Config with_vocab(Config config) {
  if (config.model.vocab == 0)
    config.model.vocab = make_tokenizer(config.data.tokenizer)->vocab_size();
  return config;
}

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

DryStep dry_step(const Config& given, int rank, const DryStepOptions& options) {
  Config config = given;
  config.training.cuda_graph = false;  // graphs launch the same work, and there is no GPU here
  AXONN_CHECK(config.model.vocab > 0 && config.training.micro_batch > 0,
              "dry_step: the config is not resolved; its vocab is ", config.model.vocab,
              " and its micro_batch ", config.training.micro_batch);
  Schedule schedule;
  Schedule* const noted = options.schedule ? &schedule : nullptr;
  const auto world = make_dry_world(config.parallelism.grid(), rank, noted);
  Session session(config, *world, make_dry_backend(noted),
                  {.data = false, .make_model = options.make_model});
  StepInput input = session.step_input(0);
  input.micro_batches = std::min(input.micro_batches, options.most_micro_batches);
  input.tokens_of = [&](int) { return any_tokens(session.context(), config); };
  session.train_step(input);
  const std::size_t first = schedule.events.size();
  session.train_step(input);
  DryStep result{.memory = session.arena().stats(), .schedule = std::move(schedule)};
  schedule = {};  // the session's destructor also records waits
  keep_second(result.schedule, first);
  return result;
}

}  // namespace axonn
