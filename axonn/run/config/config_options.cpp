// The table of all keys, with those of [parallelism] and of the output. Parsing, help,
// --print-config, config.toml and docs/configuration.md are made from it.
#include "axonn/run/config/config_options.h"

#include <algorithm>
#include <filesystem>

#include "axonn/foundation/base/check.h"
#include "axonn/foundation/options/options_text.h"
#include "axonn/network/model/model.h"
#include "axonn/run/config/other_names.h"
#include "axonn/run/config/resolve.h"
#include "axonn/run/config/unused_keys.h"

namespace axonn {

namespace {

constexpr std::string_view kTransportKinds[] = {"auto", "threads", "mpi", "nccl"};

/// Largest extent of one axis: more ranks than any machine has.
constexpr double kMostRanks = 1 << 20;

void list_grid(ParallelismConfig& parallelism, OptionList& list) {
  list.section("parallelism",
               "The grid of ranks, of which there are x times y times z times data, and how they "
               "communicate");
  list.add("x", &parallelism.x,
           {.help = "extent of axis x: ranks among which heads, MLP width and vocabulary are cut",
            .min = 1,
            .max = kMostRanks,
            .also = "tensor_parallel_degree tensor_model_parallel_size tp G_intra_r"});
  list.add("y", &parallelism.y,
           {.help = "extent of axis y: ranks among which the model's width is cut",
            .min = 1,
            .max = kMostRanks,
            .also = "G_intra_c"});
  list.add("z", &parallelism.z,
           {.help = "extent of axis z: ranks that train on different sequences and each store a "
                    "part of the weights, which are gathered for use (FSDP)",
            .min = 1,
            .max = kMostRanks,
            .also = "data_parallel_shard_degree fsdp G_intra_d"});
  list.add("data", &parallelism.data,
           {.help = "extent of axis data: copies of the model, which train on different sequences "
                    "(data parallelism)",
            .min = 1,
            .max = kMostRanks,
            .also = "data_parallel_replicate_degree dp ddp G_data"});
  list.add("grid", &parallelism.named_grid,
           {.help = "the grid as \"x,y,z,data\", in place of the four keys; auto: train uses the "
                    "planner's best grid for all ranks, with its micro-batch and recomputation, "
                    "and keeps weights (keep_weights) if that fits and saves time; a resumed run "
                    "keeps that grid",
            .also = "mesh device_mesh"});
  list.add("machine", &parallelism.machine,
           {.help = "machine that grid = auto plans for, and by whose links collectives = auto "
                    "chooses: a name or a file, as in axonn plan; empty: for the grid, the ranks "
                    "first measure the machine they run on, for some seconds",
            .reads = Reads::files});
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
  list.add("overlap_context", &parallelism.overlap.context,
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

void list_overlap(ParallelismConfig& parallelism, OptionList& list) {
  list.add("overlap_input_gradients", &parallelism.overlap.input_gradients,
           {.help = "whether ranks sum input gradients while weight gradients are computed, and "
                    "the loss of some rows while other rows are computed"});
  list.add(
      "overlap_weight_gradients", &parallelism.overlap.weight_gradients,
      {.help = "whether a block's weight gradients are summed over z while earlier blocks go on",
       .also = "overlap_grad_reduce"});
  list.add("overlap_weights", &parallelism.overlap.weights,
           {.help = "whether the next block's weights are gathered over z while a block computes",
            .also = "overlap_param_gather"});
  list.add(
      "keep_weights", parallelism.keep_weights, kKeepWeights,
      {.help = "how long weights that were gathered over z are kept. none: a block's are "
               "gathered for forward and again for backward; micro_batch: kept from forward "
               "to backward; step: gathered once for all micro-batches of a step, and frozen "
               "ones once in the run. What is kept of all blocks takes memory; no bit changes",
       .also = "reshard_after_forward fsdp_reshard_after_forward cache_weights_in_all_gather"});
  list.add("overlap_data", &parallelism.overlap.data,
           {.help = "whether a block's gradients are summed over data while earlier blocks run "
                    "backward, and its new weights gathered during the next forward"});
}

void list_transport(ParallelismConfig& parallelism, OptionList& list) {
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
  list.add("collective_blocks", &parallelism.collective_blocks,
           {.help = "blocks of a GPU that the collectives of a group have at most with nccl, each "
                    "of which takes a multiprocessor from operations beside it; 0: as NCCL "
                    "chooses; -1: 8 over z and data, 16 over other axes (RCCL: as it chooses)",
            .min = -1,
            .max = 64});
  list.add("spare_multiprocessors", &parallelism.spare_multiprocessors,
           {.help = "whether cuBLASLt chooses products that go on beside collectives of nccl for "
                    "the multiprocessors that collective_blocks leaves, so that they need not wait "
                    "for the others; their last bits may then differ from those without overlap"});
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
  list_transport(parallelism, list);
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
  list_overlap(parallelism, list);
  list.add("verify_messages", &parallelism.verify_messages,
           {.help = "whether each message of MPI has a checksum, which the receiver compares; "
                    "bytes that differ end the run, and name both ranks and the operation"});
  list.add("timeout_seconds", &parallelism.timeout_seconds,
           {.help = "time after which a rank that holds others up without progress ends the run",
            .unit = "seconds",
            .above = 0,
            .also = "distributed_timeout_minutes train_timeout_seconds"});
}

void list_files(OutputConfig& output, OptionList& list) {
  list.section("output", "Where a run writes its files, and how often it reports");
  list.add("dir", &output.dir,
           {.help = "folder for the run's files: config.toml, metrics.jsonl, checkpoints, logs; if "
                    "it is not set, out/NAME for a configuration NAME.toml",
            .also = "out_dir output_dir dump_folder save"});
  list.add(
      "overwrite", &output.overwrite,
      {.help = "whether a run that starts anew replaces the run that output.dir holds: removes "
               "its checkpoints and metrics before the first step; false: it is refused"});
  list.add(
      "log_every", &output.log_every,
      {.help = "interval between step lines; on a terminal, one that follows within a second is "
               "redrawn in place; metrics.jsonl has every step",
       .unit = "steps",
       .min = 1,
       .also = "log_interval log_freq logging_steps"});
  list.add("tensorboard", &output.tensorboard,
           {.help = "whether to write the series of metrics.jsonl and the configuration also as "
                    "TensorBoard's events, into output.dir; axonn export makes the same of "
                    "metrics.jsonl later",
            .also = "enable_tensorboard tensorboard_dir report_to wandb wandb_project"});
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
            .min = 0,
            .max = 100});
  list.add(
      "hold_weights", &samples.hold_weights,
      {.help = "whether to gather all weights over z once, for speed; takes their memory, which "
               "a few texts are not worth by default"});
}

void list_recompute(Config& config, OptionList& list) {
  list.section("activation_checkpoint",
               "Activation checkpointing: what is computed twice to save memory");
  list.add("mode", config.activation_checkpoint.mode, kRecomputeModes,
           {.help = "none: all activations are kept; light: outputs of norms and of activation "
                    "functions are made again in backward; full: a block keeps only its input, and "
                    "its forward runs again in backward; values: those of the key values",
            .also = "recompute_granularity recompute gradient_checkpointing"});
  list.add(
      "blocks", &config.activation_checkpoint.blocks,
      {.help = "the first blocks, as many as this says, recompute more: light if mode is none, "
               "full if it is light, first_values if it is values",
       .min = 0,
       .also = "recompute_num_layers"});
  list.add("values", &config.activation_checkpoint.values,
           {.help = "what a block computes again in backward, with mode values: norms, activations "
                    "(their outputs), heads (queries and keys after their norms), attention (its "
                    "output), qkv, up, residual (outputs of products: before attention, in the MLP "
                    "or the experts, and the sum after attention), exchanged (rows that experts "
                    "get); or all alone, as mode full",
            .also = "recompute_modules"});
  list.add("first_values", &config.activation_checkpoint.first_values,
           {.help = "the same for the first blocks, as many as the key blocks says"});
  list.add("budget", &config.activation_checkpoint.budget,
           {.help = "most memory of a rank at the peak of a step; sets the keys above to the "
                    "least recomputation that keeps it, by dry runs; 0: none",
            .unit = "bytes",
            .min = 0,
            .also = "activation_memory_budget"});
  list.add(
      "keep_dispatch", &config.activation_checkpoint.keep_dispatch,
      {.help =
           "in blocks of mode full, whether the rows that experts get from other ranks are kept, "
           "too, instead of being exchanged again"});
}

void list_offload(OffloadConfig& offload, OptionList& list) {
  list.section("offload", "Keeping values on a disk of the node that do not fit its memory (CPU)");
  list.add("dir", &offload.dir,
           {.help = "folder of the file in which each rank keeps the values below while it does "
                    "not use them; a run has the same results with and without; empty: all values "
                    "stay in memory",
            .also = "offload_folder nvme_path"});
  list.add("parameters", &offload.parameters,
           {.help = "whether weights are kept there: one or two blocks are in memory at a time",
            .also = "offload_param offload_params"});
  list.add("gradients", &offload.gradients, {.help = "whether gradients are"});
  list.add("optimizer", &offload.optimizer,
           {.help = "whether master weights, moments and averages are, which only updates use",
            .also = "offload_optimizer cpu_offload"});
}

void list_local_checkpoints(CheckpointConfig& checkpoint, OptionList& list) {
  list.add(
      "local_every", &checkpoint.local_every,
      {.help = "interval between local checkpoints: each rank's state in memory or on a disk of "
               "its own node, and a copy on another node, from which resume = \"auto\" goes on "
               "after a failure, on any grid; 0: none",
       .unit = "steps",
       .min = 0,
       .also = "non_persistent_save_interval local_checkpoint_interval"});
  list.add("local_folder", &checkpoint.local_folder,
           {.help = "folder of the local checkpoints on every node; one below /dev/shm is memory",
            .also = "non_persistent_local_ckpt_dir local_checkpoint_dir"});
  list.add("local_node_ranks", &checkpoint.local_node_ranks,
           {.help = "neighbouring ranks that count as one node, such as those of a rack that fails "
                    "as a whole: copies go to other ones; 0: the ranks of a host are a node",
            .unit = "ranks",
            .min = 0,
            .also = "replication_jump"});
}

void list_output(Config& config, OptionList& list) {
  CheckpointConfig& checkpoint = config.checkpoint;
  list.section("checkpoint", "Writing checkpoints, and resuming from them");
  list.add(
      "every", &checkpoint.every,
      {.help = "interval between checkpoints, besides every_minutes; the end of the run writes "
               "one too; 0: none by steps",
       .unit = "steps",
       .min = 0,
       .also = "interval save_interval save_steps save_freq checkpoint_every"});
  list.add("every_minutes", &checkpoint.every_minutes,
           {.help = "a checkpoint is written after the step that ends so long after the last "
                    "checkpoint or the start, by the clock of rank 0; 0: none by time",
            .unit = "minutes",
            .min = 0,
            .also = "save_minutes save_interval_minutes"});
  list.add("keep", &checkpoint.keep,
           {.help = "number of newest checkpoints to keep; older ones are deleted; 0: all are kept",
            .min = 0,
            .also = "keep_latest_k save_total_limit"});
  list.add(
      "keep_factor", &checkpoint.keep_factor,
      {.help = "besides keep, older checkpoints stay at growing distances, such that going back "
               "before any step, as axonn forget does, repeats at most this many times the steps "
               "since then, and those between two checkpoints; their number grows with the "
               "logarithm of the steps; 0: none, else above 1",
       .min = 0,
       .also = "keep_period keep_spaced"});
  list.add(
      "best", &checkpoint.best,
      {.help = "whether a checkpoint is written after each validation whose loss is the lowest "
               "so far; the last of these stays whatever keep says, and the file "
               "checkpoints/best names it, a path that commands take as they take a "
               "checkpoint's",
       .also = "load_best_model_at_end save_best"});
  list.add("resume", &checkpoint.resume,
           {.help = "checkpoint to resume from: its path, or a run's output.dir for the newest "
                    "valid one; \"auto\": the newest valid one in output.dir, if there "
                    "is any; empty: start a new run",
            .also = "load initial_load_path resume_from_checkpoint",
            .reads = Reads::files});
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
                    "as on a full disk: it warns and tries again when the next one is due; the "
                    "checkpoint at the end of the run must succeed; 0: the first failure ends the "
                    "run",
            .unit = "minutes",
            .min = 0});
  list_local_checkpoints(checkpoint, list);
  list_files(config.output, list);
}

}  // namespace

void list_options(Config& config, OptionList& list) {
  list.explain(other_names());
  list_options(config.model, list);
  list_data(config.data, list);
  list.repeated("stage",
                "The training data from a step on, in place of those of [data], which then names "
                "none; as many stages as there are entries, in the order of their steps",
                config.stage, list_stage);
  list_training(config.training, list);
  list_preference(config.preference, list);
  list_rl(config.rl, list);
  list_distill(config.distill, list);
  list_optimizer(config.optimizer, list);
  list_schedule(config.lr_scheduler, list);
  list_parallelism(config.parallelism, list);
  list_recompute(config, list);
  list_offload(config.offload, list);
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

void name_output(Config& config, Origins& origins) {
  if (origins.is_set("output.dir") || config.file.empty()) return;
  config.output.dir = "out/" + std::filesystem::path(config.file).stem().string();
  origins.set("output.dir", "named after " + config.file);
}

std::vector<std::string> warnings(const Config& config, const Origins& origins) {
  constexpr std::int64_t kBytes = 256, kLarge = 2048;  // no tokenizer of bytes needs so many
  std::vector<std::string> lines;
  const bool chosen = origins.is_set("data.tokenizer") || config.data.tokenizer != "bytes";
  const bool reads_text = !config.data.text.empty() || !config.data.jsonl.empty();
  if (!chosen && reads_text && config.model.path.empty() && config.model.vocab > kLarge)
    lines.push_back(concat("data.tokenizer is \"bytes\" by default, which uses ", kBytes,
                           " of the ", config.model.vocab,
                           " tokens of model.vocab; set it to the folder of a "
                           "tokenizer"));
  for (const auto& [key, reason] : unused_keys(config))
    if (origins.is_set(key))
      lines.push_back(concat(key, " (", origins.of(key), ") has no effect: ", reason));
  return lines;
}

std::string print_config(Config config, const Origins& origins) {
  return to_toml(options_of(config), origins);
}

std::string config_toml(Config config, const Origins& origins) {
  // What the user left to the program stays so, and the file fits other grids.
  TrainingConfig& training = config.training;
  if (!origins.is_set("training.micro_batch") &&
      training.micro_batch ==
          largest_micro_batch(training, batch_coordinates(config.parallelism.grid())))
    training.micro_batch = 0;
  const auto unused = unused_keys(config);
  const auto reason_of = [&](const Option& option) -> std::string {
    const auto further = std::ranges::find(config.further, option.section(), &FurtherSection::name);
    if (further != config.further.end()) return further->unread;
    const auto found = std::ranges::find(unused, option.key(), [](auto& one) { return one.first; });
    return found == unused.end() ? "" : found->second;
  };
  const std::string text = to_toml(options_of(config), [&](const Option& option) {
    const std::string reason = reason_of(option);
    return reason.empty() || origins.is_set(option.key())
               ? TomlNote{}
               : TomlNote{.comment = "no effect: " + reason, .disabled = true};
  });
  return concat(kWrittenConfig, "run: axonn train config.toml, started in the same folder.\n\n",
                text);
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
