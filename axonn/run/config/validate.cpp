#include "axonn/run/config/validate.h"

#include <algorithm>
#include <cmath>
#include <set>

#include "axonn/compute/tensor/gpu/cuda_device.h"
#include "axonn/compute/tensor/gpu/gpu_platform.h"
#include "axonn/data/corpus/batch_stages.h"
#include "axonn/data/corpus/corpus.h"
#include "axonn/foundation/base/check.h"
#include "axonn/foundation/base/numbers.h"
#include "axonn/foundation/options/options.h"
#include "axonn/run/config/batch_ramp.h"
#include "axonn/run/config/config_options.h"
#include "axonn/run/config/optimizer_rules.h"
#include "axonn/run/config/policy_loss.h"
#include "axonn/run/config/preference.h"
#include "axonn/run/config/recompute.h"
#include "axonn/run/config/resolve.h"

namespace axonn {

namespace {

/// Refuses a config without the keys that have no default: all of them in one error, each with the
/// first part of its help.
void refuse_missing(Config config) {
  std::vector<std::pair<std::string, std::string>> missing;  // a key, and an addition to its help
  for (const std::string& key : missing_keys(config.model))
    missing.emplace_back(key, missing.empty() ? ", unless model.path names a model" : "");
  const auto need = [&](bool set, const char* key, const char* addition = "") {
    if (!set) missing.emplace_back(key, addition);
  };
  const TrainingConfig& training = config.training;
  const bool has_data = !config.stage.empty() || config.data.sources() > 0;
  need(has_data, "data.text", ", or data.tokens, data.jsonl or data.synthetic");
  need(training.steps > 0 || training.epochs > 0, "training.steps", ", or training.epochs");
  need(training.seq_len > 0, "training.seq_len");
  need(training.global_batch > 0, "training.global_batch");
  need(config.optimizer.lr > 0, "optimizer.lr");
  if (missing.empty()) return;
  OptionList list;
  list_options(config, list);
  std::string lines;
  for (const auto& [key, addition] : missing) {
    const std::size_t dot = key.find('.');
    const std::string_view help = list.find(key.substr(0, dot), key.substr(dot + 1))->info().help;
    lines += concat("\n  ", key, ": ", help.substr(0, help.find_first_of(";:")), addition);
  }
  refuse(missing.size() == 1 ? "a key is missing" : concat(missing.size(), " keys are missing"),
         "; set ", missing.size() == 1 ? "it" : "them", config.file.empty() ? "" : " in ",
         config.file.empty() ? " in a file, axonn train CONFIG.toml," : config.file,
         " or by flags such as --", missing.front().first, " VALUE:", lines);
}

void validate_data(const DataConfig& data) {
  check_data(data);
  if (data.tokenizer.empty() && data.tokens.empty())
    refuse(
        "[data] tokenizer is not set, and the one of the model at [model] path is not known; set "
        "it to \"bytes\" or to a folder with tokenizer.json, with vocab.json and merges.txt, or "
        "with tokenizer.model");
}

/// Of one stage, which comes after the step `before`.
void validate_stage(const StageConfig& stage, std::int64_t before, const TrainingConfig& training) {
  const std::string name = concat("[[stage]] ", toml_string(stage.name));
  if (stage.name.empty()) refuse("a [[stage]] has no name; set it, as in name = \"web\"");
  const int sources = !stage.text.empty() + !stage.tokens.empty() + (stage.synthetic > 0);
  if (sources != 1)
    refuse(name, " names ", sources == 0 ? "no data" : "more than one kind of data",
           "; set one of its keys text, tokens and synthetic");
  if (stage.from_step <= before)
    refuse(name, ": from_step = ", stage.from_step, " must be greater than the previous stage's, ",
           before, "; list stages in the order of their steps");
  if (stage.seq_len > 0 && training.seq_len % stage.seq_len != 0)
    refuse(name, ": seq_len = ", stage.seq_len,
           " does not divide [training] seq_len = ", training.seq_len,
           "; set that to the longest sequence of all stages, of which the others "
           "are parts");
}

void validate_stages(const Config& config) {
  if (config.stage.empty()) return validate_data(config.data);
  const DataConfig& data = config.data;
  if (data.sources() > 0)
    refuse(
        "[data] and [[stage]] both name training data; leave text, tokens, jsonl and synthetic "
        "out of [data], and make the first data a [[stage]], too");
  std::int64_t before = 0;
  std::set<std::string> names;
  for (const StageConfig& stage : config.stage) {
    validate_stage(stage, before, config.training);
    before = stage.from_step;
    if (!names.insert(stage.name).second)
      refuse("two stages have the name ", toml_string(stage.name), "; give each its own");
  }
  for (const Config& one : stages_of(config)) validate_data(one.data);
}

void validate_tokens(const TrainingConfig& training) {
  std::int64_t sequences = 0, tokens = 0;
  if (__builtin_mul_overflow(training.steps, training.global_batch, &sequences) ||
      __builtin_mul_overflow(sequences, training.seq_len, &tokens))
    refuse("[training] steps = ", training.steps, ", global_batch = ", training.global_batch,
           " and seq_len = ", training.seq_len, " are more than 2^63 tokens together; lower one");
}

void validate_epochs(const Config& config) {
  const TrainingConfig& training = config.training;
  if (training.epochs == 0) return;
  if (training.steps > 0)
    refuse("[training] steps = ", training.steps, " and epochs = ", toml_number(training.epochs),
           " both set the length of the run; leave one of them out (as a flag, 0 does so)");
  if (!config.stage.empty())
    refuse("[training] epochs = ", toml_number(training.epochs),
           " of which data? The entries of [[stage]] name several; set steps instead");
}

/// The types of gradients and logits, and the scale of the loss.
void validate_f16(const Config& config) {
  const TrainingConfig& training = config.training;
  const LogitsType logits = training.logits_dtype;
  const bool half = logits == LogitsType::bf16 || logits == LogitsType::f16;
  if (half && is_half(training.dtype) &&
      (logits == LogitsType::f16) != (training.dtype == DType::f16))
    refuse("[training] logits_dtype = \"", logits == LogitsType::f16 ? "f16" : "bf16",
           "\" is not that of dtype = \"", name_of(training.dtype),
           "\"; set logits_dtype to f32 or to that type, or leave it out");
  const bool f16 = training.dtype == DType::f16;
  if (config.parallelism.reduce_dtype == DType::f16 && !f16)
    refuse(
        "[parallelism] reduce_dtype = \"f16\" needs [training] dtype = \"f16\": only then is the "
        "loss scaled so that gradients stay in the range of f16; set reduce_dtype to bf16 or "
        "f32");
  const LossScaleConfig& scale = training.loss_scale;
  if (f16 && scale.fixed == 0 && !(scale.min > 0 && scale.initial >= scale.min))
    refuse("[training] loss_scale.initial = ", toml_number(scale.initial),
           " and loss_scale.min = ", toml_number(scale.min),
           ": the smallest scale of the loss must be above 0, and the first one no smaller");
}

void validate_training(const Config& config) {
  const TrainingConfig& training = config.training;
  validate_epochs(config);
  validate_tokens(training);
  if (training.skip_outliers > 0 && training.skip_outliers <= 1)
    refuse("[training] skip_outliers = ", training.skip_outliers,
           " would skip every step: steps whose loss or gradient norm exceeds this multiple of the "
           "running mean are skipped; set it above 1, or to 0 to skip none");
  validate_f16(config);
  if (training.goldfish.k == 1)
    refuse(
        "[training] goldfish.k = 1 leaves every target out of the loss; set it to 2 or more, or to "
        "0 to leave none out");
  const std::int64_t positions = config.model.positions;
  if (positions > 0 && positions < training.seq_len)
    refuse("[training] seq_len = ", training.seq_len,
           " is longer than [model] positions = ", positions,
           config.model.path.empty()
               ? "; raise positions (0 sets it to seq_len), or shorten seq_len"
               : concat(", those of the model at ", config.model.path, "; shorten seq_len"));
}

/// Throws UsageError if steps would differ in a value that a captured graph holds as a constant.
/// Does not check whether device and transport support capture: TrainStep does.
void validate_graphs(const Config& config) {
  if (!config.training.cuda_graph) return;
  const auto forbid = [](bool set, const char* key, const char* reason) {
    if (set)
      refuse("[training] cuda_graph = true and ", key, " exclude one another: ", reason,
             "; leave one of them out");
  };
  forbid(!config.output.trace.empty(), "[output] trace",
         "a captured step runs on the GPU alone, so the CPU cannot record its operations");
  forbid(config.parallelism.keep_weights == KeepWeights::step,
         "[parallelism] keep_weights = \"step\"",
         "a graph of one micro-batch cannot keep weights for that of the next, but \"micro_batch\" "
         "keeps them from forward to backward");
  const char* counted =
      "the number of targets that count varies per step, but a CUDA graph captures it as a "
      "constant";
  forbid(config.training.dtype == DType::f16 && config.training.loss_scale.fixed == 0,
         "[training] dtype = \"f16\" without loss_scale.fixed",
         "the scale of the loss changes, but a CUDA graph captures it as a constant");
  forbid(config.training.goldfish.k > 0, "[training] goldfish.k", counted);
  forbid(!config.training.batch_ramp.empty(), "[training] batch_ramp", counted);
  forbid(!config.training.batch_stages.empty(), "[training] batch_stages", counted);
  forbid(!config.data.jsonl.empty(), "[data] jsonl", counted);
  for (const Config& stage : stages_of(config))
    forbid(stage.training.seq_len != config.training.seq_len, "seq_len of a [[stage]]",
           "sequences change their length, but a CUDA graph captures it as a constant");
  const DocumentMode documents = config.data.documents;
  forbid(documents != DocumentMode::joined,
         concat("[data] documents = \"", kDocumentModes[static_cast<int>(documents)], '"').c_str(),
         counted);
  const LoraConfig& lora = config.model.lora;
  forbid(lora.dropout > 0 && (lora.rank > 0 || !lora.path.empty()), "[lora] dropout",
         "dropout draws new random numbers in each step, but a CUDA graph would repeat the "
         "captured ones");
}

/// Of a schedule that counts samples.
void validate_samples_of(const ScheduleConfig& schedule) {
  for (const auto& [key, value] :
       {std::pair{"warmup_steps", static_cast<double>(schedule.warmup_steps)},
        {"warmup_ratio", schedule.warmup_ratio},
        {"decay_steps", static_cast<double>(schedule.decay_steps)}})
    if (value > 0)
      refuse("[lr_scheduler] ", key, " = ", value, " counts steps, but another key counts ",
             "sequences; set warmup_samples, decay_samples and total_samples, or none of them");
  const std::int64_t total = schedule.total_samples;
  const std::int64_t decay = schedule.kind == ScheduleKind::wsd ? schedule.decay_samples : 0;
  if (total > 0 && (schedule.warmup_samples > total || decay > total - schedule.warmup_samples))
    refuse("[lr_scheduler] warmup_samples = ", schedule.warmup_samples,
           " and decay_samples = ", decay, " are more than total_samples = ", total,
           "; shorten one of them");
}

void validate_optimizer(const Config& config) {
  const OptimizerConfig& optimizer = config.optimizer;
  const OptimizerRule* const own = optimizer_rule_of(optimizer.kind);
  validate_own_values(optimizer.own_values, optimizer_kinds());
  if (own && own->validate) own->validate(optimizer);
  if (optimizer.kind == OptimizerKind::ademamix && optimizer.beta3_warmup > 0 &&
      optimizer.beta1 == 0)
    refuse("[optimizer] beta3_warmup = ", optimizer.beta3_warmup,
           " starts at beta1, which is 0; set beta1 above 0, or beta3_warmup to 0");
  const bool sgd = optimizer.kind == OptimizerKind::sgd;
  if (sgd && optimizer.sgd_nesterov &&
      (optimizer.sgd_momentum == 0 || optimizer.sgd_dampening != 0))
    refuse(
        "[optimizer] sgd_nesterov = true wants a momentum without dampening, as in PyTorch; set "
        "sgd_momentum, such as 0.9, and sgd_dampening = 0");
  if (optimizer.kind == OptimizerKind::schedule_free_adamw) {
    const char* const averages = " already averages the weights, which replaces a falling rate; ";
    if (config.lr_scheduler.kind != ScheduleKind::constant)
      refuse("[optimizer] kind = \"schedule_free_adamw\"", averages,
             "set [lr_scheduler] kind = \"constant\"");
    if (optimizer.ema_decay > 0)
      refuse("[optimizer] kind = \"schedule_free_adamw\"", averages, "set ema_decay = 0");
  }
  const bool keeps_moments = optimizer.kind != OptimizerKind::schedule_free_adamw &&
                             optimizer.kind != OptimizerKind::adafactor && !own;
  if (optimizer.moments != MomentType::f32 && !keeps_moments)
    refuse("[optimizer] kind = \"", optimizer_kinds()[static_cast<std::size_t>(optimizer.kind)],
           "\" keeps all of its state in f32; set moments = \"f32\", or kind to adamw, ademamix, "
           "muon, lion or sgd");
  const bool adam =
      optimizer.kind == OptimizerKind::adamw || optimizer.kind == OptimizerKind::ademamix;
  if (config.model.mup_base > 0 && !adam)
    refuse("[model] mup_base = ", config.model.mup_base,
           " has learning rates for Adam; set [optimizer] kind to adamw or ademamix, or mup_base "
           "to 0");
  const LoraConfig& lora = config.model.lora;
  if (optimizer.kind == OptimizerKind::muon && (lora.rank > 0 || !lora.path.empty()))
    refuse(
        "[optimizer] kind = \"muon\" orthogonalises whole matrices, but [lora] trains two factors "
        "of each matrix's change; set kind = \"adamw\", or train without [lora]");
}

void validate_clipping(const TrainingConfig& training) {
  if (training.clip_value > 0 && training.max_norm > 0)
    refuse("[training] clip_value = ", training.clip_value,
           " clips each element, but max_norm = ", training.max_norm,
           " clips their norm; set max_norm = 0, or leave clip_value out");
  if (training.cuda_graph && training.norm_type != 2)
    refuse("[training] cuda_graph = true and norm_type = ", training.norm_type,
           " exclude one another: a graph captures the norm with p = 2; leave one of them out");
}

void validate_schedule(const Config& config) {
  const ScheduleConfig& schedule = config.lr_scheduler;
  const std::int64_t steps = config.training.steps;
  if (schedule.counts_samples()) validate_samples_of(schedule);
  if (schedule.warmup_steps > 0 && schedule.warmup_ratio > 0)
    refuse("[lr_scheduler] warmup_steps = ", schedule.warmup_steps,
           " and warmup_ratio = ", schedule.warmup_ratio,
           " both set the length of the warm-up; leave one of them out");
  if (schedule.min_lr > config.optimizer.lr)
    refuse("[lr_scheduler] min_lr = ", schedule.min_lr,
           " is above [optimizer] lr = ", config.optimizer.lr, "; lower min_lr");
  if (steps == 0) return;  // until the data give them: with_steps()
  const std::int64_t warmup = warmup_steps(config);
  if (warmup > steps)
    refuse("[lr_scheduler] warmup_steps = ", warmup, " is more than [training] ", "steps = ", steps,
           "; shorten the warm-up");
  if (schedule.kind == ScheduleKind::wsd && warmup + schedule.decay_steps > steps)
    refuse("[lr_scheduler] warmup_steps = ", warmup, " and decay_steps = ", schedule.decay_steps,
           " are more than [training] steps = ", steps, "; shorten one of them");
}

void validate_samples(const Config& config) {
  const SamplesConfig& samples = config.samples;
  for (std::size_t i = 0; i < samples.prompts.size(); ++i)
    if (samples.prompts[i].empty())
      refuse("[samples] prompts: prompt ", i + 1, " is empty; give at least one character");
  if (samples.prompts.empty()) return;
  if (samples.chat && config.data.jsonl.empty())
    refuse(
        "[samples] chat = true needs the chat template of [data] jsonl, which is not set; leave ",
        "chat out, and the model goes on writing the prompts");
}

/// Refuses a key beside a loss of answers, such as "[rl] loss".
template <typename... Why>
void forbid_beside(const char* loss, bool is_set, const char* key, const Why&... why) {
  if (is_set) refuse(loss, ": ", key, ' ', why...);
}

/// Refuses what no training on answers does.
void validate_answers(const Config& config, const char* loss) {
  const auto forbid = [&](bool is_set, const char* key, const char* why) {
    forbid_beside(loss, is_set, key, why);
  };
  const LoraConfig& lora = config.model.lora;
  const char* const whole = "chooses or weighs targets, but answers count as a whole; leave it out";
  forbid(config.data.jsonl.empty() || !config.stage.empty(), "[data] jsonl",
         "must name the answers, without [[stage]]");
  forbid(config.data.mask_history, "[data] mask_history", whole);
  forbid(config.data.train_on_prompt, "[data] train_on_prompt", whole);
  forbid(config.training.goldfish.k > 0, "[training] goldfish.k", whole);
  forbid(config.training.z_loss > 0, "[training] z_loss", whole);
  forbid(config.training.verify_every > 0, "[training] verify_every",
         "repeats a pass without the weights of its answers; leave it out");
  forbid(lora.dropout > 0 && (lora.rank > 0 || !lora.path.empty()), "[lora] dropout",
         "would make the scores of answers random; set it to 0");
}

/// Refuses a loss that compares with the model itself if it is not there, or not without adapters.
/// `section`: with the key `reference`; `otherwise`: how to do without one.
void validate_own_reference(const Config& config, const std::string& section,
                            const std::string& otherwise) {
  const std::string loss = section + " loss", key = section + " reference";
  forbid_beside(loss.c_str(), config.model.path.empty(), key.c_str(),
                "is not set, and [model] path names no model that could be it; set one of them",
                otherwise);
  forbid_beside(loss.c_str(), !config.model.lora.path.empty(), "[lora] path",
                "continues adapters, and the reference is the model with them; merge them by "
                "'axonn export --merge' and name the result as ",
                key, otherwise);
}

void validate_pairs(const Config& config) {
  constexpr const char* kLoss = "[preference] loss";
  const PreferenceConfig& preference = config.preference;
  if (preference.loss == PreferenceLoss::none) return;
  validate_preference(preference);
  validate_answers(config, kLoss);
  forbid_beside(kLoss, preference.loss == PreferenceLoss::kto && config.training.global_batch < 2,
                "[training] global_batch",
                "must be at least 2, since kto compares an answer with those of the step's others");
  forbid_beside(kLoss, preference.use_weighting && config.model.logit_cap > 0, "use_weighting",
                "needs logits that are not capped, and this model caps them; leave it out");
  constexpr const char* kShared = "[preference] shared_prompt";
  forbid_beside(kShared, preference.shared_prompt && config.parallelism.context > 1,
                "[parallelism] context",
                "cuts sequences, of which an answer needs the whole prompt; set it to 1, or ",
                "shared_prompt to false");
  forbid_beside(kShared, preference.shared_prompt && !config.model.delta_layers.empty(),
                "[model] delta_layers",
                "are layers whose states go from row to row, so that the second answer would see ",
                "the first; set shared_prompt to false");
  if (has_reference(preference.loss) && preference.reference.empty())
    validate_own_reference(config, "[preference]", "");
}

void validate_rewards(const Config& config) {
  constexpr const char* kLoss = "[rl] loss";
  const RlConfig& rl = config.rl;
  if (rl.loss == PolicyLoss::none) return;
  validate_rl(rl);
  validate_answers(config, kLoss);
  const TrainingConfig& t = config.training;
  forbid_beside(kLoss, config.preference.loss != PreferenceLoss::none, "[preference] loss",
                "is another loss; leave one of them out");
  forbid_beside("[rl] loss = distill",
                rl.loss == PolicyLoss::distill && config.distill.teacher.empty(),
                "[distill] teacher", "is not set; name the model to learn from");
  forbid_beside(kLoss, t.global_batch * rl.steps_per_generation % rl.group != 0,
                "[training] global_batch", "= ", t.global_batch, " answers in ",
                rl.steps_per_generation,
                " steps of a generation are no whole groups of [rl] group = ", rl.group);
  forbid_beside(kLoss, !t.batch_ramp.empty() || !t.batch_stages.empty(), "[training] global_batch",
                "must be the same in all steps; leave batch_ramp and batch_stages out");
  forbid_beside(kLoss, rl.temperature != 1 && config.model.logit_cap > 0, "temperature",
                "divides logits, which this model caps; set it to 1");
  if (kl_of(rl) > 0 && rl.reference.empty())
    validate_own_reference(config, "[rl]", ", or set kl = 0");
}

/// Refuses what a training with a teacher does not do.
void validate_distill(const Config& config) {
  const DistillConfig& distill = config.distill;
  if (distill.teacher.empty()) return;
  if (distill.beta > 1) refuse("[distill] beta = ", distill.beta, "; wanted 0 to 1");
  if (distill.lmbda > 1) refuse("[distill] lmbda = ", distill.lmbda, "; wanted 0 to 1");
  if (distill.lmbda < 1 && config.rl.loss != PolicyLoss::distill)
    refuse("[distill] lmbda = ", distill.lmbda, " mixes answers of data.jsonl with those that the ",
           "run writes, and this run writes none; leave it out, or set rl.loss = \"distill\" ",
           "('axonn distill --on-policy')");
  if (distill.temperature <= 0)
    refuse("[distill] temperature = ", distill.temperature, "; wanted more than 0");
  if (config.preference.loss != PreferenceLoss::none)
    refuse("[distill] teacher and [preference] loss exclude each other; leave one of them out");
  if (config.rl.loss != PolicyLoss::none && config.rl.loss != PolicyLoss::distill)
    refuse("[distill] teacher and [rl] loss exclude each other; leave one of them out, or set ",
           "rl.loss = \"distill\" to learn from the teacher on answers of the run");
  if (distill.top_k > config.model.vocab)
    refuse("[distill] top_k = ", distill.top_k, " of a vocabulary of ", config.model.vocab,
           " tokens; lower it, or set it to 0 to count all by themselves");
  if (config.training.z_loss > 0)
    refuse("[distill] teacher: [training] z_loss is a term of the losses of tokens, which the ",
           "teacher replaces; set it to 0");
}

/// Refuses what a training of layers that predict further tokens does not do.
void validate_mtp(const Config& config) {
  const std::int64_t layers = config.model.mtp_layers;
  if (layers == 0) return;
  const auto forbid = [&](bool has, const char* key, const char* why) {
    if (has) refuse("[model] mtp_layers = ", layers, ": ", key, " ", why);
  };
  forbid(!config.model.is_llama(), "[model] family", "must be llama");
  forbid(config.parallelism.context > 1, "[parallelism] context",
         "cuts sequences, whose next tokens other ranks have; set it to 1");
  forbid(config.preference.loss != PreferenceLoss::none, "[preference] loss",
         "counts answers as a whole; leave it out, or set mtp_layers to 0");
  forbid(config.rl.loss != PolicyLoss::none, "[rl] loss",
         "weighs answers; leave it out, or set mtp_layers to 0");
  forbid(!config.distill.teacher.empty(), "[distill] teacher",
         "replaces the losses of tokens; leave it out, or set mtp_layers to 0");
  forbid(config.training.z_loss > 0, "[training] z_loss",
         "would count the logits of all layers; set it to 0");
}

void validate_batch(const Config& config) {
  const ParallelismConfig& grid = config.parallelism;
  const TrainingConfig& training = config.training;
  const std::int64_t places = std::int64_t{grid.z / grid.context} * grid.data,
                     share = batch_share(training.global_batch, places);
  if (training.micro_batch > share)
    refuse("[training] micro_batch = ", training.micro_batch, " is more than ", share,
           ", the most sequences that a rank has of global_batch = ", training.global_batch,
           " with [parallelism] z ", grid.z,
           grid.context > 1 ? concat(" / context ", grid.context) : "", " x data ", grid.data,
           "; lower it (0: as many as fit the batch)");
  if (batch_stages(training).size() > 1 && grid.automatic())
    refuse("[parallelism] grid = \"auto\" chooses a micro-batch for global_batch alone, but ",
           "batches change ([training] batch_ramp, batch_stages); name a grid");
  const std::int64_t micro =
      training.micro_batch > 0 ? training.micro_batch : largest_micro_batch(training, places);
  if (micro % grid.chunks != 0)
    refuse("[parallelism] chunks = ", grid.chunks, " does not divide the micro-batch of ", micro,
           " sequences; change chunks or [training] micro_batch");
}

/// Whether z and the model's experts can be cut among the ranks that share experts.
void validate_experts(const Config& config) {
  const int parts = config.parallelism.experts, z = config.parallelism.z;
  const std::int64_t experts = config.model.experts;
  if (parts > 1 && config.model.path.empty() && experts % parts != 0)
    refuse("[parallelism] experts = ", parts, " does not divide [model] experts = ", experts,
           "; set it to a divisor of both that and z");
  if (!config.parallelism.automatic() && z % parts != 0)
    refuse("[parallelism] experts = ", parts, " does not divide z = ", z,
           "; set it to a divisor of z");
}

/// Whether z and the sequences can be cut among the ranks that share sequences.
void validate_context(const Config& config) {
  const ParallelismConfig& grid = config.parallelism;
  if (grid.context == 1) return;
  if (grid.z % grid.context != 0)
    refuse("[parallelism] context = ", grid.context, " does not divide z = ", grid.z,
           "; set it to a divisor of z");
  for (const Config& stage : stages_of(config)) {
    const std::int64_t length = stage.training.seq_len;
    const std::string trouble = trouble_of_cut(length, grid.context);
    if (!trouble.empty())
      refuse(length == config.training.seq_len ? "[training]" : "a [[stage]]",
             " seq_len = ", length, ", [parallelism] context = ", grid.context, ": ", trouble);
  }
}

void validate_parallelism(const ParallelismConfig& parallelism) {
  validate_device(parallelism.device);
  constexpr std::int64_t kMostRanksInAll = std::int64_t{1} << 30;  // the number of ranks is an int
  std::int64_t ranks = 1;
  for (const int extent : {parallelism.x, parallelism.y, parallelism.z, parallelism.data}) {
    ranks *= extent;
    if (ranks > kMostRanksInAll)
      refuse("[parallelism] x ", parallelism.x, ", y ", parallelism.y, ", z ", parallelism.z,
             ", data ", parallelism.data, " are more than ", kMostRanksInAll, " ranks");
  }
}

/// Whether each value is one that its key accepts, as it is in a config that was read.
void validate_ranges(Config config) {
  OptionList list;
  list_options(config, list);
  for (const auto& section : list.sections()) {
    for (const Option& option : section.options) option.check();
    if (!section.entries) continue;
    section.entries->each([](const OptionList& entry) {
      for (const auto& one : entry.sections())
        for (const Option& option : one.options) option.check();
    });
  }
}

void validate_grid(const Config& config) {
  const ParallelismConfig& parallelism = config.parallelism;
  const std::string& name = parallelism.named_grid;
  if (name.empty()) return;
  const GridShape keys = parallelism.grid();
  const auto differs = [&](GridShape other) {
    other.context = keys.context;
    other.experts = keys.experts;
    return keys != other;
  };
  if (differs({}) && (parallelism.automatic() || differs(parse_grid(name))))
    refuse("[parallelism] grid = \"", name, "\" contradicts x ", keys.x, ", y ", keys.y, ", z ",
           keys.z, ", data ", keys.data, "; set either grid or the four keys");
  if (parallelism.automatic() && config.training.micro_batch > 0)
    refuse("[training] micro_batch = ", config.training.micro_batch,
           ": with grid = \"auto\" the planner chooses the micro-batch; leave micro_batch out, or "
           "name a grid");
}

void validate_quantized(const ModelConfig& model) {
  if (model.quantize != Quantization::none && model.lora.rank == 0 && model.lora.path.empty())
    refuse("[model] quantize = ", name_of(model.quantize),
           " keeps frozen weights, but without adapters all weights are trained: set [lora] rank, ",
           "such as 16, or leave quantize out");
}

}  // namespace

void validate_device(DeviceKind device) {
  if (!is_gpu(device)) return;
  const GpuPlatform& wanted = device == DeviceKind::hip ? kHip : kCuda;
  std::string trouble = trouble_of_build(wanted, gpu_platform());
  if (trouble.empty()) trouble = cuda_status().trouble;
  if (!trouble.empty())
    refuse("[parallelism] device = \"", wanted.device, "\": ", trouble,
           " (axonn info shows which devices there are)");
}

void validate_length(const Config& config) {
  validate_tokens(config.training);
  validate_schedule(config);
}

void validate(const Config& given) {
  validate_ranges(given);
  validate_grid(given);
  const Config config = with_named_grid(given);
  refuse_missing(config);
  validate(config.model);
  validate_quantized(config.model);
  validate_training(config);
  validate_stages(config);
  validate_graphs(config);
  validate_optimizer(config);
  validate_clipping(config.training);
  validate_schedule(config);
  validate_parallelism(config.parallelism);
  validate_context(config);
  validate_experts(config);
  validate_batch(config);
  validate_samples(config);
  validate_pairs(config);
  validate_rewards(config);
  validate_distill(config);
  validate_mtp(config);
  recomputed_blocks(config.activation_checkpoint);
  if (const double factor = config.checkpoint.keep_factor; factor != 0 && !(factor > 1))
    refuse("[checkpoint] keep_factor = ", factor,
           "; wanted more than 1, or 0 to keep no older ones");
  if (config.checkpoint.local_every > 0 && config.checkpoint.local_folder.empty())
    refuse(
        "[checkpoint] local_folder is empty; name a folder that every node has for itself, such ",
        "as \"/dev/shm/axonn\", or set local_every = 0");
  const OffloadConfig& offload = config.offload;
  if (!offload.dir.empty() && config.optimizer.kind == OptimizerKind::muon &&
      (offload.gradients || offload.optimizer))
    refuse(
        "[offload] and [optimizer] kind = \"muon\": muon updates matrices of all blocks together, "
        "with the gradients and moments of all in memory; set kind = \"adamw\", or [offload] "
        "gradients = false and optimizer = false");
  if (config.output.dir.empty())
    refuse("[output] dir is empty; name the folder that the run writes to, such as \"out/run\"");
}

}  // namespace axonn
