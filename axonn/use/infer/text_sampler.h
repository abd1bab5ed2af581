#pragma once

#include <memory>

#include "axonn/data/text/tokenizer.h"
#include "axonn/run/load/loaded_model.h"
#include "axonn/run/train/samples.h"

namespace axonn {

/// Makes what writes the samples of a run on its own grid, from the weights in training: a
/// TextSamplerMaker for TrainOptions::make_text_sampler. Weights are not copied; the cache of keys
/// and values, of at most 64 MiB a rank or one sequence, exists only while samples are written.
/// Changes no bit of the training.
///
/// Prompt n is drawn by (training.seed, n), the same at every step. A prompt that leaves no room in
/// the model's positions, or has none of the tokenizer's tokens, is a UsageError that names the
/// key.
TextSampler make_text_sampler(LoadedModel& model, std::shared_ptr<const Tokenizer> tokenizer);

}  // namespace axonn
