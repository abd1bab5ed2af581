#include "axonn/train/session.h"

#include <algorithm>

#include "axonn/base/check.h"
#include "axonn/train/devices.h"

namespace axonn {

Session::Session(const Config& config, Communicator& world, std::unique_ptr<Backend> backend,
                 Options options)
    : config_(config),
      backend_(std::move(backend)),
      arena_(std::make_unique<Arena>(backend_->device())),
      device_world_(make_device_world(config.parallelism, world, backend_->device())),
      grid_(std::make_unique<Grid>(device_world_ ? *device_world_ : world,
                                   config.parallelism.grid())) {
  if (options.training && options.data)
    open_data(options);
  else if (!config_.data.tokenizer.empty() && (options.data || config_.model.vocab == 0))
    corpus_.tokenizer = make_tokenizer(config_.data.tokenizer);
  if (config_.model.vocab == 0) {
    if (!corpus_.tokenizer)
      refuse("[model] vocab is not set, and token files do not state it; set model.vocab");
    config_.model.vocab = corpus_.tokenizer->vocab_size();
  }
  config_.model = resolved(config_.model, config_.model.vocab,
                           std::max<std::int64_t>(config_.training.seq_len, 1));
  model_ = options.make_model(config_.model, *grid_);
  trained_ = trained_groups(*model_);
  const Context ctx = context();
  for (ParameterGroup* group : model_->groups()) {
    if (!options.training) group->freeze();
    group->allocate(ctx);
  }
  if (!options.training) return;
  optimizer_ =
      std::make_unique<OptimizerState>(trained_, options.make_optimizer(config_.optimizer));
  optimizer_->allocate(ctx);
  step_ = std::make_unique<TrainStep>(*model_, *optimizer_);
  if (config_.training.cuda_graph) step_->use_graphs(ctx);
}

void Session::open_data(const Options& options) {
  const auto seed = static_cast<std::uint64_t>(config_.training.seed);
  const CorpusOptions corpus_options{.cache_folder = options.cache_folder,
                                     .vocab = config_.model.vocab,
                                     .seed = seed,
                                     .report = {}};
  // Rank 0 tokenises into the cache first; the other ranks then find it there.
  if (grid_->world().rank() == 0) corpus_ = open_corpus(config_.data, corpus_options);
  grid_->world().barrier("open data");
  if (grid_->world().rank() != 0) corpus_ = open_corpus(config_.data, corpus_options);
  training_ = options.make_sequences
                  ? options.make_sequences(config_, corpus_)
                  : training_sequences(corpus_, {.seq_len = config_.training.seq_len,
                                                 .seed = seed,
                                                 .shuffle = config_.data.shuffle,
                                                 .vocab = config_.model.vocab});
  goldfish_ = make_goldfish(config_.training.goldfish, seed, corpus_);
  validation_ = validation_sequences(corpus_, config_.training.seq_len, config_.model.vocab);
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

void Session::settle() const {
  for (const ParameterGroup* group : model_->groups()) group->piece_of_compute();
  backend_->device().compute().synchronize();
}

std::int64_t Session::place() const {
  return grid_->coord(Axis::data) * grid_->extent(Axis::z) + grid_->coord(Axis::z);
}

std::int64_t Session::places() const { return grid_->extent(Axis::data) * grid_->extent(Axis::z); }

std::int64_t Session::tokens_per_step() const {
  return config_.training.global_batch * config_.training.seq_len;
}

Sequences::Size Session::step_size(std::int64_t step) const {
  const std::int64_t batch = config_.training.global_batch;
  if (!training_) return {tokens_per_step(), tokens_per_step()};
  Sequences::Size sum{};
  for (std::int64_t n = step * batch; n < (step + 1) * batch; ++n) {
    const auto [targets, inputs] = training_->size(n);
    sum.targets += targets;
    sum.inputs += inputs;
  }
  return sum;
}

std::int64_t Session::sequences_each() const { return config_.training.global_batch / places(); }

std::int64_t Session::first_sequence(std::int64_t step) const {
  return step * config_.training.global_batch + place() * sequences_each();
}

/// Counts the step's targets that the goldfish loss keeps. Each (z, data) coordinate counts its
/// own.
std::int64_t Session::kept_targets(std::int64_t step) const {
  double kept = 0;
  if (grid_->coord(Axis::x) == 0 && grid_->coord(Axis::y) == 0) {
    Sequence one;
    const std::int64_t first = first_sequence(step);
    for (std::int64_t n = first; n < first + sequences_each(); ++n) {
      training_->read(n, one);
      goldfish_->mask(n, one);
      kept += static_cast<double>(
          std::ranges::count_if(one.targets, [](std::int32_t target) { return target >= 0; }));
    }
  }
  grid_->world().all_reduce(buffer(std::span(&kept, 1)), "kept targets").wait();
  return std::max<std::int64_t>(static_cast<std::int64_t>(kept),
                                1);  // without targets the mean loss is 0
}

Tokens Session::tokens_of(const Sequences& from, const Goldfish* goldfish, std::int64_t first,
                          std::int64_t count, std::int64_t end) const {
  const std::int64_t length = config_.training.seq_len;
  Sequence one, all;
  for (std::int64_t n = first; n < first + count; ++n) {
    from.read(std::min(n, end - 1), one);
    if (goldfish) goldfish->mask(n, one);
    if (n >= end) one.targets.assign(length, -1);
    const auto append = [](std::vector<std::int32_t>& to, const std::vector<std::int32_t>& piece) {
      to.insert(to.end(), piece.begin(), piece.end());
    };
    append(all.ids, one.ids);
    append(all.targets, one.targets);
    append(all.positions, one.positions);
    append(all.starts, one.starts);
  }
  return make_tokens(context(), all.ids, all.targets, {count, length, first * length},
                     {.positions = all.positions, .starts = all.starts});
}

StepInput Session::step_input(std::int64_t step) {
  const TrainingConfig& t = config_.training;
  StepInput input;
  input.step = step;
  input.micro_batches = static_cast<int>(sequences_each() / t.micro_batch);
  input.all_targets = step_size(step).targets;
  input.tokens = goldfish_ ? kept_targets(step) : input.all_targets;
  input.max_norm = t.max_norm;
  input.tokens_of = [this, step, &t](int micro) {
    const std::int64_t first = first_sequence(step) + micro * t.micro_batch;
    return tokens_of(*training_, goldfish_ ? &*goldfish_ : nullptr, first, t.micro_batch,
                     first + t.micro_batch);
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
  for (std::int64_t n = 0; n < windows; ++n) input.tokens += validation_->size(n).targets;
  input.tokens_of = [&](int micro) {
    return tokens_of(*validation_, nullptr, micro * round + place() * each, each, windows);
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
