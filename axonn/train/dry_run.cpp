#include "axonn/train/dry_run.h"

#include <algorithm>
#include <filesystem>

#include <fmt/format.h>

#include "axonn/base/check.h"
#include "axonn/base/log.h"
#include "axonn/data/corpus.h"
#include "axonn/data/utf8.h"
#include "axonn/io/checkpoint.h"
#include "axonn/io/files.h"
#include "axonn/model/flops.h"
#include "axonn/model/gpt.h"
#include "axonn/train/planned_world.h"

namespace axonn {

namespace {

constexpr std::int64_t kF32 = 4;
constexpr std::size_t kMostShown = 160;  // of a sample: two lines of a terminal

std::int64_t optimizer_copies(const Config& config) {
  return config.optimizer.kind == OptimizerKind::adamw ? 3 : 1;  // master, and two moments
}

/// Activations that backward keeps, as parallel/ records them: of each block its input, both norms'
/// outputs, the sum between, query, key and value, attention's output, and both sides of GELU.
std::int64_t activation_bytes(const Config& config) {
  const ModelConfig& m = config.model;
  const ParallelismConfig& p = config.parallelism;
  const std::int64_t rows = config.training.micro_batch * config.training.seq_len;
  const std::int64_t type = bytes_of(config.training.dtype);
  const std::int64_t width = m.hidden / p.y, across = m.hidden / p.x, ffn = m.ffn / p.x;
  const std::int64_t qkv = (m.hidden + 2 * m.kv_heads * m.head_width()) / p.x;
  const std::int64_t block = rows * (4 * width + qkv + across + 2 * ffn) * type;
  const std::int64_t backward = rows * (2 * width + 2 * ffn) * type;
  constexpr std::int64_t kLogitRows = 256;  // at once: parallel/loss.h
  const std::int64_t logits = std::min(rows, kLogitRows) * (m.vocab / p.x + 1) * (kF32 + type);
  const bool recompute = config.activation_checkpoint.mode == RecomputeMode::full;
  const std::int64_t kept = recompute ? m.layers * rows * width * type + block : m.layers * block;
  return kept + rows * 3 * width * type + std::max(backward, logits);
}

/// The two neighbours among the groups that are largest together.
std::int64_t largest_pair(const std::vector<FlatSizes>& groups) {
  std::int64_t most = 0;
  for (std::size_t i = 0; i < groups.size(); ++i)
    most = std::max(most, groups[i].flat + (i > 0 ? groups[i - 1].flat : 0));
  return most;
}

void describe_resume(const Config& config, Model& model, DryRun& run) {
  const std::string own = config.output.dir + "/checkpoints";
  const bool automatic = config.checkpoint.resume == "auto";
  if (config.checkpoint.resume.empty() || (automatic && !has_checkpoint(own))) return;
  const CheckpointReader reader(automatic ? own : config.checkpoint.resume);
  run.resumes_from = reader.folder();
  std::ranges::copy(reader.warnings(), std::back_inserter(run.warnings));
  for (const ParameterGroup* group : model.groups())
    for (const auto& parameter : group->parameters()) {
      const auto& [name, layout, mean, std, decays] = parameter->spec();
      const auto& stored = reader.parameters();
      const auto found = std::ranges::find(stored, name, &CheckpointParameter::name);
      if (found == stored.end()) refuse(reader.folder(), " has no parameter ", name);
      if (found->rows != layout.rows || found->cols != layout.cols)
        refuse(reader.folder(), " has ", name, " as (", found->rows, ", ", found->cols,
               ") and this model as (", layout.rows, ", ", layout.cols, ")");
    }
}

void describe_disk(const Config& config, DryRun& run) {
  const std::int64_t steps = config.training.steps, every = config.checkpoint.every,
                     keep = config.checkpoint.keep;
  const std::int64_t saves = every > 0 ? (steps + every - 1) / every : 1;
  // A new one is whole before the oldest is removed.
  const std::int64_t at_once = keep > 0 ? std::min(saves, keep + 1) : saves;
  run.checkpoint_bytes = run.parameters * kF32 * optimizer_copies(config);
  run.disk_bytes = run.checkpoint_bytes * at_once;
  run.disk_free = free_bytes(config.output.dir);
  if (run.disk_free < run.checkpoint_bytes)
    fail(Where::here(), "a checkpoint takes ", format_bytes(run.checkpoint_bytes), " and ",
         config.output.dir, " has room for ", format_bytes(run.disk_free),
         "; free space there, or set output.dir to another disk");
  if (run.disk_free < run.disk_bytes)
    run.warnings.push_back(fmt::format(
        "{} checkpoints at once take {} and {} has room for {}; keep fewer (checkpoint.keep)",
        at_once, format_bytes(run.disk_bytes), config.output.dir, format_bytes(run.disk_free)));
}

/// The tokens as text in quotes, or as numbers where no tokenizer is known; cut where it is long.
std::string shown(const Tokenizer* tokenizer, std::span<const std::int32_t> tokens) {
  std::string text;
  bool whole = true;
  for (const std::int32_t token : tokens) {
    whole = text.size() < kMostShown;
    if (!whole) break;
    text += tokenizer ? printable(tokenizer->bytes_of(token)) : fmt::format("{} ", token);
  }
  if (tokenizer) text = '"' + text + '"';
  return text + (whole ? "" : " ...");
}

void describe_sample(const Config& config, const Corpus& corpus, int rank, DryRun& run) {
  const TrainingConfig& training = config.training;
  const Sampler sampler(corpus.train, {.seq_len = training.seq_len,
                                       .seed = static_cast<std::uint64_t>(training.seed),
                                       .shuffle = config.data.shuffle,
                                       .vocab = config.model.vocab});
  if (!corpus.validation.empty()) Windows(corpus.validation, training.seq_len, config.model.vocab);
  const GridShape grid = config.parallelism.grid();
  const Coords at = coords_of(grid, rank);
  const std::int64_t place = at.at(Axis::data) * grid.z + at.at(Axis::z),
                     n = place * (training.global_batch / (grid.z * grid.data));
  std::vector<std::int32_t> window(training.seq_len + 1);
  const Sampler::Place where = sampler.read(n, window);
  const TokenStream& stream = corpus.train[where.stream];
  run.sample = fmt::format("sequence {} of step 1: {}", n + 1,
                           stream.source->where(stream.begin + where.window * training.seq_len));
  const std::span<const std::int32_t> all = window;
  run.input = shown(corpus.tokenizer.get(), all.first(training.seq_len));
  run.target = shown(corpus.tokenizer.get(), all.last(training.seq_len));
  run.epochs = sampler.epochs(training.steps * training.global_batch);
}

}  // namespace

std::int64_t MemoryPlan::total() const {
  std::int64_t sum = 0;
  for (const Part& part : parts) sum += part.bytes;
  return sum;
}

MemoryPlan plan_memory(const Config& config, int rank) {
  const auto world = make_planned_world(config.parallelism.grid(), rank);
  const Grid grid(*world, config.parallelism.grid());
  Gpt model(config.model, grid);
  std::vector<FlatSizes> groups;
  std::int64_t shards = 0, pieces = 0;
  for (const ParameterGroup* group : model.groups()) {
    groups.push_back(group->sizes());
    shards += groups.back().shard;
    pieces += groups.back().piece;
  }
  const std::int64_t type = bytes_of(config.training.dtype);
  MemoryPlan plan;
  const auto add = [&](std::string name, std::int64_t bytes, bool estimated = false) {
    if (bytes > 0) plan.parts.push_back({std::move(name), bytes, estimated});
  };
  add(fmt::format("parameters, in {}", name_of(config.training.dtype)), shards * type);
  add("gradients, in f32", shards * kF32);
  if (config.training.dtype != DType::f32) add("master weights, in f32", pieces * kF32);
  add("moments, in f32", (optimizer_copies(config) - 1) * pieces * kF32);
  if (config.parallelism.z > 1) {
    add("blocks gathered over z", largest_pair(groups) * type, true);
    add("their gradients", largest_pair(groups) * kF32, true);
  }
  add("activations", activation_bytes(config), true);
  if (config.checkpoint.async)
    add("copy for a checkpoint that is being written", optimizer_copies(config) * pieces * kF32,
        true);
  return plan;
}

DryRun dry_run(const Config& given, int rank) {
  Config config = given;
  const GridShape shape = config.parallelism.grid();
  if (rank < 0 || rank >= shape.ranks())
    refuse("--rank ", rank, " is not on grid ", to_string(shape), ": ranks are 0 to ",
           shape.ranks() - 1);
  if (config.model.vocab == 0)
    config.model.vocab = make_tokenizer(config.data.tokenizer)->vocab_size();
  config.model = resolved(config.model, config.model.vocab, config.training.seq_len);

  DryRun run;
  run.parameters = parameter_count(config.model);
  run.memory = plan_memory(config, rank);  // before the data, which may take longer to look at
  const auto world = make_planned_world(shape, rank);
  const Grid grid(*world, shape);
  run.place = grid.describe();
  Gpt model(config.model, grid);
  describe_resume(config, model, run);
  describe_disk(config, run);
  const std::string cache = config.output.dir + "/cache";
  const Corpus corpus =
      open_corpus(config.data, {.cache_folder = std::filesystem::exists(cache) ? cache : "",
                                .vocab = config.model.vocab,
                                .seed = static_cast<std::uint64_t>(config.training.seed),
                                .report = {}});
  describe_sample(config, corpus, rank, run);
  return run;
}

std::string to_text(const DryRun& run, const Config& config) {
  const ParallelismConfig& p = config.parallelism;
  std::string text = fmt::format(
      "model     {} parameters\n"
      "grid      x {}, y {}, z {}, data {}: {} ranks; this is {}\n"
      "step      {} sequences of {} tokens, {} at a time on each (z, data); {} steps are {:.2f} "
      "epochs\n",
      format_count(run.parameters), p.x, p.y, p.z, p.data, format_count(p.grid().ranks()),
      run.place, config.training.global_batch, config.training.seq_len, config.training.micro_batch,
      format_count(config.training.steps), run.epochs);
  text += fmt::format("memory    {} on this rank\n", format_bytes(run.memory.total()));
  for (const MemoryPlan::Part& part : run.memory.parts)
    text += fmt::format("  {:>12}  {}{}\n", format_bytes(part.bytes), part.name,
                        part.estimated ? " (estimate)" : "");
  text += fmt::format("disk      {} a checkpoint, {} for those kept; {} free at {}\n",
                      format_bytes(run.checkpoint_bytes), format_bytes(run.disk_bytes),
                      format_bytes(run.disk_free), config.output.dir);
  if (!run.resumes_from.empty())
    text += fmt::format("resume    goes on from {}\n", run.resumes_from);
  text +=
      fmt::format("sample    {}\n  input   {}\n  target  {}\n", run.sample, run.input, run.target);
  for (const std::string& warning : run.warnings) text += "warning: " + warning + '\n';
  return text + "All is well: the same command without --dry-run trains.\n";
}

}  // namespace axonn
