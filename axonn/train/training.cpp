#include "axonn/train/training.h"

#include <algorithm>

#include "axonn/base/check.h"
#include "axonn/data/batches.h"
#include "axonn/data/corpus.h"
#include "axonn/train/schedule.h"

namespace axonn {

namespace {

std::shared_ptr<const Corpus> open_data(const Config& config, Communicator& world,
                                        const TrainingOptions& options) {
  if (!options.data) return nullptr;
  const CorpusOptions corpus_options{.cache_folder = options.cache_folder,
                                     .vocab = config.model.vocab,
                                     .seed = static_cast<std::uint64_t>(config.training.seed),
                                     .report = {}};
  // Rank 0 tokenises into the cache first; the other ranks then find it there.
  std::shared_ptr<const Corpus> corpus;
  const auto open = [&] {
    corpus = std::make_shared<const Corpus>(open_corpus(config.data, corpus_options));
  };
  if (world.rank() == 0) open();
  world.barrier("open data");
  if (world.rank() != 0) open();
  return corpus;
}

/// A vocab of 0 becomes that of the corpus' tokenizer.
Config with_vocab_of(Config config, const Corpus* corpus) {
  if (config.model.vocab > 0 || !corpus) return config;
  if (!corpus->tokenizer)
    refuse("[model] vocab is not set, and token files do not state it; set model.vocab");
  config.model.vocab = corpus->tokenizer->vocab_size();
  return config;
}

BatchOptions batch_options(const LoadedModel& model) {
  const TrainingConfig& t = model.config().training;
  return {.seq_len = t.seq_len,
          .global_batch = t.global_batch,
          .micro_batch = t.micro_batch,
          .place = model.grid().batch_place(),
          .places = model.grid().batch_places()};
}

std::unique_ptr<Batches> training_batches(const LoadedModel& model, const Corpus& corpus,
                                          const SequencesMaker& make_sequences) {
  const Config& config = model.config();
  const auto seed = static_cast<std::uint64_t>(config.training.seed);
  auto sequences = make_sequences ? make_sequences(config, corpus)
                                  : training_sequences(corpus, {.seq_len = config.training.seq_len,
                                                                .seed = seed,
                                                                .shuffle = config.data.shuffle,
                                                                .vocab = config.model.vocab});
  return std::make_unique<Batches>(std::move(sequences),
                                   make_goldfish(config.training.goldfish, seed, corpus),
                                   batch_options(model));
}

std::unique_ptr<Batches> validation_batches(const LoadedModel& model, const Corpus& corpus) {
  const TrainingConfig& t = model.config().training;
  std::shared_ptr<const Sequences> sequences =
      validation_sequences(corpus, t.seq_len, model.config().model.vocab);
  if (!sequences) return nullptr;
  BatchOptions options = batch_options(model);
  options.global_batch = t.micro_batch * options.places;  // one micro-batch at a time
  options.end = sequences->count();
  if (t.eval_batches > 0) options.end = std::min(options.end, t.eval_batches * t.global_batch);
  return std::make_unique<Batches>(std::move(sequences), SequenceMask(), options);
}

}  // namespace

Training::Training(const Config& config, Communicator& world, std::unique_ptr<Backend> backend,
                   const TrainingOptions& options)
    : corpus(open_data(config, world, options)),
      model(with_vocab_of(config, corpus.get()), world, std::move(backend), {}),
      optimizer(model.trained(), options.make_optimizer(config.optimizer)),
      step(model.model(), optimizer) {
  if (options.data) {
    batches = training_batches(model, *corpus, options.make_sequences);
    validation = validation_batches(model, *corpus);
    inputs.emplace(model, *batches);
  }
  const Context ctx = model.context();
  optimizer.allocate(ctx);
  if (config.training.cuda_graph) step.use_graphs(ctx);
}

Training::~Training() = default;

double Training::validate() { return step.evaluate(model.context(), *validation); }

std::int64_t Training::validation_windows() const {
  return validation ? validation->options().end : 0;
}

StepResult Training::run(std::int64_t n) {
  StepInput input = inputs->at(n);
  input.lr = learning_rate(model.config(), n);
  return step.run(model.context(), input);
}

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
