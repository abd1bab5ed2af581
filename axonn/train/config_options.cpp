// The list of all keys: parsing, help, --print-config, config.toml and docs/configuration.md follow
// from it.
#include "axonn/base/options.h"
#include "axonn/train/config.h"

namespace axonn {

namespace {

/// Of one axis: more than any machine has.
constexpr double kMostRanks = 1 << 20;

void list_data(DataConfig& data, OptionList& list) {
  list.section("data",
               "Where tokens come from: exactly one of text, tokens, jsonl and synthetic is set");
  list.add("text", &data.text,
           {.help = "text files, folders (every .txt below) or patterns such as *.txt",
            .also = "dataset data_path input train_file"});
  list.add(
      "tokens", &data.tokens,
      {.help = "token files (llm.c's .bin, Megatron's prefixes), or a weighted blend \"w1 path1 w2 "
               "path2\"",
       .also = "token_file train_bin"});
  list.add("jsonl", &data.jsonl,
           {.help = "files for fine-tuning, an example a line: text, or prompt and completion, or "
                    "messages; several are packed in a sequence, answers alone are learned",
            .also = "conversations sft_file chat_data train_jsonl"});
  list.add("chat_template", &data.chat_template,
           {.help = "of messages: chatml, llama3, llama3.1, llama2, or auto: that of the "
                    "tokenizer's folder; chatml for \"bytes\"",
            .also = "template"});
  list.add("synthetic", &data.synthetic,
           {.help = "size of generated text with facts in it; 0: none",
            .unit = "bytes",
            .min = 0,
            .also = "mock_data"});
  list.add("tokenizer", &data.tokenizer,
           {.help = "\"bytes\", or a folder with tokenizer.json, vocab.json and merges.txt, or "
                    "tokenizer.model, or one such file; \"bytes\" gives way to that of a "
                    "folder at model.path",
            .also = "tokenizer_path tokenizer_type"});
  list.add(
      "validation", &data.validation,
      {.help = "a fraction of the data, kept from training at its end, or a file; 0 or empty: none",
       .or_number = true,
       .also = "val_file split validation_file"});
  list.add("shuffle", &data.shuffle,
           {.help = "whether windows are shuffled in each epoch; false: in file order"});
}

void list_training(TrainingConfig& training, OptionList& list) {
  list.section("training", "How long, on how much at once, and in what type");
  list.add("steps", &training.steps,
           {.help = "optimizer steps of the whole run",
            .min = 1,
            .required = true,
            .also = "max_iters train_iters max_steps num_iterations"});
  list.add("seq_len", &training.seq_len,
           {.help = "length of a sequence",
            .unit = "tokens",
            .min = 1,
            .required = true,
            .also = "block_size seq_length sequence_length context_length"});
  list.add("global_batch", &training.global_batch,
           {.help = "size of one step's batch over all ranks; the rest after micro_batch, z and "
                    "data is accumulated",
            .unit = "sequences",
            .min = 1,
            .required = true,
            .also = "batch_size global_batch_size total_batch_size"});
  list.add("micro_batch", &training.micro_batch,
           {.help = "what one (z, data) coordinate computes at a time; 0: all of its part",
            .unit = "sequences",
            .min = 0,
            .also = "micro_batch_size local_batch_size batch_size"});
  list.add("dtype", training.dtype, kComputeTypes,
           {.help = "type of activations and products; sums and master weights are f32",
            .also = "precision bf16 fp16 mixed_precision_param"});
  list.add("seed", &training.seed, {.help = "of initial weights and sample order", .min = 0});
  list.add("max_norm", &training.max_norm,
           {.help = "the global gradient norm is clipped to this; 0: never",
            .min = 0,
            .also = "grad_clip clip_grad max_grad_norm gradient_clipping"});
  list.add("eval_every", &training.eval_every,
           {.help = "how often the validation loss is computed; 0: never",
            .unit = "steps",
            .min = 0,
            .also = "eval_interval val_loss_every"});
  list.add("eval_batches", &training.eval_batches,
           {.help = "batches of one evaluation; 0: all of the validation data",
            .min = 0,
            .also = "eval_iters val_max_steps"});
  list.add(
      "deterministic", &training.deterministic,
      {.help = "whether the same run twice gives the same bits", .also = "deterministic_mode"});
  list.add("skip_outliers", &training.skip_outliers,
           {.help = "skip a step whose loss or gradient norm is above this many times its running "
                    "mean; 0: never",
            .min = 0});
  list.add("threads", &training.threads,
           {.help = "compute threads of one rank; 0: cores over ranks of this machine",
            .min = 0,
            .max = 4096,
            .also = "omp_num_threads num_threads"});
  list.add("bind_cores", &training.bind_cores,
           {.help = "whether ranks that share a machine's cores compute on some of their own each; "
                    "what a launcher or OMP_PROC_BIND binds stays as it is",
            .also = "cpu_bind numa_bind pin_threads"});
}

/// More of [training].
void list_goldfish(GoldfishConfig& goldfish, OptionList& list) {
  list.add("goldfish.k", &goldfish.k,
           {.help = "one target in so many is left out of the loss, so that no passage is learned "
                    "word for word; 0: none is",
            .min = 0,
            .also = "goldfish_k goldfish_loss"});
  list.add("goldfish.h", &goldfish.h,
           {.help = "the tokens before a target whose hash says whether it is left out",
            .unit = "tokens",
            .min = 1,
            .also = "goldfish_h goldfish_context_width"});
  list.add(
      "goldfish.mask", goldfish.mask, kGoldfishMasks,
      {.help = "which targets: by the hash of the h tokens before; static: every k-th; seeded: "
               "drawn anew each time",
       .also = "goldfish_strategy"});
}

/// More of [training].
void list_tuning(TrainingConfig& training, OptionList& list) {
  list.add("attention", training.attention, kAttentionKinds,
           {.help = "what computes attention on NVIDIA's cards; auto: cuDNN where it can, axonn's "
                    "own kernels elsewhere",
            .also = "attn_implementation attention_backend flash_attention"});
  list.add("tune", &training.tune,
           {.help = "whether each product is timed in several ways before the first step, and the "
                    "fastest kept",
            .also = "autotune kernel_tuning"});
  list.add("tune_cache", &training.tune_cache,
           {.help = "file that keeps what tuning found; empty: axonn/products.json in "
                    "$XDG_CACHE_HOME or ~/.cache"});
  list.add("cuda_graph", &training.cuda_graph,
           {.help = "whether a step's work on a card is captured once, as graphs, and launched "
                    "from the second step on; the same bits, less work for the host",
            .also = "cuda_graphs enable_cuda_graph capture"});
}

void list_optimizer(Config& config, OptionList& list) {
  OptimizerConfig& optimizer = config.optimizer;
  list.section("optimizer", "How weights follow gradients");
  list.add("kind", optimizer.kind, kOptimizerKinds, {.help = "the optimizer", .also = "name"});
  list.add("lr", &optimizer.lr,
           {.help = "the highest learning rate",
            .above = 0,
            .required = true,
            .also = "learning_rate max_lr"});
  list.add("beta1", &optimizer.beta1,
           {.help = "decay of the first moment (adamw)",
            .min = 0,
            .below = 1,
            .also = "adam_beta1 betas momentum"});
  list.add("beta2", &optimizer.beta2,
           {.help = "decay of the second moment (adamw)",
            .min = 0,
            .below = 1,
            .also = "adam_beta2 betas"});
  list.add("eps", &optimizer.eps,
           {.help = "added to the root of the second moment (adamw)",
            .above = 0,
            .also = "adam_eps epsilon"});
  list.add("weight_decay", &optimizer.weight_decay,
           {.help = "decoupled decay, of matrices alone", .min = 0, .also = "wd"});

  ScheduleConfig& schedule = config.lr_scheduler;
  list.section("lr_scheduler", "How the learning rate changes over the steps");
  list.add("kind", schedule.kind, kScheduleKinds,
           {.help = "shape after the warm-up; wsd stays, then decays at the end",
            .also = "lr_decay_style decay_type"});
  list.add("warmup_steps", &schedule.warmup_steps,
           {.help = "steps in which the rate rises from 0 to lr",
            .min = 0,
            .also = "warmup_iters lr_warmup_iters num_warmup_steps"});
  list.add("min_lr", &schedule.min_lr,
           {.help = "the rate at the last step", .min = 0, .also = "learning_rate_decay_frac"});
  list.add("decay_steps", &schedule.decay_steps,
           {.help = "steps of wsd's decay; 0: a tenth of the steps",
            .min = 0,
            .also = "lr_decay_iters lr_wsd_decay_iters"});
}

void list_grid(ParallelismConfig& parallelism, OptionList& list) {
  list.section("parallelism", "The grid of ranks; their number is x times y times z times data");
  list.add("x", &parallelism.x,
           {.help = "ranks that share heads, MLP width and vocabulary",
            .min = 1,
            .max = kMostRanks,
            .also = "tensor_parallel_degree tensor_model_parallel_size tp"});
  list.add("y", &parallelism.y,
           {.help = "ranks that share the model's width", .min = 1, .max = kMostRanks});
  list.add("z", &parallelism.z,
           {.help = "ranks that share a batch and each hold a part of the weights",
            .min = 1,
            .max = kMostRanks,
            .also = "data_parallel_shard_degree fsdp"});
  list.add("data", &parallelism.data,
           {.help = "whole copies of the model, each with a batch of its own",
            .min = 1,
            .max = kMostRanks,
            .also = "data_parallel_replicate_degree dp ddp"});
  list.add("grid", &parallelism.named_grid,
           {.help = "x,y,z,data in one, instead of the four keys; auto: train takes the grid of "
                    "all ranks that a plan ranks first, with its micro-batch and recomputation, "
                    "and keeps to it when it resumes",
            .also = "mesh device_mesh"});
  list.add("machine", &parallelism.machine,
           {.help = "what an automatic grid is planned for: a machine's name or file, as axonn "
                    "plan takes it; empty: the ranks measure what they run on first, for some "
                    "seconds"});
}

void list_parallelism(ParallelismConfig& parallelism, OptionList& list) {
  list_grid(parallelism, list);
  list.add("device", parallelism.device, kDeviceKinds,
           {.help = "what computes: cuda on NVIDIA's cards, hip on AMD's, each in a build for "
                    "them; auto: the processor, until a card has been seen to"});
  list.add("peak_tflops", &parallelism.peak_tflops,
           {.help = "what the data sheet says one rank's device can do in the compute type, for "
                    "percent of peak; 0: not known",
            .unit = "Tflop/s",
            .min = 0,
            .also = "peak_flops gpu_peak_flops"});
  list.add("transport", parallelism.transport, kTransportKinds,
           {.help = "how ranks talk; auto: mpi under a launcher, otherwise threads of one process, "
                    "and nccl for what lies on cards, where every rank has its own; threads "
                    "carry that from card to card, mpi through the host's memory",
            .also = "backend distributed_backend"});
  list.add("reduce_dtype", parallelism.reduce_dtype, kComputeTypes,
           {.help = "type in which weight gradients travel", .also = "mixed_precision_reduce"});
  list.add("sequence_parallel", &parallelism.sequence_parallel,
           {.help = "whether rows (of attention: heads or sequences) are cut over x and y between "
                    "products: nothing is computed or kept twice",
            .also = "sp sequence_parallelism context_parallel"});
  list.add("chunks", &parallelism.chunks,
           {.help = "pieces of a micro-batch: one computes while another's sums travel; divides "
                    "the micro-batch",
            .min = 1,
            .max = 1024});
  list.add("overlap_input_gradients", &parallelism.overlap_input_gradients,
           {.help = "whether input gradients are summed while weight gradients are computed, and "
                    "rows of the loss while other rows are"});
  list.add("overlap_weight_gradients", &parallelism.overlap_weight_gradients,
           {.help = "whether weight gradients are summed while earlier layers go on",
            .also = "overlap_grad_reduce"});
  list.add("overlap_weights", &parallelism.overlap_weights,
           {.help = "whether the next block's weights are gathered while this one computes",
            .also = "overlap_param_gather"});
  list.add("overlap_data", &parallelism.overlap_data,
           {.help = "whether a block's gradients are summed over data while earlier ones go on"});
  list.add("timeout_seconds", &parallelism.timeout_seconds,
           {.help = "how long a collective may hang before the run is ended",
            .unit = "seconds",
            .above = 0,
            .also = "distributed_timeout_minutes train_timeout_seconds"});
}

void list_output(Config& config, OptionList& list) {
  list.section("activation_checkpoint", "What is computed twice to save memory");
  list.add("mode", config.activation_checkpoint.mode, kRecomputeModes,
           {.help = "full: a block keeps its input alone, and its forward runs again in backward",
            .also = "recompute_granularity recompute"});

  CheckpointConfig& checkpoint = config.checkpoint;
  list.section("checkpoint", "What is kept of a run, and whether it goes on from there");
  list.add("every", &checkpoint.every,
           {.help = "how often a checkpoint is written; 0: at the end alone",
            .unit = "steps",
            .min = 0,
            .also = "interval save_interval checkpoint_every"});
  list.add("keep", &checkpoint.keep,
           {.help = "how many of the newest stay; 0: all", .min = 0, .also = "keep_latest_k"});
  list.add("resume", &checkpoint.resume,
           {.help = "\"auto\": the newest good one in output.dir; or a checkpoint's path; empty: "
                    "start anew",
            .also = "load initial_load_path"});
  list.add("async", &checkpoint.async,
           {.help = "whether training goes on while a checkpoint is written",
            .also = "async_mode async_save"});

  OutputConfig& output = config.output;
  list.section("output", "Where a run writes, and how much it says");
  list.add("dir", &output.dir,
           {.help = "folder for config.toml, metrics.jsonl, checkpoints and logs",
            .also = "out_dir output_dir dump_folder save"});
  list.add("log_every", &output.log_every,
           {.help = "how often the step line is printed",
            .unit = "steps",
            .min = 1,
            .also = "log_interval log_freq"});
  list.add("trace", &output.trace,
           {.help = "a file for the timeline of steps 3 to 5, for Perfetto; empty: none",
            .also = "profile save_traces_folder"});
}

void list_memorize(MemorizeConfig& memorize, OptionList& list) {
  list.section("memorize", "What axonn memorize studies; no other command reads it");
  list.add("documents", &memorize.documents,
           {.help = "JSONL files of documents, {\"text\": ...} a line; none: generated records of "
                    "people and numbers that no rule predicts"});
  list.add("bucket_size", &memorize.bucket_size,
           {.help = "documents of each bucket, drawn by training.seed", .min = 1});
  list.add("epochs", &memorize.epochs,
           {.help = "how often each bucket's documents are learned; a control bucket, which never "
                    "is, comes with them",
            .min = 1,
            .max = 1e6});
  list.add("suffix_tokens", &memorize.suffix_tokens,
           {.help = "what the model is to recite: so many tokens at each document's end",
            .unit = "tokens",
            .min = 1});
  list.add("prompt_lengths", &memorize.prompt_lengths,
           {.help = "also asks with so many tokens before them, beside the whole document",
            .unit = "tokens",
            .min = 1});
  list.add("trials", &memorize.trials,
           {.help = "how often all is done, each time with another seed", .min = 1, .max = 1000});
  list.add("losses", &memorize.losses,
           {.help = "standard, goldfish (as training.goldfish says) or both, side by side"});
  list.add("batch", &memorize.batch,
           {.help = "documents that a (z, data) coordinate is asked for at a time; 0: what fits in "
                    "1 GiB",
            .min = 0});
  list.add("hold_weights", &memorize.hold_weights,
           {.help = "whether weights are gathered over z once while documents are asked for, z "
                    "times their memory; false: for every token, slowly"});
}

}  // namespace

void list_options(Config& config, OptionList& list) {
  list_options(config.model, list);
  list_data(config.data, list);
  list_training(config.training, list);
  list_goldfish(config.training.goldfish, list);
  list_tuning(config.training, list);
  list_optimizer(config, list);
  list_parallelism(config.parallelism, list);
  list_output(config, list);
  list_memorize(config.memorize, list);
}

}  // namespace axonn
