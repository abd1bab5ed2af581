// The table of all keys but [model] and [lora]. Parsing, help, --print-config, config.toml and
// docs/configuration.md are made from it.
#include "axonn/train/config_options.h"

#include <algorithm>

#include "axonn/base/check.h"
#include "axonn/model/model.h"
#include "axonn/options/options_text.h"
#include "axonn/train/unused_keys.h"

namespace axonn {

namespace {

constexpr std::string_view kComputeTypes[] = {"f32", "bf16"};
constexpr std::string_view kOptimizerKinds[] = {"adamw", "sgd"};
constexpr std::string_view kScheduleKinds[] = {"constant", "linear", "cosine", "wsd"};
constexpr std::string_view kTransportKinds[] = {"auto", "threads", "mpi", "nccl"};
constexpr std::string_view kCollectivesKinds[] = {"auto", "flat", "two-level"};
constexpr std::string_view kAttentionKinds[] = {"auto", "cudnn", "own"};

/// Largest extent of one axis: more ranks than any machine has.
constexpr double kMostRanks = 1 << 20;

void list_data(DataConfig& data, OptionList& list) {
  list.section(
      "data", "The source of tokens; exactly one of text, tokens, jsonl and synthetic must be set");
  list.add("text", &data.text,
           {.help = "text to train on: files, folders (every .txt and .jsonl file below them) or "
                    "patterns such as *.txt; a file of text is a document, and so is each line of "
                    "a .jsonl, .ndjson or .json file; all may be compressed with gzip or Zstandard",
            .also = "dataset data_path input train_file"});
  list.add("text_field", &data.text_field,
           {.help = "key of a line of JSON in data.text whose value is the document",
            .also = "json_keys json_key text_column dataset_text_field"});
  list.add("tokens", &data.tokens,
           {.help = "tokenised text to train on: llm.c's .bin files or Megatron's path prefixes; "
                    "or a weighted blend of them, \"w1 path1 w2 path2\"",
            .also = "token_file train_bin"});
  list.add("jsonl", &data.jsonl,
           {.help = "JSONL files for fine-tuning, also compressed (.gz, .zst), each line text, or "
                    "prompt and completion, or "
                    "messages; a sequence is packed with several; only completions and the "
                    "assistant's messages are learned",
            .also = "conversations sft_file chat_data train_jsonl"});
  list.add(
      "chat_template", &data.chat_template,
      {.help = "template that turns messages into text: chatml, llama3, llama3.1, llama2, or a "
               ".jinja file; auto: the template in the tokenizer's folder, or chatml if tokenizer "
               "is \"bytes\"",
       .also = "template"});
  list.add("chat_template_args", &data.chat_template_args,
           {.help = "variables of the chat template, as JSON: '{\"enable_thinking\": false}'; "
                    "strftime_now: the date that it writes as today's, \"2024-07-26\"",
            .also = "chat_template_kwargs template_kwargs"});
  list.add("synthetic", &data.synthetic,
           {.help = "amount of text to generate and train on; it states made-up facts; 0: none",
            .unit = "bytes",
            .min = 0,
            .also = "mock_data"});
  list.add(
      "tokenizer", &data.tokenizer,
      {.help = "\"bytes\" (each byte is a token), or a tokenizer: a folder with tokenizer.json, "
               "with vocab.json and merges.txt, or with tokenizer.model, or one of these files; "
               "\"bytes\" gives way to the tokenizer of the model at model.path, and where that is "
               "not known, must be set",
       .also = "tokenizer_path tokenizer_type"});
  list.add("validation", &data.validation,
           {.help = "validation data: a fraction of the training data, held out from the end of "
                    "each source, or a file; 0 or empty: none, all data are trained on",
            .or_number = true,
            .also = "val_file split validation_file"});
  list.add("shuffle", &data.shuffle,
           {.help = "whether sequences come in a new random order each epoch; false: in the order "
                    "of the files"});
}

/// Part of [training].
void list_computation(TrainingConfig& training, OptionList& list) {
  list.add("deterministic", &training.deterministic,
           {.help = "whether the same run twice gives the same bits; false: on NVIDIA GPUs, "
                    "attention may use faster cuDNN kernels that do not guarantee this",
            .also = "deterministic_mode"});
  list.add(
      "verify_every", &training.verify_every,
      {.help = "interval between searches for silent corruption: ranks compare, to the bit, the "
               "weights and optimizer state that several hold, and every result of a "
               "micro-batch's forward pass, computed twice; a difference ends the run and "
               "names the rank; 0: none",
       .unit = "steps",
       .min = 0,
       .also = "sdc_check rerun_mode"});
  list.add("skip_outliers", &training.skip_outliers,
           {.help = "steps whose loss or gradient norm exceeds this multiple of its running mean "
                    "are skipped: they change no weight; 100 in a row end the run, and so does a "
                    "loss that is not finite; above 1, or 0: no step is skipped",
            .min = 0});
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

void list_training(TrainingConfig& training, OptionList& list) {
  list.section("training", "The length of the run, its batch, and how it computes");
  list.add(
      "steps", &training.steps,
      {.help = "number of optimizer steps in the whole run; a resumed run does those that are left",
       .min = 1,
       .required = true,
       .also = "max_iters train_iters max_steps num_iterations"});
  list.add("seq_len", &training.seq_len,
           {.help = "length of each training sequence",
            .unit = "tokens",
            .min = 1,
            .required = true,
            .also = "block_size seq_length sequence_length context_length"});
  list.add(
      "global_batch", &training.global_batch,
      {.help =
           "batch of one optimizer step over all ranks, a multiple of micro_batch times z times "
           "data; if it is larger than that, gradients are accumulated over several micro-batches",
       .unit = "sequences",
       .min = 1,
       .required = true,
       .also = "batch_size global_batch_size total_batch_size"});
  list.add("micro_batch", &training.micro_batch,
           {.help = "sequences that one (z, data) coordinate computes at a time; 0: all of its "
                    "share of global_batch, without accumulation",
            .unit = "sequences",
            .min = 0,
            .also = "micro_batch_size local_batch_size batch_size"});
  list.add(
      "dtype", training.dtype, kComputeTypes,
      {.help = "type of activations and matrix products; sums and master weights are always f32",
       .also = "precision bf16 fp16 mixed_precision_param"});
  list.add(
      "seed", &training.seed,
      {.help = "seed of all random numbers: initial weights, sample order, dropout, synthetic text",
       .min = 0});
  list.add("max_norm", &training.max_norm,
           {.help = "gradients are scaled down if their global norm exceeds this; 0: no clipping",
            .min = 0,
            .also = "grad_clip clip_grad max_grad_norm gradient_clipping"});
  list.add("eval_every", &training.eval_every,
           {.help = "interval between evaluations of the validation loss; with data.validation the "
                    "last step is always evaluated; 0: only that one",
            .unit = "steps",
            .min = 0,
            .also = "eval_interval val_loss_every"});
  list.add("eval_batches", &training.eval_batches,
           {.help = "number of global batches in one evaluation; 0: all of the validation data",
            .min = 0,
            .also = "eval_iters val_max_steps"});
  list_computation(training, list);
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
                    "left out; the first h targets of each document always count",
            .unit = "tokens",
            .min = 1,
            .also = "goldfish_h goldfish_context_width"});
  list.add("goldfish.mask", goldfish.mask, kGoldfishMasks,
           {.help = "how targets are left out; hash: by a hash of the h tokens before; static: "
                    "every k-th; seeded: at random, anew in each epoch",
            .also = "goldfish_strategy"});
  list_balance(training.balance, list);
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

void list_optimizer(Config& config, OptionList& list) {
  OptimizerConfig& optimizer = config.optimizer;
  list.section("optimizer", "How gradients update the weights");
  list.add("kind", optimizer.kind, kOptimizerKinds,
           {.help = "update rule: adamw, or sgd without momentum", .also = "name"});
  list.add("lr", &optimizer.lr,
           {.help = "peak learning rate, reached at the end of the warm-up",
            .above = 0,
            .required = true,
            .also = "learning_rate max_lr"});
  list.add("beta1", &optimizer.beta1,
           {.help = "decay rate of the running mean of gradients (adamw)",
            .min = 0,
            .below = 1,
            .also = "adam_beta1 betas momentum"});
  list.add("beta2", &optimizer.beta2,
           {.help = "decay rate of the running mean of squared gradients (adamw)",
            .min = 0,
            .below = 1,
            .also = "adam_beta2 betas"});
  list.add(
      "eps", &optimizer.eps,
      {.help = "added to the square root of the second moment before the division by it (adamw)",
       .above = 0,
       .also = "adam_eps epsilon"});
  list.add("weight_decay", &optimizer.weight_decay,
           {.help = "decoupled weight decay of matrices, not of biases and norm weights; 0: none",
            .min = 0,
            .also = "wd"});

  ScheduleConfig& schedule = config.lr_scheduler;
  list.section("lr_scheduler", "How the learning rate changes over the steps");
  list.add("kind", schedule.kind, kScheduleKinds,
           {.help = "learning rate after the warm-up; constant: stays at lr; linear, cosine: falls "
                    "to min_lr at the last step; wsd: stays at lr, then falls linearly to min_lr "
                    "over the last decay_steps",
            .also = "lr_decay_style decay_type"});
  list.add("warmup_steps", &schedule.warmup_steps,
           {.help = "steps in which the learning rate rises linearly to lr; 0: no warm-up",
            .min = 0,
            .also = "warmup_iters lr_warmup_iters num_warmup_steps"});
  list.add("min_lr", &schedule.min_lr,
           {.help = "learning rate at the last step; not used by constant",
            .min = 0,
            .also = "learning_rate_decay_frac"});
  list.add("decay_steps", &schedule.decay_steps,
           {.help = "number of steps of wsd's final decay; 0: a tenth of training.steps",
            .min = 0,
            .also = "lr_decay_iters lr_wsd_decay_iters"});
}

void list_grid(ParallelismConfig& parallelism, OptionList& list) {
  list.section("parallelism",
               "The grid of ranks, of which there are x times y times z times data, and how they "
               "communicate");
  list.add("x", &parallelism.x,
           {.help = "extent of axis x: ranks among which heads, MLP width and vocabulary are cut",
            .min = 1,
            .max = kMostRanks,
            .also = "tensor_parallel_degree tensor_model_parallel_size tp"});
  list.add("y", &parallelism.y,
           {.help = "extent of axis y: ranks among which the model's width is cut",
            .min = 1,
            .max = kMostRanks});
  list.add("z", &parallelism.z,
           {.help = "extent of axis z: ranks that train on different sequences and each store a "
                    "part of the weights, which are gathered for use (FSDP)",
            .min = 1,
            .max = kMostRanks,
            .also = "data_parallel_shard_degree fsdp"});
  list.add("data", &parallelism.data,
           {.help = "extent of axis data: copies of the model, which train on different sequences "
                    "(data parallelism)",
            .min = 1,
            .max = kMostRanks,
            .also = "data_parallel_replicate_degree dp ddp"});
  list.add("grid", &parallelism.named_grid,
           {.help = "the grid as \"x,y,z,data\", in place of the four keys; auto: train uses the "
                    "planner's best grid for all ranks, with its micro-batch and recomputation; a "
                    "resumed run keeps that grid",
            .also = "mesh device_mesh"});
  list.add("machine", &parallelism.machine,
           {.help = "machine that grid = auto plans for, and by whose links collectives = auto "
                    "chooses: a name or a file, as in axonn plan; empty: for the grid, the ranks "
                    "first measure the machine they run on, for some seconds"});
}

void list_context(ParallelismConfig& parallelism, OptionList& list) {
  list.add("context", &parallelism.context,
           {.help = "number of neighbours along z that share sequences, of which each computes a "
                    "part of the positions; divides z, so the batch is cut into z / context x data "
                    "parts. For sequences too long for one rank",
            .min = 1,
            .also = "context_parallel context_parallel_size context_parallel_degree cp "
                    "cp_size sequence_parallel_size ulysses_degree"});
  list.add(
      "context_layout", parallelism.context_layout, kContextLayouts,
      {.help = "which positions each rank of a context has: zigzag, an early and a late run "
               "each; balanced, more and shorter runs, equal in work by the documents of each "
               "sequence; window, one run each, for models with a window that is no longer, so "
               "that only neighbours exchange keys; auto: window where it is possible, else "
               "balanced for packed documents, else zigzag"});
  list.add("overlap_context", &parallelism.overlap_context,
           {.help = "whether the keys and values of some heads are exchanged among the ranks of a "
                    "context while others attend"});
}

void list_experts(ParallelismConfig& parallelism, OptionList& list) {
  list.add("experts", &parallelism.experts,
           {.help = "number of neighbours along z that share the experts of each layer, of which "
                    "each holds a part and computes the tokens of all; divides z and "
                    "model.experts",
            .min = 1,
            .also = "expert_parallel expert_parallel_size expert_model_parallel_size ep ep_size"});
}

void list_parallelism(ParallelismConfig& parallelism, OptionList& list) {
  list_grid(parallelism, list);
  list_context(parallelism, list);
  list_experts(parallelism, list);
  list.add(
      "device", parallelism.device, kDeviceKinds,
      {.help = "device that computes: the CPU (cpu), NVIDIA GPUs (cuda) or AMD GPUs (hip), each "
               "only in a build for it; auto: GPUs if every rank finds one that passes a short "
               "self-test, otherwise the CPU"});
  list.add("peak_tflops", &parallelism.peak_tflops,
           {.help = "peak rate of one rank's device in training.dtype according to its data sheet; "
                    "used to report the percentage of peak; 0: unknown",
            .unit = "Tflop/s",
            .min = 0,
            .also = "peak_flops gpu_peak_flops"});
  list.add(
      "transport", parallelism.transport, kTransportKinds,
      {.help = "how ranks exchange data; auto: mpi under a launcher, with nccl for GPU memory if "
               "every rank has its own GPU, otherwise threads of one process; threads copy "
               "from GPU to GPU, mpi copies through host memory",
       .also = "backend distributed_backend"});
  list.add("collectives", parallelism.collectives, kCollectivesKinds,
           {.help = "how all-gathers, reduce-scatters and all-reduces of several hosts exchange "
                    "data with mpi and nccl: flat, between all ranks; two-level, inside the hosts "
                    "and across them, so that less leaves a host; auto: what takes less time "
                    "according to parallelism.machine, or on links of 10 Gbit/s; with mpi each "
                    "gives the same sums"});
  list.add(
      "reduce_dtype", parallelism.reduce_dtype, kComputeTypes,
      {.help = "type in which ranks exchange weight gradients", .also = "mixed_precision_reduce"});
  list.add(
      "sequence_parallel", &parallelism.sequence_parallel,
      {.help =
           "whether activations between products are also cut over x and y, by rows (in attention "
           "by heads or sequences), so that no rank computes or keeps what another does",
       .also = "sp sequence_parallelism"});
  list.add("chunks", &parallelism.chunks,
           {.help = "number of pieces that a micro-batch is split into: one piece computes while "
                    "another's sums are exchanged; must divide the micro-batch",
            .min = 1,
            .max = 1024});
  list.add("overlap_input_gradients", &parallelism.overlap_input_gradients,
           {.help = "whether ranks sum input gradients while weight gradients are computed, and "
                    "the loss of some rows while other rows are computed"});
  list.add(
      "overlap_weight_gradients", &parallelism.overlap_weight_gradients,
      {.help = "whether a block's weight gradients are summed over z while earlier blocks go on",
       .also = "overlap_grad_reduce"});
  list.add("overlap_weights", &parallelism.overlap_weights,
           {.help = "whether the next block's weights are gathered over z while a block computes",
            .also = "overlap_param_gather"});
  list.add("overlap_data", &parallelism.overlap_data,
           {.help = "whether a block's gradients are summed over data while earlier blocks run "
                    "backward, and its new weights gathered during the next forward"});
  list.add("timeout_seconds", &parallelism.timeout_seconds,
           {.help = "time after which a rank that holds others up without progress ends the run",
            .unit = "seconds",
            .above = 0,
            .also = "distributed_timeout_minutes train_timeout_seconds"});
}

void list_files(OutputConfig& output, OptionList& list) {
  list.section("output", "Where a run writes its files, and how often it reports");
  list.add("dir", &output.dir,
           {.help = "folder for the run's files: config.toml, metrics.jsonl, checkpoints, logs",
            .also = "out_dir output_dir dump_folder save"});
  list.add(
      "overwrite", &output.overwrite,
      {.help = "whether a run that starts anew replaces the run that output.dir holds: removes "
               "its checkpoints and metrics before the first step; false: it is refused"});
  list.add("log_every", &output.log_every,
           {.help = "interval between printed step lines; metrics.jsonl has every step",
            .unit = "steps",
            .min = 1,
            .also = "log_interval log_freq"});
  list.add("tensorboard", &output.tensorboard,
           {.help = "whether to write the series of metrics.jsonl and the configuration also as "
                    "TensorBoard's events, into output.dir; axonn export makes the same of "
                    "metrics.jsonl later",
            .also = "enable_tensorboard tensorboard_dir report_to wandb"});
  list.add("trace", &output.trace,
           {.help = "file for a timeline of the 3rd to 5th step after the start or the resume, for "
                    "Perfetto; empty: none",
            .also = "profile save_traces_folder"});
}

void list_samples(SamplesConfig& samples, OptionList& list) {
  list.section("samples",
               "Texts that the model writes while it is trained: samples.jsonl in output.dir, "
               "axonn board, TensorBoard's events");
  list.add("prompts", &samples.prompts,
           {.help = "texts that the model continues, each as a sample; in flags a comma separates "
                    "two of them; needs a tokenizer; empty: no samples",
            .also = "sample_prompts eval_prompts"});
  list.add("chat", &samples.chat,
           {.help = "whether a prompt is a user's message, which the model answers in the chat "
                    "template of data.jsonl; false: it goes on writing the prompt"});
  list.add("every", &samples.every,
           {.help = "interval between samples, which are always written after the last step, too; "
                    "0: training.eval_every",
            .unit = "steps",
            .min = 0});
  list.add("tokens", &samples.tokens,
           {.help = "most tokens that the model writes after each prompt", .min = 1});
  list.add("temperature", &samples.temperature,
           {.help = "0: always the likeliest token; higher: tokens are drawn, by training.seed, "
                    "and rarer ones more often",
            .min = 0});
  list.add("hold_weights", &samples.hold_weights,
           {.help = "whether to gather all weights over z once, for speed; takes their memory"});
}

void list_output(Config& config, OptionList& list) {
  list.section("activation_checkpoint",
               "Activation checkpointing: what is computed twice to save memory");
  list.add("mode", config.activation_checkpoint.mode, kRecomputeModes,
           {.help = "none: all activations are kept; full: a block keeps only its input, and its "
                    "forward runs again in backward",
            .also = "recompute_granularity recompute"});
  list.add("keep_dispatch", &config.activation_checkpoint.keep_dispatch,
           {.help = "with mode full, whether the rows that experts get from other ranks are kept, "
                    "too, instead of being exchanged again"});

  CheckpointConfig& checkpoint = config.checkpoint;
  list.section("checkpoint", "Writing checkpoints, and resuming from them");
  list.add("every", &checkpoint.every,
           {.help = "interval between checkpoints; the end of the run writes one too; 0: no others",
            .unit = "steps",
            .min = 0,
            .also = "interval save_interval checkpoint_every"});
  list.add("keep", &checkpoint.keep,
           {.help = "number of newest checkpoints to keep; older ones are deleted; 0: all are kept",
            .min = 0,
            .also = "keep_latest_k"});
  list.add("resume", &checkpoint.resume,
           {.help = "checkpoint to resume from: its path, or that of a folder of checkpoints for "
                    "the newest valid one; \"auto\": the newest valid one in output.dir, if there "
                    "is any; empty: start a new run",
            .also = "load initial_load_path"});
  list.add("changed_data", checkpoint.changed_data, kChangedData,
           {.help = "when the run that is resumed had other training data, or another "
                    "training.seed, training.seq_len or data.shuffle, which fix the order of "
                    "samples; refuse: an error; restart: continue with the first sample of the new "
                    "order. Another training.global_batch continues with the next unseen sample"});
  list.add(
      "async", &checkpoint.async,
      {.help = "whether training continues while a checkpoint is written, from a copy in memory",
       .also = "async_mode async_save"});
  list.add("give_up_minutes", &checkpoint.give_up_minutes,
           {.help = "time for which a run goes on although its checkpoints cannot be written, such "
                    "as on a full disk: it warns and tries again after checkpoint.every steps; the "
                    "checkpoint at the end of the run must succeed; 0: the first failure ends the "
                    "run",
            .unit = "minutes",
            .min = 0});

  list_files(config.output, list);
}

}  // namespace

void list_options(Config& config, OptionList& list) {
  list_options(config.model, list);
  list_data(config.data, list);
  list_training(config.training, list);
  list_details(config.training, list);
  list_optimizer(config, list);
  list_parallelism(config.parallelism, list);
  list_output(config, list);
  list_samples(config.samples, list);
  for (const FurtherSection& one : config.further) one.list(list);
}

namespace {

OptionList options_of(Config& config) {
  OptionList list;
  list_options(config, list);
  return list;
}

}  // namespace

std::vector<std::string> warnings(const Config& config, const Origins& origins) {
  std::vector<std::string> lines;
  for (const auto& [key, reason] : unused_keys(config))
    if (origins.is_set(key))
      lines.push_back(concat(key, " (", origins.of(key), ") has no effect: ", reason));
  return lines;
}

std::string print_config(Config config, const Origins& origins) {
  return to_toml(options_of(config), origins);
}

std::string config_toml(Config config, const Origins& origins) {
  const auto unused = unused_keys(config);
  const auto reason_of = [&](const Option& option) -> std::string {
    const auto further = std::ranges::find(config.further, option.section(), &FurtherSection::name);
    if (further != config.further.end()) return further->unread;
    const auto found = std::ranges::find(unused, option.key(), [](auto& one) { return one.first; });
    return found == unused.end() ? "" : found->second;
  };
  return "# Repeats this run: axonn train config.toml, started in the same folder.\n\n" +
         to_toml(options_of(config), [&](const Option& option) {
           const std::string reason = reason_of(option);
           return reason.empty() || origins.is_set(option.key())
                      ? TomlNote{}
                      : TomlNote{.comment = "no effect: " + reason, .disabled = true};
         });
}

std::string config_reference(Config config) {
  return "# Configuration\n\nGenerated by `axonn help --markdown`; do not edit.\n\nA key is set in "
         "the TOML file, as `key = value` under `[section]`, or on the command line, "
         "as\n`--section.key value`; the command line wins. In flags, `-` and `_` are the same, a "
         "list is separated by\ncommas or given by repeating the flag, and a boolean flag without "
         "a value is true. Relative paths, also\nthose in a file, are relative to the folder in "
         "which `axonn` runs. Sizes in bytes may end in a unit such\nas `KiB` or `MB` (in a file "
         "as a string). `axonn train CONFIG.toml --print-config` shows every value and\nits "
         "origin; `axonn help KEY` explains one key.\n\n" +
         to_markdown(options_of(config));
}

}  // namespace axonn
