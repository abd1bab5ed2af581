#include "axonn/train/session.h"

#include <algorithm>

#include "axonn/base/check.h"
#include "axonn/io/exchange.h"
#include "axonn/train/pretrained.h"

namespace axonn {

Session::Session(const Config& config, Communicator& world, std::unique_ptr<Backend> backend,
                 Options options)
    : config_(config),
      backend_(std::move(backend)),
      arena_(std::make_unique<Arena>(backend_->device())),
      grid_(std::make_unique<Grid>(world, config.parallelism.grid())) {
  if (options.training && options.data)
    open_data(options.cache_folder);
  else if (!config_.data.tokenizer.empty() && (options.data || config_.model.vocab == 0))
    corpus_.tokenizer = make_tokenizer(config_.data.tokenizer);
  if (config_.model.vocab == 0) {
    if (!corpus_.tokenizer)
      refuse("[model] vocab is not set, and token files do not say it; set model.vocab");
    config_.model.vocab = corpus_.tokenizer->vocab_size();
  }
  config_.model = resolved(config_.model, config_.model.vocab,
                           std::max<std::int64_t>(config_.training.seq_len, 1));
  model_ = options.make_model(config_.model, *grid_);
  const Context ctx = context();
  for (ParameterGroup* group : model_->groups()) group->allocate(ctx);
  if (!options.training) return;
  optimizer_ = std::make_unique<Optimizer>(trained_groups(*model_), config_.optimizer);
  optimizer_->allocate(ctx);
  step_ = std::make_unique<TrainStep>(*model_, *optimizer_);
}

void Session::open_data(const std::string& cache_folder) {
  CorpusOptions options{.cache_folder = cache_folder,
                        .vocab = config_.model.vocab,
                        .seed = static_cast<std::uint64_t>(config_.training.seed),
                        .report = {}};
  // Rank 0 tokenises into the cache first, the others find it there.
  if (grid_->world().rank() == 0) corpus_ = open_corpus(config_.data, options);
  grid_->world().barrier("open data");
  if (grid_->world().rank() != 0) corpus_ = open_corpus(config_.data, options);
  sampler_ = std::make_unique<Sampler>(
      corpus_.train, SamplerOptions{.seq_len = config_.training.seq_len,
                                    .seed = static_cast<std::uint64_t>(config_.training.seed),
                                    .shuffle = config_.data.shuffle,
                                    .vocab = config_.model.vocab});
  if (!corpus_.validation.empty())
    validation_ = std::make_unique<Windows>(corpus_.validation, config_.training.seq_len,
                                            config_.model.vocab);
}

Context Session::context_on(Backend& backend) const {
  const ParallelismConfig& p = config_.parallelism;
  Context ctx{.backend = backend, .arena = *arena_, .grid = *grid_};
  ctx.dtype = config_.training.dtype;
  ctx.reduce_dtype = p.reduce_dtype;
  ctx.overlap = {p.overlap_input_gradients, p.overlap_weight_gradients, p.overlap_weights,
                 p.overlap_data};
  ctx.sequence_parallel = p.sequence_parallel;
  ctx.chunks = p.chunks;
  ctx.seed = static_cast<std::uint64_t>(config_.training.seed);
  ctx.recompute = config_.activation_checkpoint.mode == RecomputeMode::full;
  return ctx;
}

namespace {

/// What of a group's parameters this rank holds, without buffers.
StateBlock block_of(const ParameterGroup& group) {
  StateBlock block{
      .name = group.name(), .count = group.piece_size(), .parameters = {}, .buffers = {}};
  for (const auto& parameter : group.parameters()) {
    const ParameterSpec& spec = parameter->spec();
    StateParameter entry{
        .name = spec.name, .rows = spec.layout.rows, .cols = spec.layout.cols, .slices = {}};
    for (const auto& [owner, slice] : group.piece_slices())
      if (owner == &spec) entry.slices.push_back(slice);
    block.parameters.push_back(std::move(entry));
  }
  return block;
}

}  // namespace

void Session::initialise(const std::vector<ParameterGroup*>& groups) {
  const Context ctx = context();
  for (ParameterGroup* group : groups)
    group->initialise(ctx, static_cast<std::uint64_t>(config_.training.seed));
}

/// What a model without adapters has: where there are adapters, what is frozen.
void Session::load_base(const std::vector<ParameterGroup*>& groups) {
  const Context ctx = context();
  const std::string& path = config_.model.path;
  if (has_safetensors(path)) {
    load_pretrained(ctx, config_.model, groups, SafetensorsFolder(path));
    return;
  }
  std::vector<StateBlock> blocks;
  for (ParameterGroup* group : groups) {
    if (group->frozen()) group->stage_master(ctx);
    blocks.push_back(block_of(*group));
    blocks.back().buffers.push_back({"master", group->master().as<float>()});
  }
  load(CheckpointReader(grid_->world(), path), groups, blocks, {});
}

void Session::initialise() {
  const bool adapters = config_.model.lora.rank > 0;
  if (adapters) initialise_frozen();
  if (adapters || config_.model.path.empty())
    initialise(trained_groups(*model_));
  else
    load_base(model_->groups());
}

void Session::initialise_frozen() {
  std::vector<ParameterGroup*> groups = model_->groups();
  std::erase_if(groups, [](const ParameterGroup* group) { return !group->frozen(); });
  if (groups.empty()) return;
  if (config_.model.path.empty())
    initialise(groups);
  else
    load_base(groups);
}

std::vector<StateBlock> Session::state(Load what) const {
  std::vector<StateBlock> blocks;
  const auto groups = trained_groups(*model_);
  for (std::size_t i = 0; i < groups.size(); ++i) {
    StateBlock& block = blocks.emplace_back(block_of(*groups[i]));
    if (what == Load::everything)
      for (const auto& [kind, data] : optimizer_->state(i)) block.buffers.push_back({kind, data});
    else
      block.buffers.push_back({"master", groups[i]->master().as<float>()});
  }
  return blocks;
}

LoadCost Session::load(const CheckpointReader& reader, Load what,
                       const CheckpointReader::Progress& progress) {
  return load(reader, trained_groups(*model_), state(what), progress);
}

LoadCost Session::load(const CheckpointReader& reader, const std::vector<ParameterGroup*>& groups,
                       const std::vector<StateBlock>& state,
                       const CheckpointReader::Progress& progress) {
  LoadCost cost;
  const std::string fault = fault_of([&] { cost = reader.load(state, progress); });
  try {
    agree(grid_->world(), "loading " + reader.folder(), fault);
  } catch (const Aborted&) {
    throw;
  } catch (const Error& error) {
    refuse(error.what());  // the files are at fault
  }
  const Context ctx = context();
  for (ParameterGroup* group : groups) group->publish_from_master(ctx);
  return cost;
}

void Session::settle() const {
  for (const ParameterGroup* group : model_->groups()) group->piece_of_compute();
}

std::int64_t Session::place() const {
  return grid_->coord(Axis::data) * grid_->extent(Axis::z) + grid_->coord(Axis::z);
}

std::int64_t Session::places() const { return grid_->extent(Axis::data) * grid_->extent(Axis::z); }

std::int64_t Session::tokens_per_step() const {
  return config_.training.global_batch * config_.training.seq_len;
}

Tokens Session::tokens_of(
    std::int64_t count, std::int64_t first,
    const std::function<bool(std::int64_t, std::span<std::int32_t>)>& read) const {
  const std::int64_t length = config_.training.seq_len;
  std::vector<std::int32_t> window(length + 1), ids(count * length), targets(count * length);
  for (std::int64_t i = 0; i < count; ++i) {
    if (read(first + i, window)) {
      std::copy_n(window.begin(), length, ids.begin() + i * length);
      std::copy_n(window.begin() + 1, length, targets.begin() + i * length);
    } else {
      std::fill_n(targets.begin() + i * length, length, -1);
    }
  }
  return make_tokens(context(), ids, targets, {count, length, first * length});
}

StepInput Session::step_input(std::int64_t step) {
  const TrainingConfig& t = config_.training;
  const std::int64_t micro_batches = t.global_batch / (t.micro_batch * places());
  StepInput input;
  input.step = step;
  input.micro_batches = static_cast<int>(micro_batches);
  input.tokens = tokens_per_step();
  input.max_norm = t.max_norm;
  input.tokens_of = [this, step, micro_batches, &t](int micro) {
    const std::int64_t first =
        step * t.global_batch + (place() * micro_batches + micro) * t.micro_batch;
    return tokens_of(t.micro_batch, first, [&](std::int64_t n, std::span<std::int32_t> window) {
      sampler_->read(n, window);
      return true;
    });
  };
  return input;
}

std::int64_t Session::validation_windows() const {
  if (!validation_) return 0;
  const std::int64_t wanted = config_.training.eval_batches * config_.training.global_batch;
  return wanted > 0 ? std::min(wanted, validation_->count()) : validation_->count();
}

double Session::validate() {
  const std::int64_t windows = validation_windows(), each = config_.training.micro_batch,
                     round = each * places();
  StepInput input;
  input.micro_batches = static_cast<int>((windows + round - 1) / round);
  input.tokens = windows * config_.training.seq_len;
  input.tokens_of = [&](int micro) {
    const std::int64_t first = micro * round + place() * each;
    return tokens_of(each, first, [&](std::int64_t n, std::span<std::int32_t> window) {
      if (n >= windows) return false;
      validation_->read(n, window);
      return true;
    });
  };
  return step_->evaluate(context(), input);
}

NamedSeconds Session::waited_by_kind() const {
  NamedSeconds all;
  const auto add = [&](std::string_view group, const CommStats& stats) {
    for (int i = 0; i < kOperations; ++i)
      all.emplace_back(concat(group, ' ', name_of(static_cast<Operation>(i))),
                       stats.waited_seconds_by[i]);
  };
  for (Axis axis : kAxes) add(name_of(axis), grid_->along(axis).stats());
  add("world", grid_->world().stats());
  return all;
}

double Session::waited_seconds() const {
  double seconds = grid_->world().stats().waited_seconds;
  for (Axis axis : kAxes) seconds += grid_->along(axis).stats().waited_seconds;
  return seconds;
}

}  // namespace axonn
