#include "axonn/run/train/forget_plan.h"

#include <algorithm>

#include "axonn/data/corpus/batches.h"
#include "axonn/data/corpus/corpus.h"
#include "axonn/data/corpus/forget.h"
#include "axonn/data/storage/checkpoint/checkpoint_reader.h"
#include "axonn/foundation/base/check.h"
#include "axonn/run/config/batch_ramp.h"
#include "axonn/run/config/resolve.h"
#include "axonn/run/config/stored_config.h"
#include "axonn/run/records/run_state.h"
#include "axonn/run/records/run_steps.h"
#include "axonn/run/train/data_stages.h"

namespace axonn {

namespace {

/// Median time of a step; 0 if the run has no metrics.
double step_seconds_of(const std::string& run) {
  std::vector<double> times;
  const std::string none = fault_of([&] {
    read_run_steps(run, [&](const RunStep& step) { times.push_back(step.value_of("step_ms")); });
  });
  std::erase_if(times, [](double ms) { return !(ms > 0); });
  if (!none.empty() || times.empty()) return 0;
  const auto middle = times.begin() + std::ssize(times) / 2;
  std::ranges::nth_element(times, middle);
  return *middle / 1e3;
}

/// The position in the data of the newest checkpoint of the run, if it has any.
DataPosition place_of(const std::string& run, const Config& config) {
  if (!has_checkpoint(checkpoints_of(run))) return {};
  return read_run_state(CheckpointReader(run), config).data;
}

/// The documents with the places of all stages.
std::vector<ForgottenDocument> documents_of(
    const std::vector<std::shared_ptr<const Corpus>>& stages) {
  const auto first = forgotten_of(*stages.front());
  std::vector<ForgottenDocument> documents(first.begin(), first.end());
  for (std::size_t s = 1; s < stages.size(); ++s)
    for (std::size_t d = 0; d < documents.size(); ++d) {
      const auto& more = forgotten_of(*stages[s])[d].occurrences;
      documents[d].occurrences.insert(documents[d].occurrences.end(), more.begin(), more.end());
    }
  return documents;
}

/// Sets the newest intact checkpoint after at most `most` steps.
void choose_checkpoint(const std::string& run, std::int64_t most, const Config& config,
                       ForgetPlan& plan) {
  const std::string folder = checkpoints_of(run);
  for (const std::int64_t step : steps_in(folder)) {
    if (step > most) continue;
    const std::string path = concat(folder, '/', step_name(step));
    const std::string fault = fault_of([&] {
      const CheckpointReader reader(path);
      const Config then = stored_config(reader);
      if (then.parallelism.grid() != config.parallelism.grid())
        plan.warnings.push_back(
            concat(path, " was written on the grid ", to_string(then.parallelism.grid()),
                   ", and the run then went on with ", to_string(config.parallelism.grid()),
                   ": the result has the bits of a run that changes its grid there"));
    });
    if (fault.empty()) {
      plan.checkpoint = path;
      plan.from = step;
      return;
    }
    plan.warnings.push_back(concat(path, " is skipped: ", fault));
  }
}

}  // namespace

ForgetPlan plan_forgetting(Config config, const std::string& run) {
  if (!config.training.deterministic)
    refuse("[training] deterministic = false: two runs have other bits, so the result would equal ",
           "no run without the documents; repeat the run with it set to true");
  const auto stages =
      open_stages(config, {.cache = {.folder = run + "/cache", .writes = false},
                           .vocab = config.model.vocab,
                           .seed = static_cast<std::uint64_t>(config.training.seed)});
  const TrainingConfig& training = config.training;
  auto further = with_further_blanks(config, stages, place_of(run, config));
  if (further.empty())
    refuse(run, " has left out all of these documents already; there is nothing to forget");
  const Batches batches(stage_sources(config, further), {.seq_len = training.seq_len,
                                                         .global_batch = training.global_batch,
                                                         .stages = batch_stages(training),
                                                         .micro_batch = training.micro_batch});
  if (training.epochs > 0) config = with_steps(std::move(config), steps_of_epochs(config, batches));
  ForgetPlan plan{.documents = documents_of(stages),
                  .steps = training.steps,
                  .step_seconds = step_seconds_of(run)};
  const auto first = first_forgetting_step(batches, training.steps);
  if (!first) return plan;
  plan.first = *first + 1;
  choose_checkpoint(run, *first, config, plan);
  return plan;
}

}  // namespace axonn
