#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <vector>

#include "axonn/data/batches.h"
#include "axonn/data/corpus.h"
#include "axonn/train/config.h"
#include "axonn/train/training.h"

namespace axonn {

/// The data of each stage of a run; of [data] alone if it has no stages. Throws as open_corpus().
std::vector<std::shared_ptr<const Corpus>> open_stages(const Config& config,
                                                       const CorpusOptions& options);

/// The training sequences of each stage, whose data `stages` are. The order of a stage is a
/// function of training.seed and its name. make_sequences empty: training_sequences().
std::vector<BatchSource> stage_sources(const Config& config,
                                       const std::vector<std::shared_ptr<const Corpus>>& stages,
                                       const SequencesMaker& make_sequences = {});

/// A line for each stage of a run: its name, steps and sequences, and its epochs until the last
/// step. Empty if the config has no stages.
std::vector<std::string> describe_stages(const Config& config, const Batches& batches);
/// The epochs of stage s, or of [data], in the whole run.
double epochs_of(const Config& config, const Batches& batches, std::size_t s);

}  // namespace axonn
