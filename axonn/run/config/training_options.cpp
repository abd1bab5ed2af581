// The keys of [training].
#include "axonn/run/config/config_options.h"

namespace axonn {

namespace {

constexpr std::string_view kLogitsTypes[] = {"auto", "f32", "bf16", "f16"};
constexpr std::string_view kAttentionKinds[] = {"auto", "cudnn", "own"};

/// Part of [training]: searches for silent corruption.
void list_verification(TrainingConfig& training, OptionList& list) {
  list.add(
      "verify_every", &training.verify_every,
      {.help = "interval between searches for silent corruption: ranks compare, to the bit, the "
               "weights and optimizer state that several hold, and every result of a "
               "micro-batch's forward pass, computed twice; a difference ends the run and "
               "names the rank; 0: none",
       .unit = "steps",
       .min = 0,
       .also = "sdc_check rerun_mode"});
  list.add("verify_state", &training.verify_state,
           {.help = "whether ranks keep checksums of weights and optimizer state from each update "
                    "to the next one; a bit that flips between is set right, several end the run "
                    "before its next checkpoint; both name rank and parameter"});
  list.add(
      "verify_products", &training.verify_products,
      {.help = "whether each matrix product on a CPU is compared with what its operands give "
               "for sums over its rows; a result that is wrong by more than rounding is computed "
               "again, and if it is wrong once more, ends the run; both name rank, layer and "
               "product; steps take longer",
       .also = "abft"});
  list.add("verify_operations", &training.verify_operations,
           {.help = "whether each operation and each collective is done twice on CPUs, and the "
                    "results are compared to the bit; of an operation, two of three that agree "
                    "are taken; other differences end the run, and name rank, layer and operation; "
                    "steps take more than twice as long",
            .also = "redundant lockstep"});
  list.add("verify_values", &training.verify_values,
           {.help = "whether checksums are kept of all that operations and collectives write to "
                    "the memory of a CPU, until it is read; a bit that flips between is set right, "
                    "and more end the run, and name rank, layer and operation; steps take longer",
            .also = "memory ecc scrub"});
}

/// Part of [training].
void list_computation(TrainingConfig& training, OptionList& list) {
  list.add("deterministic", &training.deterministic,
           {.help = "whether the same run twice gives the same bits, on the same model of GPU with "
                    "the same libraries; false: on NVIDIA GPUs, attention may use faster cuDNN "
                    "kernels that do not guarantee this",
            .also = "deterministic_mode"});
  list.add(
      "logits_dtype", training.logits_dtype, kLogitsTypes,
      {.help = "type of the logits in training with dtype bf16 or f16, if x and y are 1 "
               "(otherwise f32); that dtype halves the time that memory takes for them; auto: "
               "dtype on GPUs, f32 on CPUs; losses and softmax are computed in f32 from either"});
  list_verification(training, list);
  list.add("skip_outliers", &training.skip_outliers,
           {.help = "steps whose loss or gradient norm exceeds this multiple of its running mean "
                    "are skipped: they change no weight and do not count in the optimizer's bias "
                    "corrections; a loss that is not finite ends the run; above 1, or 0: no step "
                    "is skipped",
            .min = 0});
  list.add("skip_deviations", &training.skip_deviations,
           {.help = "likewise, steps whose loss or gradient norm exceeds its mean over the last "
                    "128 steps by more than this many standard deviations, such as 6; from the "
                    "64th step on; 0: no step is skipped",
            .min = 0,
            .also = "sigma_factor skip_step_sigma"});
  list.add("skip_most", &training.skip_most,
           {.help = "number of skipped steps in a row that ends the run, because it learns nothing",
            .min = 1});
  list.add("threads", &training.threads,
           {.help = "compute threads per rank; 0: the cores that the rank may use, divided by the "
                    "ranks that share them",
            .min = 0,
            .max = 4096,
            .also = "omp_num_threads num_threads"});
  list.add("bind_cores", &training.bind_cores,
           {.help = "whether ranks that share cores are each bound to a part of them; what a "
                    "launcher or OMP_PROC_BIND has bound stays as it is",
            .also = "cpu_bind numa_bind pin_threads"});
}

/// Part of [training].
void list_loss_scale(LossScaleConfig& scale, OptionList& list) {
  list.add("loss_scale.fixed", &scale.fixed,
           {.help = "with dtype f16, factor of the loss in the backward pass, by which gradients "
                    "are divided before they are clipped; a step whose gradients overflow changes "
                    "no weight; 0: the factor is dynamic",
            .min = 0,
            .also = "loss_scale static_loss_scale"});
  list.add("loss_scale.initial", &scale.initial,
           {.help = "the first dynamic factor; it is halved after a step that overflows",
            .min = 0,
            .also = "initial_loss_scale init_scale initial_scale_power"});
  list.add("loss_scale.min", &scale.min,
           {.help = "the smallest dynamic factor: if an overflow would lower it further, the run "
                    "ends with an error",
            .min = 0,
            .also = "min_loss_scale"});
  list.add("loss_scale.window", &scale.window,
           {.help = "steps in a row without overflow after which the dynamic factor doubles",
            .unit = "steps",
            .min = 1,
            .also = "loss_scale_window growth_interval"});
  list.add(
      "loss_scale.hysteresis", &scale.hysteresis,
      {.help = "number of overflows, since the dynamic factor last doubled, from which on each "
               "halves it",
       .min = 1,
       .also = "hysteresis"});
}

/// Part of [training].
void list_balance(BalanceConfig& balance, OptionList& list) {
  list.add("balance.scope", balance.scope, kBalanceScopes,
           {.help = "tokens over which the balance loss takes its means: each sequence; batch, a "
                    "micro-batch of all ranks; hugging_face, the same over all layers together",
            .also = "moe_router_load_balancing_type"});
  list.add("balance.weight", &balance.weight,
           {.help = "weight of the balance loss, which is 1 if the experts of a layer are equally "
                    "busy; 0: none",
            .min = 0,
            .also = "router_aux_loss_coef moe_aux_loss_coeff aux_loss_alpha"});
  list.add("balance.z", &balance.z,
           {.help = "weight of the mean squared logarithm of the sum of the exponentials of a "
                    "router's logits; 0: none",
            .min = 0,
            .also = "moe_z_loss_coeff router_z_loss_coef"});
  list.add("balance.bias", &balance.bias,
           {.help = "amount by which each step raises the router's bias of experts with fewer "
                    "tokens than the mean, and lowers that of the others; 0: the bias stays",
            .min = 0,
            .also = "moe_router_bias_update_rate bias_update_speed"});
  list.add(
      "balance.expected_load", &balance.expected_load,
      {.help = "tokens of the rank with the busiest experts over the mean, for which plans and "
               "dry runs count time and memory; training does not read it",
       .min = 1});
}

void list_details(TrainingConfig& training, OptionList& list) {
  GoldfishConfig& goldfish = training.goldfish;
  list.add("goldfish.k", &goldfish.k,
           {.help = "goldfish loss: one target in k is left out of the loss, so that no passage is "
                    "memorized word for word; at least 2, or 0: every target counts",
            .min = 0,
            .also = "goldfish_k goldfish_loss"});
  list.add("goldfish.h", &goldfish.h,
           {.help = "length of the text before a target whose hash decides whether the target is "
                    "left out; the first h tokens of each document and each sequence always count "
                    "(h - 1 targets of a sequence, whose first token is none); with the mask "
                    "apertus only those of each sequence",
            .unit = "tokens",
            .min = 1,
            .also = "goldfish_h goldfish_context_width"});
  list.add("goldfish.mask", goldfish.mask, kGoldfishMasks,
           {.help = "how targets are left out; hash: by a hash of the h tokens before; static: "
                    "every k-th; seeded: at random, anew in each epoch; apertus: by the product "
                    "of h tokens, the target the last of them, as Apertus was trained",
            .also = "goldfish_strategy"});
  list_balance(training.balance, list);
  list.add(
      "mtp_weight", &training.mtp_weight,
      {.help = "weight of the mean loss of the further tokens that model.mtp_layers predict; "
               "the reported loss leaves it out; DeepSeek-V3 had 0.3, and 0.1 in the last third "
               "of its training",
       .above = 0,
       .also = "mtp_loss_scaling_factor mtp_loss_weight lambda_mtp"});
  list.add("z_loss", &training.z_loss,
           {.help = "weight of the mean squared logarithm of the sum of the exponentials of the "
                    "output logits, which keeps them small, such as 1e-4; the reported loss leaves "
                    "it out; 0: none",
            .min = 0,
            .also = "z_loss_weight z_loss_multiplier softmax_auxiliary_loss"});
  list.add(
      "attention", training.attention, kAttentionKinds,
      {.help = "implementation of attention on NVIDIA GPUs; cudnn: an error where cuDNN cannot "
               "compute it; own: axonn's kernels; auto: cuDNN where possible, else axonn's kernels",
       .also = "attn_implementation attention_backend flash_attention"});
  list.add("tune", &training.tune,
           {.help = "whether to time several ways of computing each matrix product before the "
                    "first step, and keep the fastest",
            .also = "autotune kernel_tuning"});
  list.add("tune_cache", &training.tune_cache,
           {.help = "file that stores tuning results for later runs; empty: axonn/products.json in "
                    "$XDG_CACHE_HOME or ~/.cache"});
  list.add(
      "cuda_graph", &training.cuda_graph,
      {.help =
           "whether to capture a step's GPU work as CUDA graphs in the second step and launch them "
           "from then on: the same bits, with less work for the CPU; several ranks need nccl",
       .also = "cuda_graphs enable_cuda_graph capture"});
}

/// Part of [training].
void list_batch(TrainingConfig& training, OptionList& list) {
  list.add(
      "global_batch", &training.global_batch,
      {.help =
           "batch of one optimizer step over all ranks, which the (z, data) coordinates share; if "
           "a share is larger than micro_batch, gradients are accumulated over several "
           "micro-batches. The last shares are filled up to as many with padding, which counts in "
           "nothing",
       .unit = "sequences",
       .min = 1,
       .required = true,
       .also = "batch_size global_batch_size total_batch_size"});
  list.add("batch_ramp", &training.batch_ramp,
           {.help = "smaller batches at the start, as \"start increment sequences\": the batch "
                    "rises from start to global_batch in equal parts of the first sequences",
            .also = "rampup_batch_size batch_size_warmup"});
  list.add("batch_stages", &training.batch_stages,
           {.help = "smaller batches at the start, each as \"batch sequences\": the batch until "
                    "the run has consumed that many sequences, such as \"1024 2000000\"; then "
                    "global_batch",
            .also = "batch_size_schedule"});
  list.add("micro_batch", &training.micro_batch,
           {.help = "sequences that one (z, data) coordinate computes at a time; 0: the most that "
                    "every step can: all of its share, without accumulation, unless batches change",
            .unit = "sequences",
            .min = 0,
            .also = "micro_batch_size local_batch_size batch_size per_device_train_batch_size "
                    "per_device_eval_batch_size train_micro_batch_size_per_gpu"});
}

void list_clipping(TrainingConfig& training, OptionList& list) {
  list.add("max_norm", &training.max_norm,
           {.help = "gradients are scaled down if their global norm exceeds this; 0: no clipping",
            .min = 0,
            .also = "grad_clip clip_grad max_grad_norm gradient_clipping gradient_clip_val"});
  list.add(
      "norm_type", &training.norm_type,
      {.help = "p of the norm that max_norm limits: 1 for the sum of sizes, inf for the largest "
               "size; the reported norm is always that of p = 2",
       .min = 1,
       .max = 32,
       .infinity = true,
       .also = "grad_norm_type"});
  list.add("clip_value", &training.clip_value,
           {.help = "each element of a gradient is clipped to at most this size, in place of the "
                    "norm, so that max_norm must be 0; 0: no clipping of elements",
            .min = 0,
            .also = "clip_grad_value"});
}

}  // namespace

void list_training(TrainingConfig& training, OptionList& list) {
  list.section("training", "The length of the run, its batch, and how it computes");
  list.add("steps", &training.steps,
           {.help = "number of optimizer steps in the whole run; a resumed run does those that are "
                    "left; 0: as many as training.epochs needs",
            .min = 0,
            .also = "max_iters train_iters max_steps num_iterations"});
  list.add("epochs", &training.epochs,
           {.help = "number of times that the run reads its training data, such as 3 or 0.5, in "
                    "place of steps: it has the fewest steps that read them so often; 0: steps "
                    "is set",
            .min = 0,
            .also = "num_train_epochs num_epochs"});
  list.add("seq_len", &training.seq_len,
           {.help = "length of each training sequence",
            .unit = "tokens",
            .min = 1,
            .required = true,
            .also = "block_size seq_length sequence_length sequence_len context_length "
                    "max_seq_length max_seq_len max_length cutoff_len model_max_length"});
  list_batch(training, list);
  list.add(
      "dtype", training.dtype, kComputeTypes,
      {.help = "type of activations and matrix products; sums and master weights are always f32; "
               "f16, for GPUs without bf16, scales the loss (loss_scale.fixed to "
               "loss_scale.hysteresis)",
       .also = "precision bf16 fp16 mixed_precision_param"});
  list.add(
      "seed", &training.seed,
      {.help = "seed of all random numbers: initial weights, sample order, dropout, synthetic text",
       .min = 0});
  list_loss_scale(training.loss_scale, list);
  list_clipping(training, list);
  list.add("eval_every", &training.eval_every,
           {.help = "interval between evaluations of the validation loss; with data.validation the "
                    "last step is always evaluated; 0: only that one",
            .unit = "steps",
            .min = 0,
            .also = "eval_interval val_loss_every eval_steps"});
  list.add("eval_batches", &training.eval_batches,
           {.help = "number of global batches in one evaluation; 0: all of the validation data",
            .min = 0,
            .also = "eval_iters val_max_steps"});
  list.add("patience", &training.patience,
           {.help = "number of validations in a row without a lower loss after which the run ends, "
                    "with a checkpoint (early stopping); 0: it does not end early",
            .min = 0,
            .also = "early_stopping_patience early_stopping"});
  list_computation(training, list);
  list_details(training, list);
}

namespace {

/// Keys that losses of pairs with a reference read.
void list_dpo(PreferenceConfig& preference, OptionList& list) {
  list.add(
      "sft_weight", &preference.sft_weight,
      {.help = "losses of pairs with a reference: weight of the mean loss of the chosen answers' "
               "tokens, which is added; 0: none",
       .min = 0,
       .also = "rpo_alpha pref_ftx"});
  list.add(
      "ld_alpha", &preference.ld_alpha,
      {.help = "losses of pairs with a reference: weight, from 0 to 1, of the tokens of an answer "
               "beyond the length of the pair's shorter one (LD-DPO); 1: as all others",
       .min = 0});
  list.add("use_weighting", &preference.use_weighting,
           {.help = "losses of pairs with a reference: whether a pair counts the more the likelier "
                    "the model finds its answers (WPO); costs a second pass over them"});
  list.add(
      "f_divergence_type", preference.f_divergence_type, kDivergences,
      {.help = "dpo, cdpo, ipo, hinge, robust, sigmoid_norm, exo_pair and discopop: divergence "
               "between model and reference that the loss limits (f-DPO)"});
  list.add("f_alpha_divergence_coef", &preference.f_alpha_divergence_coef,
           {.help = "alpha of alpha_divergence"});
  list.add("max_length", &preference.max_length,
           {.help = "tokens of prompt and answer that are kept, from the first one on; lines whose "
                    "prompt leaves none for an answer are left out; 0: all",
            .min = 0,
            .also = "max_prompt_length cutoff_len"});
  list.add(
      "shared_prompt", &preference.shared_prompt,
      {.help = "whether a sequence has the prompt of its two answers once, which is faster and "
               "takes less memory, so that training.seq_len can be smaller; not with "
               "parallelism.context, nor with delta nets"});
}

}  // namespace

void list_preference(PreferenceConfig& preference, OptionList& list) {
  list.section(
      "preference",
      "Learning from answers of which some are better than others, in place of the losses "
      "of tokens; lines of data.jsonl then have \"prompt\", \"chosen\" and \"rejected\", or, "
      "for kto and apo_zero_unpaired, \"prompt\", \"completion\" and \"label\"");
  list.add(
      "loss", preference.loss, kPreferenceLosses,
      {.help = "loss of a pair or, kto and apo_zero_unpaired, of an answer with a label; none: "
               "data.jsonl holds examples; cpo, cpo_hinge, cpo_ipo, simpo and orpo need no "
               "reference",
       .also = "loss_type pref_loss rl dpo"});
  list.add("more_losses", &preference.more_losses,
           {.help = "losses of pairs with a reference that are added to loss, such as "
                    "[\"bco_pair\"]; that of the chosen answers' tokens is sft_weight"});
  list.add("loss_weights", &preference.loss_weights,
           {.help = "factors of loss and of each of more_losses; empty: 1 each"});
  list.add("beta", &preference.beta,
           {.help = "how strongly the loss holds the model to the reference, or, without one, how "
                    "steep it is",
            .also = "pref_beta dpo_beta"});
  list.add("label_smoothing", &preference.label_smoothing,
           {.help = "share of the pairs that are taken to be the wrong way round; less than 0.5; "
                    "read by cdpo, robust, exo_pair, aot, aot_unpaired, cpo and simpo",
            .min = 0});
  list.add("simpo_gamma", &preference.simpo_gamma,
           {.help = "simpo: by how much the chosen answer's mean log-probability, times beta, "
                    "shall exceed that of the rejected one"});
  list.add(
      "cpo_alpha", &preference.cpo_alpha,
      {.help = "losses of cpo, and simpo: weight of the mean loss of the chosen answers' tokens, "
               "which is added; 0, as in SimPO's paper: none",
       .min = 0});
  list.add("alpha", &preference.alpha,
           {.help = "losses of cpo, and simpo: AlphaPO's rewards (1 - p^-alpha) / alpha of the "
                    "probability p; 0: its logarithm"});
  list.add("desirable_weight", &preference.desirable_weight,
           {.help = "kto and apo_zero_unpaired: weight of the loss of good answers; with more of "
                    "one kind, raise the "
                    "weight of the other",
            .min = 0});
  list.add("undesirable_weight", &preference.undesirable_weight,
           {.help = "kto and apo_zero_unpaired: weight of the loss of bad answers", .min = 0});
  list_dpo(preference, list);
  list.add("reference", &preference.reference,
           {.help = "model that the loss compares with, a Hugging Face folder or checkpoints; its "
                    "log-probabilities are computed once, before training; empty: model.path",
            .also = "ref_model reference_model"});
}

void list_distill(DistillConfig& distill, OptionList& list) {
  list.section("distill",
               "Learning from the distributions of a teacher, in place of the losses of tokens");
  list.add("teacher", &distill.teacher,
           {.help = "model whose distribution of each next token that counts is learned, a Hugging "
                    "Face folder or checkpoints, with the same tokens; it is cut as the model is; "
                    "empty: there is none",
            .also = "teacher_model teacher_model_name_or_path"});
  list.add("beta", &distill.beta,
           {.help = "divergence: 0 is that from the teacher (forward KL), 1 that from the model "
                    "(reverse KL), between them beta KL(T, M) + (1 - beta) KL(S, M) with the "
                    "mixture M = (1 - beta) S + beta T",
            .min = 0,
            .also = "jsd"});
  list.add("temperature", &distill.temperature,
           {.help = "by which the logits of both are divided; the loss is not multiplied by its "
                    "square",
            .also = "kd_temperature"});
  list.add("top_k", &distill.top_k,
           {.help = "so many of the teacher's likeliest tokens count by themselves, and all others "
                    "together as one; 0: all by themselves",
            .min = 0,
            .also = "loss_top_k"});
  list.add(
      "lmbda", &distill.lmbda,
      {.help = "rl.loss = distill: share of the generations whose answers the run writes, drawn "
               "at random; others have the answers of data.jsonl, in which, below 1, each line "
               "has one",
       .min = 0,
       .also = "lambda student_data_fraction"});
}

}  // namespace axonn
