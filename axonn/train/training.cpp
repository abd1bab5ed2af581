#include "axonn/train/training.h"

#include <algorithm>

#include "axonn/base/check.h"
#include "axonn/train/schedule.h"

namespace axonn {

namespace {

Corpus open_data(const Config& config, Communicator& world, const TrainingOptions& options) {
  if (!options.data) return {};
  const CorpusOptions corpus_options{.cache_folder = options.cache_folder,
                                     .vocab = config.model.vocab,
                                     .seed = static_cast<std::uint64_t>(config.training.seed),
                                     .report = {}};
  // Rank 0 tokenises into the cache first; the other ranks then find it there.
  Corpus corpus;
  if (world.rank() == 0) corpus = open_corpus(config.data, corpus_options);
  world.barrier("open data");
  if (world.rank() != 0) corpus = open_corpus(config.data, corpus_options);
  return corpus;
}

/// A vocab of 0 becomes that of the corpus' tokenizer.
Config with_vocab_of(Config config, const TrainingOptions& options, const Corpus& corpus) {
  if (config.model.vocab > 0 || !options.data) return config;
  if (!corpus.tokenizer)
    refuse("[model] vocab is not set, and token files do not state it; set model.vocab");
  config.model.vocab = corpus.tokenizer->vocab_size();
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
  return std::make_unique<Batches>(std::move(sequences), std::nullopt, options);
}

}  // namespace

Training::Training(const Config& config, Communicator& world, std::unique_ptr<Backend> backend,
                   const TrainingOptions& options)
    : corpus(open_data(config, world, options)),
      model(with_vocab_of(config, options, corpus), world, std::move(backend),
            {.make_model = options.make_model}),
      optimizer(model.trained(), options.make_optimizer(config.optimizer)),
      step(model.model(), optimizer) {
  if (options.data) {
    batches = training_batches(model, corpus, options.make_sequences);
    validation = validation_batches(model, corpus);
    inputs.emplace(model, *batches);
  }
  const Context ctx = model.context();
  optimizer.allocate(ctx);
  if (config.training.cuda_graph) step.use_graphs(ctx);
}

StepResult Training::run(std::int64_t n) {
  StepInput input = inputs->at(n);
  input.lr = learning_rate(model.config(), n);
  return step.run(model.context(), input);
}

}  // namespace axonn
