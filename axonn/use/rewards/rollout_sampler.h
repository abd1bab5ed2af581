#pragma once

#include <memory>

#include "axonn/run/train/rollout_sampler.h"
#include "axonn/run/train/training.h"
#include "axonn/use/infer/generator.h"

namespace axonn {

/// How a run writes answers.
struct RolloutWriting {
  Generator::Options generator;
  GenerationOptions answers;  ///< without a seed and the tokens that end an answer
};

/// That of [rl], if the longest prompt has so many tokens.
RolloutWriting rollout_writing(const Config& config, std::int64_t longest_prompt);

/// Whether answers are written, where the data are prompts: something gives them rewards, or a
/// teacher weighs their tokens.
bool may_write_rollouts(const RlConfig& config);

/// Makes what writes the answers of a run on its own grid, from the weights in training: a
/// RolloutSamplerMaker for TrainOptions::make_sampler. Generation g takes the next prompts of a
/// permutation by (training.seed, epoch), or of the file's order, and draws the answers by
/// (training.seed, g), so that it is a function of weights, config and g. Weights are not copied,
/// but gathered over z with rl.hold_weights; the cache of keys and values, of at most 1 GiB a rank,
/// exists only while answers are written.
///
/// Rewards are found on rank 0: those of rl.rewards, then those of rl.reward_program. An answer
/// that the program gives no usable reply has no reward of it, with a warning.
std::unique_ptr<RolloutSampler> make_rollout_sampler(LoadedModel& model,
                                                     std::shared_ptr<const Corpus> corpus);

}  // namespace axonn
