#include "axonn/measure/dry_step.h"

#include <algorithm>

#include <fmt/format.h>

#include "axonn/base/check.h"
#include "axonn/base/files.h"
#include "axonn/base/log.h"
#include "axonn/base/utf8.h"
#include "axonn/comm/dry_world.h"
#include "axonn/data/batch_stages.h"
#include "axonn/data/corpus.h"
#include "axonn/data/tokenize.h"
#include "axonn/model/model.h"
#include "axonn/ops/forwarding_backend.h"
#include "axonn/train/data_stages.h"
#include "axonn/train/recompute.h"
#include "axonn/train/run_folder.h"
#include "axonn/train/run_state.h"
#include "axonn/train/sample_file.h"

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

constexpr std::int64_t kF32 = 4;

void describe_resume(const Config& config, Model& model, DryRun& run) {
  run.fault = overwrite_fault(config);
  const std::string path = resume_path(config);
  if (path.empty()) return;
  const CheckpointReader reader(path);
  run.resumes_from = reader.folder();
  std::ranges::copy(reader.warnings(), std::back_inserter(run.warnings));
  // Refuses a checkpoint of another model or optimizer. Averages may begin anew.
  std::vector<std::string> kinds = state_kinds(config.optimizer);
  std::erase(kinds, kAveragesKind);
  CheckpointSource(reader, stored_parameters(trained_groups(model)), kinds);
}

void describe_disk(const Config& config, DryRun& run) {
  const std::int64_t steps = config.training.steps, every = config.checkpoint.every,
                     keep = config.checkpoint.keep;
  const std::int64_t saves = every > 0 ? (steps + every - 1) / every : 1;
  // A new checkpoint is complete before the oldest is removed.
  const std::int64_t at_once = keep > 0 ? std::min(saves, keep + 1) : saves;
  run.checkpoint_bytes = run.trained * kF32 * std::ssize(state_kinds(config.optimizer));
  run.disk_bytes = run.checkpoint_bytes * at_once;
  run.disk_free = free_bytes(config.output.dir);
  if (run.disk_free < run.checkpoint_bytes)
    run.fault = fmt::format(
        "a checkpoint takes {}, but {} has only {} free; free space there, or set output.dir to "
        "another disk",
        format_bytes(run.checkpoint_bytes), config.output.dir, format_bytes(run.disk_free));
  else if (run.disk_free < run.disk_bytes)
    run.warnings.push_back(fmt::format(
        "{} checkpoints at once take {}, but {} has only {} free; keep fewer (checkpoint.keep)",
        at_once, format_bytes(run.disk_bytes), config.output.dir, format_bytes(run.disk_free)));
}

/// Returns the tokens as quoted text, or as numbers if no tokenizer is known, cut if they are long.
/// Targets that do not count are shown as dots.
std::string shown(const Tokenizer* tokenizer, std::span<const std::int32_t> tokens) {
  constexpr std::size_t kMost = 160;  // characters: two lines of a terminal
  std::string text;
  bool whole = true;
  for (const std::int32_t token : tokens) {
    whole = text.size() < kMost;
    if (!whole) break;
    if (token >= 0)
      text += tokenizer ? printable(tokenizer->bytes_of(token)) : fmt::format("{} ", token);
    else if (!text.ends_with("..."))
      text += "...";
  }
  if (tokenizer) text = '"' + text + '"';
  return text + (whole ? "" : " ...");
}

/// The first rows of the documents of a sequence, as "0, 17, 80"; "" if it has no documents. Rows
/// of padding are left out.
std::string rows_of_documents(const Sequence& sequence) {
  constexpr int kMost = 12;  // a line of a terminal
  std::string rows;
  int count = 0;
  for (std::int64_t row = 0; row < std::ssize(sequence.starts); ++row) {
    if (sequence.starts[row] != row || sequence.targets[row] == kPaddingTarget) continue;
    if (++count <= kMost) rows += fmt::format("{}{}", rows.empty() ? "" : ", ", row);
  }
  return count > kMost ? fmt::format("{} and {} more", rows, count - kMost) : rows;
}

void describe_sample(const Config& config, const std::vector<std::shared_ptr<const Corpus>>& stages,
                     int rank, DryRun& run) {
  const TrainingConfig& training = config.training;
  const Corpus& corpus = *stages.front();
  validation_sequences(corpus, training.seq_len, config.model.vocab);
  const GridShape grid = config.parallelism.grid();
  const Coords at = coords_of(grid, rank);
  const Batches batches(stage_sources(config, stages), {.seq_len = training.seq_len,
                                                        .global_batch = training.global_batch,
                                                        .stages = batch_stages(training),
                                                        .micro_batch = training.micro_batch,
                                                        .place = batch_place(grid, at),
                                                        .places = batch_places(grid)});
  const BatchSource& first = batches.sources().front();
  const std::int64_t n =
      batches.options().place * (batches.batch_of(0) / batches.options().places) * first.in_one;
  Sequence sample;
  first.sequences->read(n, sample);
  if (first.mask) first.mask(n, sample);
  run.sample = fmt::format("sequence {} of step {}: {}", n + 1, first.first_step + 1,
                           first.sequences->where(n));
  if (const std::string rows = rows_of_documents(sample); !rows.empty())
    run.sample += "; documents begin at rows " + rows;
  run.input = shown(corpus.tokenizer.get(), sample.ids);
  run.target = shown(corpus.tokenizer.get(), sample.targets);
  if (config.stage.empty()) run.epochs = epochs_of(config, batches, 0);
  run.stages = describe_stages(config, batches);
}

/// The peak of a rank's memory while samples are written between two steps; 0 if there are none.
std::int64_t sample_memory(Config config, int rank, const Corpus& corpus,
                           const TextSamplerMaker& make_text_sampler) {
  if (config.samples.prompts.empty()) return 0;
  config.training.cuda_graph = false;
  const auto world = make_dry_world(config.parallelism.grid(), rank);
  Training training(config, *world, make_dry_backend(nullptr, OperationSize::moderate),
                    {.data = false});
  const TextSampler sampler = text_sampler_of(training.model, corpus.tokenizer, make_text_sampler);
  training.step.run(training.model.context(), made_up_input(training.model));
  training.model.arena().reset_peak();
  sampler();
  return training.model.arena().stats().peak_bytes;
}

}  // namespace

DryStep dry_step(const Config& given, int rank, const DryStepOptions& options) {
  Config config = given;
  config.training.cuda_graph = false;  // graphs launch the same work, and there is no GPU here
  AXONN_CHECK(config.model.vocab > 0 && config.training.micro_batch > 0,
              "dry_step: the config is not resolved; its vocab is ", config.model.vocab,
              " and its micro_batch ", config.training.micro_batch);
  Schedule schedule;
  Schedule* const noted = options.schedule ? &schedule : nullptr;
  const auto world = make_dry_world(config.parallelism.grid(), rank, noted);
  const OperationSize size =
      is_gpu(config.parallelism.device) ? OperationSize::large : OperationSize::moderate;
  Training training(config, *world, make_dry_backend(noted, size), {.data = false});
  const Context ctx = training.model.context();
  StepInput input = made_up_input(training.model);
  input.micro_batches = std::min(input.micro_batches, options.most_micro_batches);
  std::int64_t kept = 0;
  input.on_phase = [&](Phase phase) {
    if (phase == Phase::backward) kept = training.model.arena().stats().live_bytes;
  };
  training.step.run(ctx, input);
  const std::size_t first = schedule.events.size();
  training.step.run(ctx, input);
  DryStep result{.memory = training.model.arena().stats(),
                 .kept_bytes = kept,
                 .schedule = std::move(schedule)};
  schedule = {};  // the destructor of `training` also records waits
  keep_second(result.schedule, first);
  return result;
}

DryRun dry_run(const Config& given, int rank, const TextSamplerMaker& make_text_sampler,
               const ProgressTarget& progress) {
  Config config = with_vocab(given);
  const GridShape shape = config.parallelism.grid();
  if (rank < 0 || rank >= shape.ranks())
    refuse("--rank ", rank, " is not on grid ", to_string(shape), ": ranks are 0 to ",
           shape.ranks() - 1);
  config.model = resolved(config.model, config.model.vocab, config.training.seq_len);

  DryRun run;
  run.parameters = parameter_count(config.model);
  run.memory = dry_step(config, rank).memory;  // before the data, which may take longer
  const auto world = make_dry_world(shape, rank);
  const Grid grid(*world, shape);
  run.place = grid.describe();
  const auto model = make_model(config.model, grid);
  if (config.checkpoint.async)
    for (const ParameterGroup* group : trained_groups(*model))
      run.snapshot_bytes += std::ssize(state_kinds(config.optimizer)) * kF32 * group->sizes().piece;
  for (const ParameterGroup* group : model->groups()) run.share += group->sizes().piece;
  for (const ParameterGroup* group : trained_groups(*model))
    for (const auto& parameter : group->parameters())
      run.trained += parameter->spec().layout.count();
  describe_resume(config, *model, run);
  describe_disk(config, run);
  ProgressLine line(progress, kTokenizing);
  const auto stages =
      open_stages(config, {.cache = {.folder = config.output.dir + "/cache", .writes = false},
                           .vocab = config.model.vocab,
                           .seed = static_cast<std::uint64_t>(config.training.seed),
                           .report = report_to(line)});
  describe_sample(config, stages, rank, run);
  run.sample_bytes = sample_memory(config, rank, *stages.front(), make_text_sampler);
  return run;
}

std::string to_text(const DryRun& run, const Config& config) {
  const ParallelismConfig& p = config.parallelism;
  std::string text = fmt::format(
      "model     {} parameters{}\n"
      "grid      x {}, y {}, z {}{}, data {}: {} ranks; this is {}\n"
      "step      {} sequences of {} tokens, {} at a time on each (z, data); {} steps{}\n",
      format_count(run.parameters),
      config.model.lora.rank > 0
          ? fmt::format(", frozen; {} in adapters are trained", format_count(run.trained))
          : "",
      p.x, p.y, p.z, factors_text(p.grid()), p.data, format_count(p.grid().ranks()), run.place,
      config.training.global_batch, config.training.seq_len, config.training.micro_batch,
      format_count(config.training.steps),
      run.stages.empty() ? fmt::format(" are {:.2f} epochs", run.epochs) : "");
  for (const std::string& stage : run.stages) text += "stage     " + stage + '\n';
  text += fmt::format(
      "memory    {} on this rank at the peak of a step: exact{}\n",
      format_bytes(run.memory.peak_bytes),
      p.experts > 1 ? ", if experts are as busy as training.balance.expected_load says" : "");
  for (int i = 0; i < kMemoryUses; ++i)
    if (run.memory.peak_by[i] > 0)
      text += fmt::format("  {:>12}  {}\n", format_bytes(run.memory.peak_by[i]),
                          name_of(static_cast<MemoryUse>(i)));
  text += fmt::format("activations {}\n", describe_recomputation(config));
  if (run.sample_bytes > 0)
    text += fmt::format("  {:>12}  in all while samples are written, between steps: exact\n",
                        format_bytes(run.sample_bytes));
  if (run.snapshot_bytes > 0)
    text += fmt::format("  {:>12}  more while a checkpoint is written\n",
                        format_bytes(run.snapshot_bytes));
  constexpr std::int64_t kStored = 2;  // bytes of a parameter in bf16
  text += fmt::format("weights   this rank reads {} of {}, if a model stores them in bf16\n",
                      format_bytes(run.share * kStored), format_bytes(run.parameters * kStored));
  text += fmt::format("disk      {} per checkpoint, {} for all that are kept; {} free at {}\n",
                      format_bytes(run.checkpoint_bytes), format_bytes(run.disk_bytes),
                      format_bytes(run.disk_free), config.output.dir);
  if (!run.resumes_from.empty()) text += fmt::format("resume    from {}\n", run.resumes_from);
  text +=
      fmt::format("sample    {}\n  input   {}\n  target  {}\n", run.sample, run.input, run.target);
  for (const std::string& warning : run.warnings) text += "warning: " + warning + '\n';
  return run.fault.empty() ? text + "No problem found: the same command without --dry-run trains.\n"
                           : text;
}

}  // namespace axonn
