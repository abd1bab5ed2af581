#include "axonn/run/config/unused_keys.h"

#include <algorithm>
#include <initializer_list>
#include <span>
#include <string>
#include <string_view>

#include "axonn/foundation/base/check.h"
#include "axonn/foundation/base/numbers.h"
#include "axonn/foundation/options/options.h"
#include "axonn/network/model/model.h"
#include "axonn/run/config/config_options.h"
#include "axonn/run/config/optimizer_rules.h"
#include "axonn/run/config/policy_loss.h"
#include "axonn/run/config/preference.h"

namespace axonn {

namespace {

struct UnusedKeys {
  KeyReasons found;

  void when(bool condition, const std::vector<std::string>& keys, const std::string& reason) {
    if (!condition) return;
    for (const std::string& key : keys) found.emplace_back(key, reason);
  }
};

void add_unused_of_experts(const Config& config, UnusedKeys& keys) {
  const ModelConfig& model = config.model;
  if (!model.path.empty() || architecture_of(model.family)) return;  // may have experts
  const bool none = model.experts == 0;
  keys.when(none,
            {"parallelism.experts", "training.balance.scope", "training.balance.weight",
             "training.balance.z", "training.balance.bias", "training.balance.expected_load",
             "activation_checkpoint.keep_dispatch"},
            "model.experts is 0");
  if (none) return;
  keys.when(!model.router_bias, {"training.balance.bias"}, "model.router_bias is false");
  keys.when(config.training.balance.weight == 0, {"training.balance.scope"},
            "training.balance.weight is 0");
}

/// Adds what `given`, whose kind is registered, sets in vain: keys of other rules.
void add_unused_of_rule(const OptimizerConfig& given, const OptimizerRule& rule, UnusedKeys& keys) {
  OptimizerConfig config = given;
  OptionList list;
  list_optimizer(config, list);
  const std::string reason = "optimizer.kind is " + rule.name + ", which does not read it";
  for (const Option& option : list.find("optimizer")->options) {
    const std::string& name = option.name();
    const bool always = name == "kind" || name == "lr" || name == "ema_decay";
    keys.when(!always && std::ranges::find(rule.reads, name) == rule.reads.end(), {option.key()},
              reason);
  }
}

void add_unused_of_optimizer(const OptimizerConfig& optimizer, UnusedKeys& keys) {
  const OptimizerRule* const rule = optimizer_rule_of(optimizer.kind);
  if (rule) return add_unused_of_rule(optimizer, *rule, keys);
  const bool sgd = optimizer.kind == OptimizerKind::sgd;
  keys.when(sgd, {"optimizer.beta1", "optimizer.beta2", "optimizer.eps"},
            "optimizer.kind is sgd, which has no moments");
  keys.when(optimizer.kind == OptimizerKind::lion, {"optimizer.eps"},
            "optimizer.kind is lion, which divides by nothing");
  const bool adafactor = optimizer.kind == OptimizerKind::adafactor;
  keys.when(adafactor, {"optimizer.beta1", "optimizer.beta2", "optimizer.eps"},
            "optimizer.kind is adafactor, whose keys are adafactor_beta1, beta2_decay and eps1");
  keys.when(!adafactor,
            {"optimizer.relative_step", "optimizer.scale_parameter", "optimizer.clip_threshold",
             "optimizer.beta2_decay", "optimizer.eps1", "optimizer.eps2",
             "optimizer.adafactor_beta1", "optimizer.adafactor_form"},
            "optimizer.kind is not adafactor");
  keys.when(adafactor && !optimizer.scale_parameter, {"optimizer.eps2"},
            "optimizer.scale_parameter is false");
  keys.when(!sgd, {"optimizer.sgd_momentum", "optimizer.sgd_nesterov", "optimizer.sgd_dampening"},
            "optimizer.kind is not sgd");
  keys.when(sgd && optimizer.sgd_momentum == 0,
            {"optimizer.sgd_nesterov", "optimizer.sgd_dampening", "optimizer.moments"},
            "optimizer.sgd_momentum is 0");
  keys.when(sgd, {"optimizer.momentum", "optimizer.nesterov"},
            "optimizer.kind is sgd, whose keys are sgd_momentum and sgd_nesterov");
  keys.when(
      optimizer.kind != OptimizerKind::ademamix,
      {"optimizer.beta3", "optimizer.alpha", "optimizer.alpha_warmup", "optimizer.beta3_warmup"},
      "optimizer.kind is not ademamix");
  const bool muon = optimizer.kind == OptimizerKind::muon;
  keys.when(!muon && !sgd, {"optimizer.momentum", "optimizer.nesterov"},
            "optimizer.kind is not muon");
  keys.when(!muon, {"optimizer.muon_scale", "optimizer.muon_coefficients", "optimizer.muon_steps"},
            "optimizer.kind is not muon");
}

void add_unused_of_preference(const Config& config, UnusedKeys& keys) {
  const PreferenceLoss loss = config.preference.loss;
  const bool none = loss == PreferenceLoss::none;
  keys.when(none,
            {"preference.more_losses", "preference.loss_weights", "preference.beta",
             "preference.label_smoothing", "preference.simpo_gamma", "preference.cpo_alpha",
             "preference.alpha", "preference.desirable_weight", "preference.undesirable_weight",
             "preference.sft_weight", "preference.ld_alpha", "preference.use_weighting",
             "preference.f_divergence_type", "preference.f_alpha_divergence_coef",
             "preference.max_length", "preference.shared_prompt", "preference.reference"},
            "preference.loss is none");
  keys.when(!none && config.preference.f_divergence_type != Divergence::alpha_divergence,
            {"preference.f_alpha_divergence_coef"},
            "preference.f_divergence_type is not alpha_divergence");
  keys.when(!none && !reads_labels(loss),
            {"preference.desirable_weight", "preference.undesirable_weight"},
            "preference.loss is not kto or apo_zero_unpaired");
  keys.when(!none && loss != PreferenceLoss::simpo, {"preference.simpo_gamma"},
            "preference.loss is not simpo");
  keys.when(!none && !reads_alpha(loss), {"preference.cpo_alpha"},
            "preference.loss is not cpo, cpo_hinge, cpo_ipo or simpo");
  keys.when(!none && !has_reference(loss), {"preference.reference"},
            "preference.loss needs no reference");
}

void add_unused_of_weights(const RlConfig& rl, UnusedKeys& keys) {
  keys.when(kl_of(rl) == 0, {"rl.reference", "rl.kl_correction", "rl.kl_estimator"}, "rl.kl is 0");
  const bool rloo = rl.loss == PolicyLoss::rloo, soft = rl.loss == PolicyLoss::sapo,
             cispo = rl.loss == PolicyLoss::cispo, vespo = rl.loss == PolicyLoss::vespo,
             gmpo = rl.loss == PolicyLoss::gmpo;
  keys.when(
      rloo,
      {"rl.scale_rewards", "rl.kl_correction", "rl.kl_estimator", "rl.importance_sampling_level"},
      "rl.loss is rloo");
  keys.when(soft, {"rl.clip", "rl.clip_high"}, "rl.loss is sapo");
  keys.when(soft || cispo || vespo || gmpo, {"rl.delta"}, "rl.loss is sapo, cispo, vespo or gmpo");
  keys.when(vespo, {"rl.clip", "rl.clip_high"}, "rl.loss is vespo");
  keys.when(gmpo, {"rl.kl_correction", "rl.sampler_correction", "rl.sampler_clip"},
            "rl.loss is gmpo");
  keys.when(vespo || gmpo, {"rl.importance_sampling_level"},
            "rl.loss is vespo or gmpo, whose ratios are those of whole answers");
  keys.when(!vespo,
            {"rl.vespo_k_pos", "rl.vespo_lambda_pos", "rl.vespo_k_neg", "rl.vespo_lambda_neg"},
            "rl.loss is not vespo");
  keys.when(rl.sampler_correction == SamplerCorrection::none, {"rl.sampler_clip"},
            "rl.sampler_correction is none");
}

/// Keys of losses that are functions of log-probabilities and advantages.
const std::vector<std::string> kKeysOfWeights = {"rl.clip",
                                                 "rl.clip_high",
                                                 "rl.delta",
                                                 "rl.kl",
                                                 "rl.kl_correction",
                                                 "rl.kl_estimator",
                                                 "rl.reference",
                                                 "rl.scale_rewards",
                                                 "rl.reward_sum",
                                                 "rl.entropy_coef",
                                                 "rl.mask_truncated",
                                                 "rl.importance_sampling_level",
                                                 "rl.sampler_clip",
                                                 "rl.vespo_k_pos",
                                                 "rl.sampler_correction",
                                                 "rl.vespo_k_neg",
                                                 "rl.off_policy_mask",
                                                 "rl.vespo_lambda_pos",
                                                 "rl.batch_invariant",
                                                 "rl.vespo_lambda_neg",
                                                 "rl.top_entropy_quantile"};

void add_unused_of_rl(const Config& config, UnusedKeys& keys) {
  const RlConfig& rl = config.rl;
  const bool none = rl.loss == PolicyLoss::none;
  keys.when(!weighs_answers(rl), kKeysOfWeights, "rl.loss is distill");
  keys.when(rl.loss != PolicyLoss::distill, {"distill.lmbda"}, "rl.loss is not distill");
  keys.when(none, kKeysOfWeights, "rl.loss is none");
  keys.when(none,
            {"rl.group", "rl.reward_weights", "rl.temperature", "rl.max_tokens", "rl.iterations",
             "rl.steps_per_generation", "rl.rewards", "rl.reward_program", "rl.reward_workers",
             "rl.reward_timeout", "rl.hold_weights", "rl.overlong_buffer", "rl.sampling_attempts"},
            "rl.loss is none");
  keys.when(!none && rl.reward_program.empty(), {"rl.reward_workers", "rl.reward_timeout"},
            "rl.reward_program is empty");
  keys.when(!none && !rewards_length(rl), {"rl.overlong_buffer"}, "rl.rewards has no overlong");
  if (!none && weighs_answers(rl)) add_unused_of_weights(rl, keys);
}

/// Of [data], and of the validation with a part of it.
void add_unused_of_data(const Config& config, UnusedKeys& keys) {
  keys.when(config.data.jsonl.empty(),
            {"data.chat_template", "data.chat_template_args", "data.excess_length_strategy",
             "data.mask_history", "data.train_on_prompt"},
            "data.jsonl is not set");
  keys.when(!config.data.jsonl.empty(), {"data.documents"},
            "documents of data.jsonl are always separate");
  keys.when(!config.data.jsonl.empty() && config.rl.loss == PolicyLoss::none, {"data.eod"},
            "documents of data.jsonl are always separate");
  keys.when(config.data.jsonl.empty() && config.data.documents == DocumentMode::joined &&
                config.training.goldfish.k == 0,
            {"data.eod"}, "data.documents is joined");
  const bool reads_text = std::ranges::any_of(
      stages_of(config), [](const Config& stage) { return !stage.data.text.empty(); });
  keys.when(!reads_text, {"data.text_field"}, "data.text is not set");
  const std::string& validation = config.data.validation;
  const bool no_validation = validation.empty() || parse_real(validation) == 0.0;
  keys.when(
      no_validation,
      {"training.eval_every", "training.eval_batches", "training.patience", "checkpoint.best"},
      "data.validation is none; set it to a fraction such as 0.1, or to a file");
  keys.when(!no_validation && config.training.eval_every == 0,
            {"training.patience", "checkpoint.best"},
            "training.eval_every is 0, so that only the last step is validated");
}

void add_unused_of_types(const TrainingConfig& training, UnusedKeys& keys) {
  keys.when(training.dtype == DType::f32, {"training.logits_dtype"}, "training.dtype is f32");
  const bool scales = training.dtype == DType::f16, fixed = training.loss_scale.fixed > 0;
  keys.when(!scales, {"training.loss_scale.fixed"}, "training.dtype is not f16");
  keys.when(!scales || fixed,
            {"training.loss_scale.initial", "training.loss_scale.min", "training.loss_scale.window",
             "training.loss_scale.hysteresis"},
            scales ? "training.loss_scale.fixed is set" : "training.dtype is not f16");
}

void add_unused_of_schedule(const Config& config, UnusedKeys& keys) {
  const ScheduleConfig& schedule = config.lr_scheduler;
  keys.when(schedule.kind == ScheduleKind::constant,
            {"lr_scheduler.min_lr", "lr_scheduler.total_samples"}, "lr_scheduler.kind is constant");
  keys.when(schedule.kind != ScheduleKind::wsd,
            {"lr_scheduler.decay_steps", "lr_scheduler.decay_samples", "lr_scheduler.decay"},
            "lr_scheduler.kind is not wsd");
  keys.when(schedule.counts_samples(),
            {"lr_scheduler.warmup_steps", "lr_scheduler.warmup_ratio", "lr_scheduler.decay_steps"},
            "lr_scheduler counts sequences");
  keys.when(schedule.warmup_ratio > 0, {"lr_scheduler.warmup_steps"},
            "lr_scheduler.warmup_ratio gives its value");
  keys.when(config.training.epochs > 0, {"training.steps"},
            "the data give its value by training.epochs");
  const TrainingConfig& training = config.training;
  const bool fixed_scale = training.dtype == DType::f16 && training.loss_scale.fixed > 0;
  keys.when(training.skip_outliers == 0 && training.skip_deviations == 0 && !fixed_scale,
            {"training.skip_most"}, "training.skip_outliers and training.skip_deviations are 0");
}

void add_unused_of_checkpoints(const CheckpointConfig& checkpoint, UnusedKeys& keys) {
  keys.when(checkpoint.keep == 0, {"checkpoint.keep_factor"}, "checkpoint.keep is 0: all");
  keys.when(checkpoint.local_every == 0, {"checkpoint.local_folder", "checkpoint.local_node_ranks"},
            "checkpoint.local_every is 0");
}

void add_unused_of_device(DeviceKind device, UnusedKeys& keys) {
  keys.when(device == DeviceKind::cpu || device == DeviceKind::hip, {"training.attention"},
            "parallelism.device is not cuda");
  keys.when(device == DeviceKind::cpu, {"parallelism.collective_blocks"},
            "parallelism.device is cpu");
  keys.when(device == DeviceKind::cpu || device == DeviceKind::hip,
            {"parallelism.spare_multiprocessors"}, "parallelism.device is not cuda");
  keys.when(is_gpu(device),
            {"training.verify_state", "training.verify_products", "training.verify_operations",
             "training.verify_values"},
            "parallelism.device is a GPU, which has no such checksums yet");
}

/// Of recomputation and offloading.
void add_unused_of_memory(const Config& config, UnusedKeys& keys) {
  const RecomputeConfig& recompute = config.activation_checkpoint;
  keys.when(recompute.mode == RecomputeMode::none && recompute.budget == 0,
            {"activation_checkpoint.keep_dispatch"}, "activation_checkpoint.mode is none");
  keys.when(recompute.mode == RecomputeMode::full && recompute.budget == 0,
            {"activation_checkpoint.blocks"}, "activation_checkpoint.mode is full");
  keys.when(recompute.mode != RecomputeMode::values && recompute.budget == 0,
            {"activation_checkpoint.values", "activation_checkpoint.first_values"},
            "activation_checkpoint.mode is not values");
  keys.when(recompute.blocks == 0 && recompute.budget == 0, {"activation_checkpoint.first_values"},
            "activation_checkpoint.blocks is 0");
  keys.when(config.offload.dir.empty(),
            {"offload.parameters", "offload.gradients", "offload.optimizer"},
            "offload.dir is empty");
}

}  // namespace

KeyReasons unused_keys(const Config& config) {
  const ParallelismConfig& parallelism = config.parallelism;
  const bool planned = parallelism.automatic();
  const GridShape grid = planned || parallelism.named_grid.empty()
                             ? parallelism.grid()
                             : parse_grid(parallelism.named_grid);
  UnusedKeys keys;
  Config listed = config;
  OptionList list;
  list_options(listed, list);
  for (const OptionList::Section& section : list.sections())
    for (const Option& option : section.options)
      if (const std::string reason = option.unused(); !reason.empty())
        keys.when(true, {option.key()}, reason);
  add_unused_of_experts(config, keys);
  add_unused_of_data(config, keys);
  add_unused_of_preference(config, keys);
  add_unused_of_rl(config, keys);
  keys.when(config.distill.teacher.empty(),
            {"distill.beta", "distill.temperature", "distill.top_k"}, "distill.teacher is not set");
  keys.when(config.samples.prompts.empty(),
            {"samples.chat", "samples.every", "samples.tokens", "samples.temperature",
             "samples.hold_weights"},
            "samples.prompts is empty");
  keys.when(config.training.goldfish.k == 0, {"training.goldfish.h", "training.goldfish.mask"},
            "training.goldfish.k is 0");
  keys.when(config.training.max_norm == 0, {"training.norm_type"}, "training.max_norm is 0");
  add_unused_of_types(config.training, keys);
  keys.when(!config.training.tune, {"training.tune_cache"}, "training.tune is false");
  add_unused_of_checkpoints(config.checkpoint, keys);
  add_unused_of_memory(config, keys);
  add_unused_of_device(parallelism.device, keys);
  add_unused_of_optimizer(config.optimizer, keys);
  add_unused_of_schedule(config, keys);
  keys.when(parallelism.collective_blocks == 0, {"parallelism.spare_multiprocessors"},
            "parallelism.collective_blocks is 0");
  keys.when(!planned && parallelism.collectives != CollectivesKind::automatic,
            {"parallelism.machine"},
            "neither parallelism.grid nor parallelism.collectives is auto");
  keys.when(!planned && grid.x == 1 && grid.y == 1, {"parallelism.sequence_parallel"},
            "parallelism.x and parallelism.y are 1");
  keys.when(parallelism.context == 1, {"parallelism.context_layout", "parallelism.overlap_context"},
            "parallelism.context is 1");
  keys.when(!planned && grid.z == 1, {"parallelism.keep_weights"}, "parallelism.z is 1");
  keys.when(!planned && grid.ranks() == 1,
            {"parallelism.reduce_dtype", "parallelism.overlap_input_gradients",
             "parallelism.overlap_weight_gradients", "parallelism.overlap_weights",
             "parallelism.overlap_data", "parallelism.verify_messages",
             "parallelism.collective_blocks", "parallelism.spare_multiprocessors"},
            "there is only one rank");
  return keys.found;
}

}  // namespace axonn
