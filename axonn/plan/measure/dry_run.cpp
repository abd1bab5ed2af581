#include "axonn/plan/measure/dry_run.h"

#include <algorithm>
#include <functional>
#include <memory>
#include <optional>

#include <fmt/format.h>

#include "axonn/compute/ops/dry_backend.h"
#include "axonn/data/corpus/batch_stages.h"
#include "axonn/data/corpus/batches.h"
#include "axonn/data/corpus/corpus.h"
#include "axonn/data/corpus/tokens/tokenize.h"
#include "axonn/foundation/base/check.h"
#include "axonn/foundation/base/files.h"
#include "axonn/foundation/base/host.h"
#include "axonn/foundation/base/utf8.h"
#include "axonn/network/model/counts.h"
#include "axonn/network/model/model_files.h"
#include "axonn/network/nn/adapters/adapter.h"
#include "axonn/plan/measure/dry_rollouts.h"
#include "axonn/plan/measure/dry_step.h"
#include "axonn/ranks/comm/dry_world.h"
#include "axonn/ranks/comm/launcher.h"
#include "axonn/ranks/comm/texts.h"
#include "axonn/run/config/batch_ramp.h"
#include "axonn/run/config/recompute.h"
#include "axonn/run/config/resolve.h"
#include "axonn/run/load/devices.h"
#include "axonn/run/load/launch.h"
#include "axonn/run/records/run_folder.h"
#include "axonn/run/records/run_state.h"
#include "axonn/run/records/sample_file.h"
#include "axonn/run/train/data_stages.h"
#include "axonn/run/train/resume.h"
#include "axonn/run/train/state_blocks.h"

namespace axonn {

namespace {

using Stages = std::vector<std::shared_ptr<const Corpus>>;

void add_fault(DryRun& run, const std::string& fault) {
  if (!fault.empty()) run.fault += (run.fault.empty() ? "" : "\n") + fault;
}

std::string ranks_text(int ranks) { return fmt::format("{} rank{}", ranks, ranks == 1 ? "" : "s"); }

/// The bytes that ranks of one memory need, and its bytes: "4 ranks need 3GiB of the 2GiB of this
/// machine".
std::string needs_text(int ranks, std::int64_t needed, const std::string& where,
                       std::int64_t bytes) {
  return fmt::format("{} need{} {} of the {} of {}", ranks_text(ranks), ranks == 1 ? "s" : "",
                     format_bytes(needed), format_bytes(bytes), where);
}

constexpr const char* kMemoryRemedy =
    "; lower training.micro_batch, recompute activations (activation_checkpoint.budget), cut the "
    "model over more ranks of more machines, or, if the run is for another machine, name that with "
    "parallelism.machine";

/// Compares what the ranks need with the limits. `arena` and `host`: of each, in bytes.
void describe_memory(const MemoryLimits& limits, std::int64_t arena, std::int64_t host,
                     DryRun& run) {
  const auto compare = [&](int ranks, std::int64_t needed, const std::string& where,
                           std::int64_t bytes) {
    if (bytes == 0) return;
    const std::string text = needs_text(ranks, needed, where, bytes);
    run.needs += (run.needs.empty() ? "" : "; ") + text;
    if (needed > bytes) add_fault(run, concat("too little memory: ", text, kMemoryRemedy));
  };
  const std::int64_t on_host = limits.ranks_on_host * host;
  const std::int64_t on_device = limits.ranks_on_device * arena + (limits.one ? on_host : 0);
  compare(limits.ranks_on_device, on_device, limits.device, limits.device_bytes);
  if (!limits.one) compare(limits.ranks_on_host, on_host, "this machine", limits.host_bytes);
  const bool fits = on_device <= limits.device_bytes;
  if (limits.free_bytes > 0 && fits && on_device > limits.free_bytes)
    run.warnings.push_back(fmt::format("only {} of the {} of {} are free now",
                                       format_bytes(limits.free_bytes),
                                       format_bytes(limits.device_bytes), limits.device));
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

/// The first rows of the documents of a sequence, and of the second branch of one, as "0, 17, 80";
/// "" if it has no documents. Rows of padding are left out.
std::string rows_of_documents(const Sequence& sequence) {
  constexpr int kMost = 12;  // a line of a terminal
  std::string rows;
  int count = 0;
  for (std::int64_t row = 0; row < std::ssize(sequence.starts); ++row) {
    const bool begins =
        sequence.starts[row] == row || (!sequence.branches.empty() && sequence.branches[1] == row);
    if (!begins || sequence.targets[row] == kPaddingTarget) continue;
    if (++count <= kMost) rows += fmt::format("{}{}", rows.empty() ? "" : ", ", row);
  }
  return count > kMost ? fmt::format("{} and {} more", rows, count - kMost) : rows;
}

/// The peak of a rank's memory while samples are written between two steps; 0 if there are none.
std::int64_t sample_memory(const PreparedRun& run, int rank, const Corpus& corpus,
                           const TextSamplerMaker& make_text_sampler) {
  if (run->samples.prompts.empty()) return 0;
  const auto world = make_dry_world(run->parallelism.grid(), rank);
  Training training(run.with([](Config& config) { config.training.cuda_graph = false; }), *world,
                    make_dry_backend(), {.data = false});
  const TextSampler sampler = text_sampler_of(training.model, corpus.tokenizer, make_text_sampler);
  training.step.run(training.model.context(), made_up_input(training.model));
  training.model.arena().reset_peak();
  sampler();
  return training.model.arena().stats().peak_bytes;
}

/// Bytes of host memory that a rank's data take: tables of documents and generated text; other
/// tokens stay in files.
std::int64_t bytes_of_data(const Config& config, const Stages& stages) {
  constexpr std::int64_t kDocument = 44, kToken = 4;  // Documents and PackedDocuments; a token
  std::int64_t bytes = 0;
  const std::vector<Config> configs = stages_of(config);
  for (std::size_t s = 0; s < stages.size(); ++s) {
    if (const auto& documents = stages[s]->train_documents.documents)
      bytes += documents->count() * kDocument;
    for (const TokenStream& stream : stages[s]->train)
      if (configs[s].data.synthetic > 0) bytes += stream.size() * kToken;
  }
  return bytes;
}

/// The checks of one dry run, in an order in which each has what it needs.
class DryChecks {
 public:
  DryChecks(const PreparedRun& checked, int rank, const DryRunOptions& options)
      : checked_(checked), config_(checked.config()), rank_(rank), options_(options) {
    run_.steps = config_.training.steps;
  }

  DryRun run() {
    count_memory();
    check([this] { refuse_to_replace_inputs(config_); });
    add_fault(run_, overwrite_fault(config_));
    check([this] { open_checkpoint(); });
    check([this] { check_weights(); });
    check([this] { describe_data(); });
    describe_disk();
    describe_offloaded();
    describe_memory(options_.limits,
                    std::max({run_.memory.peak_bytes, run_.sample_bytes, run_.rollout_bytes}),
                    run_.snapshot_bytes + run_.local.memory +
                        (options_.limits.counts_data ? run_.data_bytes : 0),
                    run_);
    return std::move(run_);
  }

 private:
  /// Does a part of the checks. What it refuses is a fault.
  void check(const std::function<void()>& part) {
    try {
      part();
    } catch (const UsageError& error) {
      add_fault(run_, error.what());
    }
  }

  void warn(const std::string& warning) { run_.warnings.push_back(warning); }

  void count_memory() {
    run_.parameters = parameter_count(config_.model);
    run_.memory = dry_step(checked_, rank_).memory;
    const GridShape shape = config_.parallelism.grid();
    world_ = make_dry_world(shape, rank_);
    grid_ = std::make_unique<Grid>(*world_, shape);
    run_.rank = grid_->describe();
    model_ = make_model(config_.model, *grid_);
    trained_ = trained_groups(*model_);
    const StateForm state = state_form(config_.optimizer);
    run_.snapshot_bytes = piece_bytes(trained_, state);
    run_.local = local_bytes(config_, run_.snapshot_bytes);
    if (options_.limits.node_bytes_per_s > 0)
      run_.local_seconds = static_cast<double>(run_.local.sent) / options_.limits.node_bytes_per_s;
    run_.offloaded_bytes = run_.memory.file_bytes;
    if (!config_.offload.copy_dir().empty())
      run_.offloaded_bytes += std::exchange(run_.snapshot_bytes, 0);
    // A model's files have no adapters, and no padding.
    for (const ParameterGroup* group : model_->groups())
      if (!is_of_adapters(*group)) run_.share += group->sizes().piece;
    run_.share = std::min(run_.share, run_.parameters);
    run_.trained = checkpoint_bytes(trained_, {}) / kElementBytes;
    run_.checkpoint_bytes = checkpoint_bytes(trained_, state);
  }

  void open_checkpoint() {
    const std::string path = resume_path(config_);
    if (path.empty()) return;
    checkpoint_.emplace(path);
    run_.resumes_from = checkpoint_->folder();
    for (const std::string& warning : checkpoint_->warnings()) warn(warning);
    run_.steps_done = read_run_state(*checkpoint_, config_).steps_done;
    for (const std::string& changed : check_continues(
             *checkpoint_, config_, stored_parameters(trained_), stored_kinds(config_.optimizer)))
      warn(changed + ": the run continues with another model");
  }

  void check_weights() {
    check_files(*model_, trained_, config_.model, config_.model_files, checkpoint_.has_value());
    run_.weights = config_.model.path;
  }

  void describe_disk() {
    const CheckpointConfig& checkpoint = config_.checkpoint;
    const std::int64_t steps = std::max<std::int64_t>(run_.steps, 1), every = checkpoint.every;
    std::int64_t at_once = every > 0 ? (steps + every - 1) / every : 1;
    // A new checkpoint is complete before the oldest is removed. How many are due by time depends
    // on the speed.
    if (checkpoint.keep > 0 && (at_once > checkpoint.keep || checkpoint.every_minutes > 0))
      at_once = std::min(at_once, checkpoint.keep + 1) +
                most_spaced(steps, std::max<std::int64_t>(every, 1), checkpoint.keep_factor);
    if (checkpoint.best) ++at_once;
    run_.disk_bytes = run_.checkpoint_bytes * at_once;
    run_.disk_free = free_bytes(config_.output.dir);
    const std::string fault = disk_fault(config_, run_.checkpoint_bytes);
    if (run_.nothing_to_do()) return;
    add_fault(run_, fault);
    if (fault.empty() && run_.disk_free < run_.disk_bytes)
      warn(
          fmt::format("{} checkpoints at once take {}, but {} has only {} free; keep fewer "
                      "(checkpoint.keep)",
                      at_once, format_bytes(run_.disk_bytes), config_.output.dir,
                      format_bytes(run_.disk_free)));
  }

  void describe_offloaded() {
    const std::int64_t needed = options_.limits.ranks_on_host * run_.offloaded_bytes;
    if (needed == 0 || run_.nothing_to_do()) return;
    const std::string& dir = config_.offload.dir;
    if (const std::int64_t free = free_bytes(dir); needed > free)
      add_fault(run_, fmt::format("too little disk: the ranks of a machine keep {} in files of {}, "
                                  "which has {} free; free space there, or name another "
                                  "[offload] dir",
                                  format_bytes(needed), dir, format_bytes(free)));
  }

  void describe_data() {
    ProgressLine line(options_.progress, kTokenizing);
    const Stages stages =
        open_stages(config_, {.cache = {.folder = config_.output.dir + "/cache", .writes = false},
                              .vocab = config_.model.vocab,
                              .seed = static_cast<std::uint64_t>(config_.training.seed),
                              .report = report_to(line)});
    line.clear();
    for (const auto& corpus : stages)
      for (const std::string& warning : corpus->warnings) warn(warning);
    run_.data_bytes = bytes_of_data(config_, stages);
    count_long_documents(stages.front()->train_documents);
    const TrainingConfig& training = config_.training;
    validation_sequences(*stages.front(), training.seq_len, config_.model.vocab);
    const GridShape grid = config_.parallelism.grid();
    Batches batches(stage_sources(config_, stages),
                    {.seq_len = training.seq_len,
                     .global_batch = training.global_batch,
                     .stages = batch_stages(training),
                     .micro_batch = training.micro_batch,
                     .coordinate = batch_coordinate(grid, coords_of(grid, rank_)),
                     .coordinates = batch_coordinates(grid)});
    describe_sample(batches, stages.front()->tokenizer.get());
    if (checkpoint_) check_continued(batches, stages);
    if (training.epochs > 0)
      config_ = with_steps(std::move(config_), steps_of_epochs(config_, batches));
    run_.steps = training.steps;
    describe_epochs(batches);
    run_.sample_bytes = sample_memory(checked_, rank_, *stages.front(), options_.make_text_sampler);
    describe_rollouts(*stages.front());
  }

  /// The memory of a generation with prompts as long as the longest.
  void describe_rollouts(const Corpus& corpus) {
    if (!corpus.prompts) return;
    std::int64_t longest = 0;
    for (const Prompt& prompt : corpus.prompts->prompts)
      longest = std::max(longest, std::ssize(prompt.tokens));
    const DryRollouts rollouts = dry_rollouts(checked_, rank_, {.prompt_tokens = longest});
    run_.rollout_bytes = rollouts.memory.peak_bytes;
    run_.rollouts_at_once = rollouts.at_once;
  }

  /// Counts the conversations that do not fit a sequence.
  void count_long_documents(const DocumentRange& range) {
    if (range.empty()) return;
    const std::int64_t seq_len = config_.training.seq_len, all = range.end - range.begin;
    std::int64_t longer = 0, longest = 0;
    for (std::int64_t d = range.begin; d < range.end; ++d) {
      const std::int64_t inputs = range.documents->size(d) - 1;
      longer += inputs > seq_len ? 1 : 0;
      longest = std::max(longest, inputs);
    }
    if (longer == 0) return;
    const std::int64_t positions = config_.model.positions;
    const std::string remedy =
        config_.model.path.empty() || seq_len < positions
            ? "raise training.seq_len"
            : concat("training.seq_len cannot be raised, since the model has ", positions,
                     " positions; shorten the conversations, leave them out "
                     "(data.excess_length_strategy = \"drop\"), or take a model with more");
    const std::string text = fmt::format(
        "{} of {} conversations are longer than training.seq_len = {}, so they are cut; the "
        "longest has {} tokens: {}",
        format_count(longer), format_count(all), seq_len, format_count(longest), remedy);
    longer == all ? add_fault(run_, text) : warn(text);
  }

  void describe_sample(const Batches& batches, const Tokenizer* tokenizer) {
    const BatchSource& first = batches.sources().front();
    // A rank that has padding alone computes the ids of the step's last sequence.
    const std::int64_t n = std::min(batches.first_here(0), batches.first_of(1) - 1);
    Sequence sample;
    first.sequences->read(n, sample);
    if (first.mask) first.mask(n, sample);
    run_.sample = fmt::format("sequence {} of step {}: {}", n + 1, first.first_step + 1,
                              first.sequences->where(n));
    if (const std::string rows = rows_of_documents(sample); !rows.empty())
      run_.sample += "; documents begin at rows " + rows;
    run_.input = shown(tokenizer, sample.ids);
    run_.target = shown(tokenizer, sample.targets);
  }

  void describe_epochs(const Batches& batches) {
    constexpr double kMost = 20;
    if (config_.stage.empty()) run_.epochs = epochs_of(config_, batches, 0);
    run_.stages = describe_stages(config_, batches);
    for (std::size_t s = 0; s < batches.sources().size(); ++s)
      if (const double epochs = epochs_of(config_, batches, s); epochs > kMost)
        warn(fmt::format(
            "the run sees {} {:.2f} times; far fewer epochs than {} are usual: lower {}, or add "
            "data",
            config_.stage.empty() ? "its data" : "the data of stage " + config_.stage[s].name,
            epochs, kMost,
            config_.training.epochs > 0 ? "training.epochs"
                                        : "training.steps or training.global_batch"));
  }

  /// Goes on with the data of the checkpoint, if the run may.
  void check_continued(Batches& batches, const Stages& stages) {
    const RunState state = read_run_state(*checkpoint_, config_);
    std::vector<std::string> fingerprints;
    for (const auto& corpus : stages) fingerprints.push_back(fingerprint(*corpus));
    const DataPosition here =
        data_begin(config_, stages, batches.sources(), std::move(fingerprints));
    ContinuedData continued = continued_data(state.steps_done, state.data, here, batches.sources());
    refuse_changed_data(config_, checkpoint_->folder(), continued);
    refuse_late_forgetting(config_, stages, state.data, continued, checkpoint_->folder());
    batches.begin_at(state.steps_done, state.data.consumed, std::move(continued.done));
  }

  const PreparedRun& checked_;
  Config config_;  // of checked_, with the steps that its epochs are
  const int rank_;
  const DryRunOptions& options_;
  DryRun run_;
  std::unique_ptr<Communicator> world_;
  std::unique_ptr<Grid> grid_;
  std::unique_ptr<Model> model_;
  std::vector<ParameterGroup*> trained_;
  std::optional<CheckpointReader> checkpoint_;
};

}  // namespace

MemoryLimits limits_here(const Config& config) {
  const bool mpi = launches_mpi(config.parallelism);
  const int ranks = mpi ? launched_here() : config.parallelism.grid().ranks();
  const auto total = static_cast<std::int64_t>(total_memory());
  const std::vector<CudaGpu> gpus = gpus_for(config.parallelism.device);
  if (gpus.empty())
    return {.device = "this machine",
            .device_bytes = total,
            .ranks_on_device = ranks,
            .free_bytes = static_cast<std::int64_t>(available_memory()),
            .host_bytes = total,
            .ranks_on_host = ranks};
  const int count = static_cast<int>(gpus.size());
  return {.device = concat("a GPU (", gpus.front().name, ')'),
          .device_bytes = std::ranges::min(gpus, {}, &CudaGpu::memory_bytes).memory_bytes,
          .ranks_on_device = (ranks + count - 1) / count,
          .host_bytes = total,
          .ranks_on_host = ranks,
          .one = false};
}

std::int64_t arena_limit(const PreparedRun& run, const MemoryLimits& limits) {
  std::int64_t bytes = limits.device_bytes;
  if (limits.one) {
    const GridShape shape = run->parallelism.grid();
    const auto world = make_dry_world(shape, 0);
    const Grid grid(*world, shape);
    const auto model = make_model(run->model, grid);
    const std::int64_t copy = piece_bytes(trained_groups(*model), state_form(run->optimizer));
    const std::int64_t in_memory = run->offload.copy_dir().empty() ? copy : 0;
    bytes -= limits.ranks_on_host * (in_memory + local_bytes(run.config(), copy).memory);
  }
  return bytes / limits.ranks_on_device;
}

DryRun dry_run(const PreparedRun& run, int rank, const DryRunOptions& options) {
  const GridShape shape = run->parallelism.grid();
  if (rank < 0 || rank >= shape.ranks())
    refuse("--rank ", rank, " is not on grid ", to_string(shape), ": ranks are 0 to ",
           shape.ranks() - 1);
  return DryChecks(run, rank, options).run();
}

void refuse_too_large(const PreparedRun& run, const MemoryLimits& limits) {
  if (architecture_of(run->model.family)) return;  // its layers may need values to run
  std::int64_t peak = 0;
  try {
    peak = dry_step(run, 0).memory.peak_bytes;
  } catch (const std::exception&) {  // what is wrong, the run itself says
    return;
  }
  MemoryLimits arenas = limits;
  arenas.free_bytes = arenas.host_bytes = 0;
  DryRun result;
  describe_memory(arenas, peak, 0, result);
  AXONN_CHECK(result.fault.empty(), result.fault);
}

namespace {

/// The steps and epochs of the run, as far as they are known.
std::string length_text(const DryRun& run, const Config& config) {
  if (run.steps == 0)
    return fmt::format("; {} epochs, whose steps are not known without the data",
                       config.training.epochs);
  return fmt::format("; {} step{}{}", format_count(run.steps), run.steps == 1 ? "" : "s",
                     run.epochs > 0 ? fmt::format(" are {:.2f} epochs", run.epochs) : "");
}

/// The memory of the rank at the peaks of all that it does.
std::string memory_text(const DryRun& run, const Config& config) {
  std::string text =
      fmt::format("memory    {} on this rank at the peak of a step: exact{}\n",
                  format_bytes(run.memory.peak_bytes),
                  config.parallelism.experts > 1
                      ? ", if experts are as busy as training.balance.expected_load says"
                      : "");
  for (int i = 0; i < kMemoryUses; ++i)
    if (run.memory.peak_by[i] > 0)
      text += fmt::format("  {:>12}  {}\n", format_bytes(run.memory.peak_by[i]),
                          name_of(static_cast<MemoryUse>(i)));
  text += fmt::format("activations {}\n", describe_recomputation(config));
  if (run.sample_bytes > 0)
    text += fmt::format("  {:>12}  in all while samples are written, between steps: exact\n",
                        format_bytes(run.sample_bytes));
  if (run.rollout_bytes > 0)
    text += fmt::format(
        "  {:>12}  in all while {} answers at a time are written, between steps: exact if all "
        "prompts are as long as the longest\n",
        format_bytes(run.rollout_bytes), format_count(run.rollouts_at_once));
  if (run.snapshot_bytes > 0)
    text += fmt::format("  {:>12}  more while a checkpoint is written\n",
                        format_bytes(run.snapshot_bytes));
  if (run.offloaded_bytes > 0)
    text += fmt::format("  {:>12}  in a file of {} instead\n", format_bytes(run.offloaded_bytes),
                        config.offload.dir);
  if (run.local.memory > 0)
    text += fmt::format("  {:>12}  more of the host for local checkpoints\n",
                        format_bytes(run.local.memory));
  return text;
}

}  // namespace

std::string to_text(const DryRun& result, const PreparedRun& run) {
  const Config& config = run.config();
  const ParallelismConfig& p = config.parallelism;
  std::string text = fmt::format(
      "model     {} parameters{}\n"
      "grid      x {}, y {}, z {}{}, data {}: {} ranks; this is {}\n"
      "step      {} sequences of {} tokens{}, {} at a time on each (z, data){}\n",
      format_count(result.parameters),
      config.model.lora.rank > 0
          ? fmt::format(", frozen; {} in adapters{} are trained", format_count(result.trained),
                        config.model.lora.modules.empty() ? "" : " and whole modules")
          : "",
      p.x, p.y, p.z, factors_text(p.grid()), p.data, format_count(p.grid().ranks()), result.rank,
      config.training.global_batch, config.training.seq_len, padding_text(config),
      config.training.micro_batch, length_text(result, config));
  for (const std::string& stage : result.stages) text += "stage     " + stage + '\n';
  text += memory_text(result, config);
  if (!result.needs.empty()) text += fmt::format("needs     {}\n", result.needs);
  constexpr std::int64_t kStored = 2;  // bytes of a parameter in bf16
  text +=
      fmt::format("weights   this rank reads {} of {}, if a model stores them in bf16\n",
                  format_bytes(result.share * kStored), format_bytes(result.parameters * kStored));
  if (!result.weights.empty())
    text += fmt::format("files     the tensors at {} are those of the model\n", result.weights);
  text += fmt::format("disk      {} per checkpoint, {} for all that are kept; {} free at {}\n",
                      format_bytes(result.checkpoint_bytes), format_bytes(result.disk_bytes),
                      format_bytes(result.disk_free), config.output.dir);
  if (const std::int64_t every = config.checkpoint.local_every; every > 0)
    text += fmt::format(
        "local     {} of this rank every {}{}{}; at most {} for it in {}\n",
        format_bytes(result.local.shard), every == 1 ? "step" : fmt::format("{} steps", every),
        result.local.sent > 0 ? ", also to another node if there is one" : "",
        result.local_seconds > 0 ? fmt::format(", in {:.2g} s or more", result.local_seconds) : "",
        format_bytes(result.local.stored), config.checkpoint.local_folder);
  const bool idle = result.nothing_to_do();
  if (!result.resumes_from.empty())
    text += fmt::format("resume    from {}, at step {} of {}{}\n", result.resumes_from,
                        result.steps_done, result.steps, idle ? ": nothing to do" : "");
  else if (config.checkpoint.resume == "auto")
    text += fmt::format("resume    no checkpoint in {}/checkpoints: the run starts at step 1{}\n",
                        config.output.dir,
                        config.checkpoint.local_every > 0 ? ", unless a local one is whole" : "");
  if (!result.sample.empty())
    text += fmt::format("sample    {}\n  input   {}\n  target  {}\n", result.sample, result.input,
                        result.target);
  for (const std::string& warning : result.warnings) text += "warning: " + warning + '\n';
  if (!result.fault.empty()) return text;
  const std::string found =
      result.warnings.empty() ? "No problem found" : "No fault found, but see the warnings";
  const std::string does = idle                ? "has nothing to do"
                           : p.machine.empty() ? "trains"
                                               : "trains on devices of " + p.machine;
  return text + fmt::format("{}: the same command without --dry-run {}.\n", found, does);
}

}  // namespace axonn
