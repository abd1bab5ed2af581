#include "axonn/foundation/options/options.h"
#include "axonn/run/config/config_options.h"

namespace axonn {

namespace {

void list_ratios(RlConfig& rl, OptionList& list) {
  list.add("clip", &rl.clip,
           {.help = "how far below 1 the ratio of the policy to the one that wrote the answer, of "
                    "a token that shall become less likely, still has a gradient",
            .min = 0,
            .also = "epsilon_low cliprange clip_ratio clip_ratio_low eps_clip"});
  list.add("clip_high", &rl.clip_high,
           {.help = "how far above 1, of a token that shall become likelier (0.28 in DAPO); 0: "
                    "clip; cispo: the bound of the ratio itself",
            .min = 0,
            .also = "epsilon_high clip_ratio_high eps_clip_high"});
  list.add("delta", &rl.delta,
           {.help = "largest ratio of a token that shall become less likely; 0: none",
            .min = 0,
            .also = "clip_ratio_c"});
  list.add("importance_sampling_level", rl.importance_sampling_level, kRatioLevels,
           {.help = "whether each token or each answer has a ratio; auto: each token, except with "
                    "gspo and rloo"});
  list.add("sampler_correction", rl.sampler_correction, kSamplerCorrections,
           {.help = "answers whose sampler's log-probabilities are given: weight of each token, or "
                    "of each answer, by how much likelier the policy finds it than the sampler "
                    "did; above sampler_clip it is cut (truncate) or 0 (mask)",
            .also = "vllm_importance_sampling_mode"});
  list.add("sampler_clip", &rl.sampler_clip,
           {.help = "largest such weight",
            .min = 0,
            .also = "vllm_importance_sampling_clip_max vllm_importance_sampling_cap"});
  list.add("off_policy_mask", &rl.off_policy_mask,
           {.help = "answers that shall become less likely have no loss where the mean over their "
                    "tokens of log(sampler / policy) is larger than this (DeepSeek-V3.2); 0: all "
                    "have one",
            .min = 0,
            .also = "off_policy_mask_threshold"});
  list.add("vespo_k_pos", &rl.vespo_k_pos,
           {.help = "vespo, of answers that shall become likelier: power of their ratio w in the "
                    "weight w^k e^(lambda (1 - w))",
            .min = 0});
  list.add("vespo_lambda_pos", &rl.vespo_lambda_pos, {.help = "and its lambda", .min = 0});
  list.add("vespo_k_neg", &rl.vespo_k_neg,
           {.help = "vespo, of answers that shall become less likely: the same power", .min = 0});
  list.add("vespo_lambda_neg", &rl.vespo_lambda_neg, {.help = "and its lambda", .min = 0});
}

void list_entropy(RlConfig& rl, OptionList& list) {
  list.add("entropy_coef", &rl.entropy_coef,
           {.help = "weight of the mean entropy of the tokens that count, in nats, which is taken "
                    "from the loss",
            .min = 0,
            .also = "entropy_coeff entropy_bonus"});
  list.add("top_entropy_quantile", &rl.top_entropy_quantile,
           {.help = "share of a step's tokens, those whose distributions have the largest entropy, "
                    "that have a loss (0.2 in 2506.01939); 1: all",
            .min = 0});
}

void list_rewards(RlConfig& rl, OptionList& list) {
  list.add("rewards", &rl.rewards,
           {.help = "rewards of answers that the run writes, of 1 or 0: exact and number compare "
                    "with the line's \"answer\" (or \"solution\", \"ground_truth\"), format wants "
                    "<think>...</think> and more; overlong is 0, and falls to -1 over the last "
                    "overlong_buffer tokens"});
  list.add("overlong_buffer", &rl.overlong_buffer,
           {.help = "last tokens of max_tokens over which the reward overlong falls",
            .min = 0,
            .also = "soft_punish_cache overlong_buffer_len"});
  list.add(
      "sampling_attempts", &rl.sampling_attempts,
      {.help = "how often a generation may write answers to further prompts in place of groups "
               "whose rewards are all equal, from which nothing is learned (DAPO's dynamic "
               "sampling); 1: it keeps all groups",
       .min = 1,
       .also = "max_num_gen_batches filter_groups dynamic_sampling"});
  list.add("reward_program", &rl.reward_program,
           {.help = "command that gives rewards: it reads a line of JSON for each answer, with the "
                    "keys of its prompt's line, \"prompt\" and \"completion\", and writes a line "
                    "each: a number, null, or an object of these by name",
            .also = "reward_funcs remote_rm_url custom_reward_function"});
  list.add("reward_workers", &rl.reward_workers,
           {.help = "number of such programs that run at once", .min = 1});
  list.add("reward_timeout", &rl.reward_timeout,
           {.help = "time for an answer, after which the program is started again and the answer "
                    "has no reward",
            .unit = "seconds",
            .min = 0});
  list.add("scale_rewards", rl.scale_rewards, kRewardScales,
           {.help = "of which rewards the standard deviation divides an answer's advantage over "
                    "the mean of its group: those of the group, all of the generation, or none; "
                    "rloo divides by none"});
  list.add(
      "reward_weights", &rl.reward_weights,
      {.help = "factors of the rewards, in their order, in the sum that counts; empty: 1 each"});
  list.add(
      "reward_sum", rl.reward_sum, kRewardSums,
      {.help = "whether the weighted sum of an answer's rewards is normalised in its group, or "
               "each reward is, and their weighted sum then over the generation (GDPO)",
       .also = "multi_objective_aggregation"});
  list.add("kl", &rl.kl,
           {.help = "weight of the divergence from the reference: in the loss, or, with rloo, in "
                    "the reward; -1: 0.05 with rloo, else 0, and then there is no reference",
            .min = -1,
            .also = "kl_coef kl_loss_coef init_kl_coef"});
  list.add("kl_correction", &rl.kl_correction,
           {.help = "whether a token's divergence in the loss is multiplied by its ratio, which "
                    "makes it one of the policy that is trained",
            .also = "use_bias_correction_kl"});
  list.add("kl_estimator", rl.kl_estimator, kKlEstimators,
           {.help = "estimate of a token's divergence in the loss: k3's gradient is that of "
                    "KL(reference || policy), k2's that of KL(policy || reference), k1's is 0 on "
                    "average",
            .also = "kl_loss_type"});
  list.add("mask_truncated", &rl.mask_truncated,
           {.help = "whether answers that end without a token that ends them have no loss",
            .also = "mask_truncated_completions overlong_filtering"});
}

}  // namespace

void list_rl(RlConfig& rl, OptionList& list) {
  list.section("rl",
               "Learning from answers with rewards, in place of the losses of tokens; lines of "
               "data.jsonl then have a prompt, to which the run writes answers, or a prompt and an "
               "answer's tokens and rewards");
  list.add("loss", rl.loss, kPolicyLosses,
           {.help = "loss of an answer by its advantage over others to the same prompt; none: "
                    "data.jsonl holds examples; gspo is grpo with ratios of whole answers; "
                    "distill: the divergence from distill.teacher, on answers of the run",
            .also = "advantage_estimator algorithm"});
  list.add("group", &rl.group,
           {.help = "answers of a prompt, which are compared",
            .min = 1,
            .also = "num_generations n_samples_per_prompt rollout_n"});
  list_ratios(rl, list);
  list_entropy(rl, list);
  list_rewards(rl, list);
  list.add("temperature", &rl.temperature,
           {.help = "by which the logits are divided, for sampling and in all log-probabilities"});
  list.add("max_tokens", &rl.max_tokens,
           {.help = "most tokens of an answer; the divisor of dr_grpo's sums",
            .min = 1,
            .also = "max_completion_length max_new_tokens generate_max_len response_length"});
  list.add("iterations", &rl.iterations,
           {.help = "how often a generation's answers are trained on",
            .min = 1,
            .also = "num_iterations ppo_epochs"});
  list.add("steps_per_generation", &rl.steps_per_generation,
           {.help = "steps into which a generation's answers are divided; each has "
                    "training.global_batch answers",
            .min = 1});
  list.add("hold_weights", &rl.hold_weights,
           {.help = "whether weights are gathered over z once while answers are written, in memory "
                    "for all of them, and not for each token"});
  list.add("batch_invariant", &rl.batch_invariant,
           {.help = "whether the log-probabilities of answers that the run writes are those of the "
                    "training pass to the bit, on CPUs: a token's products then do not depend on "
                    "how many others are computed with it, and take longer"});
  list.add("reference", &rl.reference,
           {.help = "model of the divergence, a Hugging Face folder or checkpoints, which is cut "
                    "as the model is; empty: model.path",
            .also = "ref_model reference_model"});
}

}  // namespace axonn
