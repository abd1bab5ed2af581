#include "axonn/train/data_stages.h"

#include <fmt/format.h>

#include "axonn/base/check.h"
#include "axonn/base/hash.h"

namespace axonn {

namespace {

/// The seed of a stage's order: stages that share data see them in different orders.
std::uint64_t order_seed(const Config& config, const std::string& stage) {
  const auto seed = static_cast<std::uint64_t>(config.training.seed);
  return stage.empty() ? seed : seed ^ xxh3(stage);
}

std::string name_of_stage(const Config& config, std::size_t i) {
  return config.stage.empty() ? "" : config.stage[i].name;
}

}  // namespace

std::vector<Config> stages_of(const Config& config) {
  if (config.stage.empty()) return {config};
  std::vector<Config> all;
  for (const StageConfig& stage : config.stage) {
    Config& one = all.emplace_back(config);
    one.stage.clear();
    one.data.text = stage.text;
    one.data.tokens = stage.tokens;
    one.data.synthetic = stage.synthetic;
    if (stage.seq_len > 0) one.training.seq_len = stage.seq_len;
  }
  return all;
}

std::vector<std::shared_ptr<const Corpus>> open_stages(const Config& config,
                                                       const CorpusOptions& options) {
  std::vector<std::shared_ptr<const Corpus>> stages;
  for (const Config& one : stages_of(config))
    stages.push_back(std::make_shared<const Corpus>(open_corpus(one.data, options)));
  return stages;
}

std::vector<BatchSource> stage_sources(const Config& config,
                                       const std::vector<std::shared_ptr<const Corpus>>& stages,
                                       const SequencesMaker& make_sequences) {
  const std::vector<Config> configs = stages_of(config);
  std::vector<BatchSource> sources;
  for (std::size_t i = 0; i < configs.size(); ++i) {
    const Config& one = configs[i];
    const std::string name = name_of_stage(config, i);
    auto sequences = make_sequences
                         ? make_sequences(one, *stages[i])
                         : training_sequences(*stages[i], {.seq_len = one.training.seq_len,
                                                           .seed = order_seed(config, name),
                                                           .shuffle = one.data.shuffle,
                                                           .vocab = one.model.vocab});
    AXONN_CHECK(sequences, "TrainingOptions::make_sequences returned null");
    sources.push_back(
        {.name = name,
         .first_step = config.stage.empty() ? 0 : config.stage[i].from_step - 1,
         .sequences = std::move(sequences),
         .mask = make_goldfish(one.training.goldfish, static_cast<std::uint64_t>(one.training.seed),
                               *stages[i]),
         .in_one = config.training.seq_len / one.training.seq_len});
  }
  return sources;
}

double epochs_of(const Config& config, const Batches& batches, std::size_t s) {
  return static_cast<double>(batches.done(s, config.training.steps)) /
         static_cast<double>(batches.sources()[s].sequences->count());
}

std::vector<std::string> describe_stages(const Config& config, const Batches& batches) {
  std::vector<std::string> lines;
  for (std::size_t s = 0; s < config.stage.size(); ++s) {
    const BatchSource& source = batches.sources()[s];
    lines.push_back(source.first_step < config.training.steps
                        ? fmt::format("{} from step {}: sequences of {} tokens, {:.2f} epochs",
                                      source.name, source.first_step + 1,
                                      config.training.seq_len / source.in_one,
                                      epochs_of(config, batches, s))
                        : fmt::format("{} never begins: its step {} is after the last, {}",
                                      source.name, source.first_step + 1, config.training.steps));
  }
  return lines;
}

}  // namespace axonn
