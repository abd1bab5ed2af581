// What the reader of a config answers to keys that it does not know.
#include <set>

#include <gmock/gmock.h>

#include "axonn/foundation/base/check.h"
#include "axonn/foundation/options/options.h"
#include "axonn/foundation/options/options_text.h"
#include "axonn/run/config/config.h"
#include "axonn/run/config/config_options.h"
#include "axonn/run/config/unused_keys.h"
#include "axonn/run/config/validate.h"
#include "axonn/use/memorize/config.h"

using namespace axonn;
using testing::Contains;
using testing::ElementsAre;
using testing::HasSubstr;

namespace {

/// The keys of all sections that the program knows.
struct AllKeys {
  Config config{.further = {memorize_section()}};
  OptionList list;

  AllKeys() { list_options(config, list); }
};

/// Returns every word that is one insertion, deletion, replacement or swap away.
std::set<std::string> single_edits(const std::string& word) {
  const std::string letters = "abcdefghijklmnopqrstuvwxyz0123456789_-";
  std::set<std::string> edits;
  for (std::size_t i = 0; i <= word.size(); ++i) {
    const std::string head = word.substr(0, i), tail = word.substr(i);
    for (const char letter : letters) {
      edits.insert(head + letter + tail);
      if (!tail.empty()) edits.insert(head + letter + tail.substr(1));
    }
    if (!tail.empty()) edits.insert(head + tail.substr(1));
    if (tail.size() > 1) edits.insert(head + tail[1] + tail[0] + tail.substr(2));
  }
  edits.erase(word);
  return edits;
}

}  // namespace

TEST(ConfigKeys, OfLocalCheckpointsThatNothingReadsOrThatNameNoFolderAreNamed) {
  AllKeys keys;
  Origins origins;
  read_toml_text(keys.list, "[checkpoint]\nlocal_folder = \"\"\nlocal_node_ranks = 4\n", "a.toml",
                 origins);
  EXPECT_THAT(warnings(keys.config, origins),
              ElementsAre(HasSubstr("checkpoint.local_folder (a.toml:2:1) has no effect: "
                                    "checkpoint.local_every is 0"),
                          HasSubstr("checkpoint.local_node_ranks (a.toml:3:1) has no effect")));
  Config config;
  config.model = {.layers = 2, .hidden = 96, .heads = 24};
  config.data.synthetic = 1000;
  config.training.steps = 10;
  config.training.seq_len = 16;
  config.training.global_batch = 24;
  config.optimizer.lr = 1e-3;
  config.checkpoint.local_folder = "";
  validate(config);
  config.checkpoint.local_every = 1;
  EXPECT_THAT([&] { validate(config); },
              testing::ThrowsMessage<UsageError>(HasSubstr("[checkpoint] local_folder is empty")));
}

TEST(ConfigKeys, NamesOfOtherProjectsAreAnsweredWithTheKeyHere) {
  AllKeys keys;
  const OptionList& list = keys.list;
  const std::vector<std::pair<std::string, std::string>> names = {
      {"per_device_train_batch_size", "micro_batch"},
      {"micro_batch_size", "micro_batch"},
      {"gradient_accumulation_steps", "global_batch"},
      {"global_batch_size", "global_batch"},
      {"max_steps", "steps"},
      {"train_iters", "steps"},
      {"sequence_len", "seq_len"},
      {"max_seq_length", "seq_len"},
      {"cutoff_len", "seq_len"},
      {"learning_rate", "lr"},
      {"warmup_ratio", "warmup_steps"},
      {"lr_warmup_iters", "warmup_steps"},
      {"lr_scheduler_type", "kind"},
      {"optim", "kind"},
      {"max_grad_norm", "max_norm"},
      {"save_steps", "every"},
      {"save_total_limit", "keep"},
      {"eval_steps", "eval_every"},
      {"logging_steps", "log_every"},
      {"output_dir", "dir"},
      {"base_model", "path"},
      {"model_name_or_path", "path"},
      {"lora_r", "rank"},
      {"lora_target_modules", "targets"},
      {"datasets", "data.jsonl"},
      {"val_set_size", "validation"},
      {"sample_packing", "data.documents"},
      {"gradient_checkpointing", "mode"},
      {"tensor_model_parallel_size", "x"},
      {"G_intra_r", "x"},
      {"G_intra_c", "y"},
      {"G_intra_d", "z"},
      {"G_data", "data"},
      {"G_inter", "no pipeline stages"},
      {"cache_weights_in_all_gather", "keep_weights"},
      {"fsdp_reshard_after_forward", "keep_weights"},
      {"sequence_parallel", "always"},
      {"expert_tensor_parallel_size", "parallelism.experts"},
      {"deepspeed", "parallelism.z"},
      {"pipeline_model_parallel_size", "parallelism.x"}};
  for (const auto& [name, key] : names)
    EXPECT_THAT([&] { refuse_key(list, "training", name, "here"); },
                testing::ThrowsMessage<UsageError>(testing::HasSubstr(key)))
        << name;
}

TEST(ConfigKeys, ATypoOfOneEditIsGuessedForEveryKey) {
  // One edit of these keys may also be one edit of their twin; then all nearest keys are named.
  const std::vector<std::set<std::string>> alike = {{"x", "y", "z"},
                                                    {"beta1", "beta2", "beta3"},
                                                    {"eps", "eps1", "eps2"},
                                                    {"n", "p"},
                                                    {"goldfish.k", "goldfish.h"},
                                                    {"momentum", "moments"},  // momentm
                                                    {"desirable_weight", "undesirable_weight"},
                                                    {"cpo_alpha", "sft_weight"},  // rpo_alpha
                                                    {"head_dim", "v_head_dim"},
                                                    {"kv_lora_rank", "q_lora_rank"},
                                                    {"qk_nope_head_dim", "qk_rope_head_dim"}};
  AllKeys keys;
  const OptionList& list = keys.list;
  int edits = 0, typos = 0;
  for (const auto& section : list.sections())
    for (const Option& option : section.options)
      for (const std::string& typo : single_edits(option.name())) {
        if (++edits % 8 != 0) continue;               // all would take ten seconds
        if (list.find(section.name, typo)) continue;  // the edit gives another valid key
        const auto guesses = guess_key(list, section.name, typo);
        ++typos;
        ASSERT_THAT(guesses, Contains(option.name())) << section.name << " '" << typo << "'";
        for (const std::string& guess : guesses) {
          if (guess == option.name() || guess.starts_with('[')) continue;
          const bool twins = std::ranges::any_of(alike, [&](const auto& names) {
            return names.contains(option.name()) && names.contains(guess);
          });
          ASSERT_TRUE(twins) << section.name << " '" << typo << "' is guessed as " << guess;
        }
      }
  EXPECT_GT(typos, 2'500);
}

TEST(ConfigKeys, ATypoOfOneEditIsGuessedForEverySection) {
  AllKeys keys;
  const OptionList& list = keys.list;
  ASSERT_GT(list.sections().size(), 5u);
  for (const auto& section : list.sections())
    for (const std::string& typo : single_edits(section.name)) {
      const std::string want = "; did you mean [" + section.name + "]?";
      EXPECT_THAT([&] { refuse_section(list, typo, "a.toml:1:1"); },
                  testing::ThrowsMessage<UsageError>(testing::EndsWith(want)));
    }
}

TEST(ConfigKeys, NamesOfOtherProjectsLeadToOurKeys) {
  AllKeys keys;
  const OptionList& list = keys.list;
  EXPECT_THAT(guess_key(list, "training", "learning_rate"), ElementsAre("[optimizer] lr"));
  EXPECT_THAT(guess_key(list, "model", "n_embd"), ElementsAre("hidden"));
  EXPECT_THAT(guess_key(list, "training", "batch_size"),
              ElementsAre("global_batch", "micro_batch"));
  EXPECT_THAT(guess_key(list, "training", "weight_decay"), ElementsAre("[optimizer] weight_decay"));
}

TEST(ConfigKeys, EveryKeyHasAHelpText) {
  AllKeys keys;
  const OptionList& list = keys.list;
  ASSERT_GT(list.sections().size(), 5u);
  for (const auto& section : list.sections())
    for (const Option& option : section.options) {
      EXPECT_GT(option.info().help.size(), 8u) << option.key();
      EXPECT_FALSE(option.info().help.ends_with('.')) << option.key();
      EXPECT_THAT(help_for(list, option.key()), HasSubstr("--" + option.key() + " VALUE"));
    }
}
