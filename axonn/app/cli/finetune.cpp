#include <algorithm>
#include <array>
#include <filesystem>
#include <iostream>
#include <limits>

#include <CLI/CLI.hpp>
#include <fmt/format.h>

#include "axonn/app/cli/command.h"
#include "axonn/app/cli/flags.h"
#include "axonn/app/cli/train.h"
#include "axonn/compute/ops/cpu/instructions.h"
#include "axonn/data/corpus/corpus.h"
#include "axonn/data/corpus/files/jsonl.h"
#include "axonn/data/corpus/files/text_reader.h"
#include "axonn/data/corpus/packing.h"
#include "axonn/data/corpus/preferences/pair_sequences.h"
#include "axonn/data/corpus/rollouts/rollout_lines.h"
#include "axonn/foundation/base/check.h"
#include "axonn/foundation/base/files.h"
#include "axonn/foundation/options/options_text.h"
#include "axonn/network/model/model_files.h"
#include "axonn/run/config/preference.h"
#include "axonn/run/config/resolve.h"
#include "axonn/run/config/run_text.h"
#include "axonn/run/config/stored_config.h"
#include "axonn/run/load/devices.h"
#include "axonn/run/load/launch.h"

namespace axonn {

namespace {

namespace fs = std::filesystem;

constexpr const char* kExamples =
    R"(It is axonn train with defaults for fine-tuning, and prints the same command of axonn train.
Any key of a configuration can be given as a flag and overrides a default.

Examples:
  axonn finetune Qwen3-0.6B chats.jsonl
      adapters (LoRA) for a Hugging Face folder: three epochs of conversations
  axonn finetune Qwen3-0.6B chats.jsonl --dry-run
      memory, steps and the first sample, without training
  axonn finetune Qwen3-0.6B chats.jsonl --training.epochs 1 --lora.rank 64 --output.dir out/r64
      other values of some keys
  axonn finetune out/laptop-llama/checkpoints notes.txt --full
      all weights, on plain text

Exit codes: as for axonn train.)";

constexpr const char* kPairExamples =
    R"(It is axonn train with defaults for preferences, and prints the same command of axonn train.
Lines of DATA have "prompt", "chosen" and "rejected" or, for the loss kto, "prompt", "completion"
and "label". Any key can be given as a flag.

Examples:
  axonn prefer Qwen3-0.6B pairs.jsonl
      adapters (LoRA) by DPO against the model itself
  axonn prefer out/chats/merged pairs.jsonl --full --preference.loss simpo --preference.beta 2
      all weights, by another loss

Exit codes: as for axonn train.)";

constexpr const char* kTeacherExamples =
    R"(It is axonn train with defaults for distillation, and prints the same command of axonn train.
The teacher must have the tokens of the model. Any key can be given as a flag.

Examples:
  axonn distill Qwen3-0.6B chats.jsonl --teacher Qwen3-4B
      adapters (LoRA) that learn the teacher's distributions of the answers' tokens
  axonn distill small/checkpoints text.txt --teacher large/checkpoints --full --distill.beta 0
      all weights, by the divergence from the teacher (forward KL)
  axonn distill Qwen3-0.6B prompts.jsonl --teacher Qwen3-4B --on-policy
      on answers that the model itself writes to prompts, by the reverse divergence

Exit codes: as for axonn train.)";

constexpr const char* kRewardExamples =
    R"(It is axonn train with defaults for rewards, and prints the same command of axonn train.
Lines of DATA have a "prompt", to which the run writes answers, or recorded ones with
"completion_ids" and "rewards". Any key can be given as a flag.

Examples:
  axonn reinforce Qwen3-0.6B prompts.jsonl --rl.rewards number
      adapters (LoRA) by DAPO's loss; the last number of an answer is compared with "answer"
  axonn reinforce Qwen3-0.6B prompts.jsonl --rl.reward_program "python3 reward.py" --rl.loss grpo
      rewards of a program
  axonn reinforce Qwen3-0.6B answers.jsonl --rl.group 16 --rl.kl 0.04 --full
      recorded answers, all weights, held to the model as it was

Exit codes: as for axonn train.)";

/// What a model learns from: each kind has a command.
enum class Tuning { examples, pairs, teacher, rewards };

constexpr const char* command_of(Tuning kind) {
  constexpr const char* kCommands[] = {"axonn finetune", "axonn prefer", "axonn distill",
                                       "axonn reinforce"};
  return kCommands[static_cast<int>(kind)];
}

/// Whether the data are answers, which a loss of their own compares.
constexpr bool has_answers(Tuning kind) { return kind == Tuning::pairs || kind == Tuning::rewards; }

struct FinetuneFlags {
  std::string model, data, teacher;      ///< teacher: of axonn distill
  bool full = false, on_policy = false;  ///< on_policy: of axonn distill
  Tuning kind = Tuning::examples;
  TrainFlags train;
};

/// The key of [data] that reads such a file.
std::string data_key(const std::string& path) {
  if (is_json_lines(path)) return "data.jsonl";
  if (is_folder(path))
    return std::ranges::any_of(text_files({path}), holds_answers) ? "data.jsonl" : "data.text";
  const bool tokens = ends_in(path, ".bin") || ends_in(path, ".npy") || path_exists(path + ".idx");
  return tokens ? "data.tokens" : "data.text";
}

/// The key of [data] for the data of a command.
std::string data_key(const FinetuneFlags& flags) {
  return has_answers(flags.kind) ? "data.jsonl" : data_key(flags.data);
}

/// "Qwen3-0.6B-chats" for the model ".../Qwen3-0.6B" and the data "chats.jsonl". A model in a run's
/// folder has the name of the run.
std::string name_of(const FinetuneFlags& flags) {
  const auto is_part = [](const std::string& name) {
    return name.empty() || name == "checkpoints" || name == "best" || name.starts_with("step-");
  };
  fs::path model = fs::absolute(flags.model).lexically_normal();
  while (model.has_relative_path() && is_part(model.filename())) model = model.parent_path();
  std::string data = fs::path(flags.data).lexically_normal().filename();
  data = data.substr(0, data.find('.'));
  std::erase_if(data, [](char c) { return c == '*' || c == '?'; });
  return model.filename().string() + (data.empty() ? "" : "-") + data;
}

/// The command that tries the model of a run that has ended.
std::string command_to_try(const Config& config) {
  const std::string result = config.output.dir + "/checkpoints";
  const bool adapters = config.model.lora.rank > 0;
  const std::string model = adapters ? config.model.path : result, adapter = adapters ? result : "";
  const bool tokenizer = !config_of_model(model, adapter).data.tokenizer.empty();
  return concat("axonn generate --model ", shell_word(model),
                adapters ? concat(" --adapter ", shell_word(adapter)) : "",
                tokenizer ? "" : " --tokenizer DIR",
                learns_conversations(config.data) ? " --chat" : " --prompt TEXT");
}

constexpr std::int64_t kMostTokens = 2048, kBatchOfFinetune = 8, kEpochsOfFinetune = 3;

/// The length of a run.
struct RunLength {
  std::int64_t seq_len, batch, epochs;
};

/// The length, or, if it makes fewer than a hundred steps of the config's few examples, which teach
/// a model nothing, one with sequences no longer than the longest example needs, then a smaller
/// batch, then more epochs. Reads files of up to 32 MiB; larger ones have enough.
RunLength length_for(const RunLength& usual, const Config& config) {
  constexpr std::int64_t kMostBytes = std::int64_t{32} << 20, kEnoughSteps = 100, kMostEpochs = 10,
                         kRound = 64;
  std::int64_t bytes = 0, longest = 0;
  for (const std::string& file : example_files(config.data.jsonl)) bytes += InputFile(file).bytes();
  if (bytes > kMostBytes) return usual;
  const Corpus corpus = open_corpus(config.data, {});
  const DocumentRange& documents = corpus.train_documents;
  for (std::int64_t d = documents.begin; d < documents.end; ++d)
    longest = std::max(longest, documents.documents->size(d));
  const std::int64_t coordinates = batch_coordinates(with_named_grid(config).parallelism.grid());
  if (config.data.answers.any()) {  // each is a sequence, and two documents
    const PairSequences pairs(documents, std::numeric_limits<std::int64_t>::max(), 0,
                              corpus.excess_length, config.data.answers);
    longest = 0;
    for (std::int64_t n = 0; n < pairs.count(); ++n)
      longest = std::max(longest, pairs.size(n).inputs);
  }
  const auto sequences_of = [&](std::int64_t seq_len) {
    if (config.data.answers.any()) return (documents.end - documents.begin) / 2;
    return PackedDocuments(documents, seq_len, 0, corpus.excess_length).count();
  };
  const std::int64_t usual_steps = sequences_of(usual.seq_len) * usual.epochs / usual.batch;
  // Without coordinates the grid is none, which is refused next.
  if (usual_steps >= kEnoughSteps || coordinates < 1) return usual;
  RunLength length = usual;
  length.seq_len = std::min(length.seq_len, (longest + kRound - 1) / kRound * kRound);
  const std::int64_t sequences = sequences_of(length.seq_len);
  const auto steps = [&] { return sequences * length.epochs / length.batch; };
  // Labelled answers are compared with those of their batch.
  const bool shrinks = config.data.answers.kind != AnswerData::Kind::labels;
  while (shrinks && length.batch % (2 * coordinates) == 0 && steps() < kEnoughSteps)
    length.batch /= 2;
  while (length.epochs < kMostEpochs && steps() < kEnoughSteps) ++length.epochs;
  if (speaks_for_all())
    std::cerr << fmt::format(
        "note: {} examples make {} steps with sequences of {} tokens, {} a step, and {} epochs; "
        "with the usual {}, {} and {} they would make {}\n",
        (documents.end - documents.begin) / (config.data.answers.any() ? 2 : 1), steps(),
        length.seq_len, length.batch, length.epochs, usual.seq_len, usual.batch, usual.epochs,
        usual_steps);
  return length;
}

/// Once over answers with rewards, or prompts: sequences as long as the longest needs, and steps of
/// whole groups, of at most 64 answers.
RunLength length_for_answers(const RunLength& usual, const Config& config) {
  constexpr std::int64_t kMostAnswers = 64, kRound = 64;
  const std::int64_t group = config.rl.group, parts = config.rl.steps_per_generation;
  const Corpus corpus = open_corpus(config.data, {});
  std::int64_t longest = 0, most = kMostAnswers;
  if (corpus.prompts)
    for (const Prompt& one : corpus.prompts->prompts)
      longest = std::max({longest, std::ssize(one.tokens) + config.rl.max_tokens - 1,
                          std::ssize(one.given.prompt) + std::ssize(one.given.answer) - 1});
  if (corpus.rollouts) {
    most = std::min(most, std::ssize(corpus.rollouts->answers) / parts);
    for (const Rollout& one : corpus.rollouts->answers)
      longest = std::max(longest, std::ssize(one.prompt) + std::ssize(one.answer) - 1);
  }
  return {.seq_len = std::min(usual.seq_len, (longest + kRound - 1) / kRound * kRound),
          .batch = std::max(group, most / group * group),
          .epochs = 1};
}

/// Fills a config that has the user's flags.
class Defaults {
 public:
  explicit Defaults(LoadedConfig& loaded) : loaded_(loaded) { list_options(loaded.config, list_); }

  const OptionList& list() const { return list_; }

  void fill(const FinetuneFlags& flags) {
    origin_ = command_of(flags.kind);
    set("model.path", flags.model);
    set(data_key(flags), flags.data);
    if (flags.kind == Tuning::pairs) set("preference.loss", "dpo");
    if (flags.kind == Tuning::teacher) set("distill.teacher", flags.teacher);
    if (flags.kind == Tuning::rewards) set("rl.loss", "dapo");
    if (flags.on_policy) {
      set("rl.loss", "distill");
      set("rl.group", "1");
      set("distill.beta", "1");
    }
    loaded_.config.data.answers = answer_data(loaded_.config);
    if (!has_answers(flags.kind) && !flags.on_policy) set("data.validation", "0.05");
    const std::int64_t positions = ModelFiles(flags.model).config().positions;
    fill_length(positions > 0 ? std::min(positions, kMostTokens) : kMostTokens);
    if (!loaded_.config.parallelism.automatic()) set("training.micro_batch", "1");
    const bool fast =
        !gpus_for(loaded_.config.parallelism.device).empty() || cpu::library_multiplies_bf16();
    set("training.dtype", fast ? "bf16" : "f32");
    if (has_answers(flags.kind))
      fill_answers(flags.full);
    else if (!flags.on_policy)
      set("training.eval_every", "50");
    flags.full ? fill_full() : fill_adapters();
    set("output.dir", "out/" + name_of(flags));
  }

  /// The command of `axonn train` with the values that were set.
  std::string command() const {
    std::string text = "axonn train";
    for (const OptionList::Section& section : list_.sections())
      for (const Option& option : section.options)
        if (is_set(option.key()))
          text += concat(" \\\n    --", option.key(), ' ', flag_value(option));
    return text;
  }

 private:
  bool is_set(const std::string& key) const { return loaded_.origins.is_set(key); }

  void set(const std::string& key, const std::string& value) {
    if (is_set(key)) return;
    const std::size_t dot = key.find('.');
    list_.find(key.substr(0, dot), key.substr(dot + 1))->set_text(value, origin_);
    loaded_.origins.set(key, origin_);
  }

  /// Sets the sequences, the batch and the epochs, by the data if the user leaves all of them open.
  void fill_length(std::int64_t longest) {
    RunLength length{longest, kBatchOfFinetune, kEpochsOfFinetune};
    const std::array keys{"training.seq_len", "training.global_batch", "training.epochs",
                          "training.steps"};
    const bool open = std::ranges::none_of(keys, [&](const char* key) { return is_set(key); });
    if (open && !loaded_.config.data.jsonl.empty() && !loaded_.config.parallelism.automatic()) {
      Config config = with_stored_model(loaded_.config, loaded_.origins);
      config.training.global_batch = length.batch;
      config.data.answers = answer_data(config);
      length = config.data.answers.kind == AnswerData::Kind::rollouts
                   ? length_for_answers(length, config)
                   : length_for(length, config);
    }
    if (!is_set("training.steps")) set("training.epochs", std::to_string(length.epochs));
    set("training.seq_len", std::to_string(length.seq_len));
    set("training.global_batch", std::to_string(length.batch));
  }

  void fill_adapters() {
    if (!is_set("lora.path")) set("lora.rank", "16");
    const std::int64_t rank = loaded_.config.model.lora.rank;
    if (rank > 0) set("lora.alpha", std::to_string(2 * rank));
    set_adapter_defaults(loaded_.config, loaded_.origins);
  }

  /// Rates a tenth of those of examples, so that the model stays close to its reference.
  void fill_answers(bool full) {
    set("optimizer.lr", full ? "1e-6" : "1e-5");
    set("optimizer.weight_decay", "0");
  }

  /// A tenth of the rate of adapters or less, so that the model keeps what it knows.
  void fill_full() {
    set("optimizer.lr", "1e-5");
    set("optimizer.weight_decay", "0");
    if (!is_set("lr_scheduler.warmup_steps") && !loaded_.config.lr_scheduler.counts_samples())
      set("lr_scheduler.warmup_ratio", "0.03");
  }

  LoadedConfig& loaded_;
  const char* origin_ = "";
  OptionList list_;
};

/// Runs axonn finetune, axonn prefer, axonn distill or axonn reinforce.
int run_tuning(CLI::App& app, FinetuneFlags flags, const Arguments& arguments) {
  app.add_option("MODEL", flags.model, "a Hugging Face folder or checkpoints (model.path)")
      ->required()
      ->type_name("DIR");
  app.add_option("DATA", flags.data,
                 flags.kind == Tuning::rewards ? "prompts, or answers with rewards (data.jsonl)"
                 : flags.kind == Tuning::pairs
                     ? "pairs of answers, or answers with labels (data.jsonl)"
                     : "conversations (.jsonl: data.jsonl), text (data.text) or tokens "
                       "(.bin: data.tokens)")
      ->required()
      ->type_name("FILE");
  if (flags.kind == Tuning::teacher)
    app.add_option("--teacher", flags.teacher,
                   "the model to learn from, a Hugging Face folder or checkpoints "
                   "(distill.teacher)")
        ->required()
        ->type_name("DIR");
  if (flags.kind == Tuning::teacher)
    app.add_flag("--on-policy", flags.on_policy,
                 "DATA are prompts, and the model learns on answers that it writes itself "
                 "(rl.loss = distill)");
  app.add_flag("--full", flags.full, "train all weights instead of adapters");
  add_train_flags(app, flags.train);
  LoadedConfig loaded;
  Defaults defaults(loaded);
  const Arguments own = read_flags(defaults.list(), arguments, loaded.origins);
  if (!parse_flags(app, own, &defaults.list())) return 0;
  defaults.fill(flags);
  const bool speaks = speaks_for_all();
  flags.train.note = "note: the same command is\n  " + defaults.command();
  const int code = run_training(loaded, flags.train);
  if (code != 0 || flags.train.print || flags.train.dry || !speaks) return code;
  std::cout << "to try it: " << command_to_try(loaded.config) << '\n';
  return code;
}

}  // namespace

int run_finetune(const Arguments& arguments) {
  CLI::App app("Fine-tunes a model on a file of conversations or text.", "axonn finetune");
  app.footer(kExamples);
  return run_tuning(app, {}, arguments);
}

int run_prefer(const Arguments& arguments) {
  CLI::App app("Trains a model on answers of which some are better than others.", "axonn prefer");
  app.footer(kPairExamples);
  return run_tuning(app, {.kind = Tuning::pairs}, arguments);
}

int run_reinforce(const Arguments& arguments) {
  CLI::App app("Trains a model on its own answers, which have rewards.", "axonn reinforce");
  app.footer(kRewardExamples);
  return run_tuning(app, {.kind = Tuning::rewards}, arguments);
}

int run_distill(const Arguments& arguments) {
  CLI::App app("Trains a model to have the distributions of a teacher.", "axonn distill");
  app.footer(kTeacherExamples);
  return run_tuning(app, {.kind = Tuning::teacher}, arguments);
}

}  // namespace axonn
