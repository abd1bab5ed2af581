#include "axonn/use/memorize/config.h"

#include <algorithm>

#include "axonn/data/corpus/batch_stages.h"
#include "axonn/foundation/base/check.h"
#include "axonn/foundation/options/options.h"
#include "axonn/run/config/batch_ramp.h"
#include "axonn/use/memorize/extraction.h"

namespace axonn {

namespace {

constexpr const char* kMemorize = "memorize";

void list_memorize(MemorizeConfig& memorize, OptionList& list) {
  list.section(kMemorize,
               "The memorization study of axonn memorize; no other command reads these keys");
  list.add("documents", &memorize.documents,
           {.help = "files or folders of documents, as data.text: each file of text, or each "
                    "{\"text\": ...} of JSON lines and tables, is one; empty: generated "
                    "records of people and numbers that no rule predicts",
            .reads = Reads::files});
  list.add(
      "bucket_size", &memorize.bucket_size,
      {.help = "number of documents in each bucket, drawn at random with training.seed", .min = 1});
  list.add("epochs", &memorize.epochs,
           {.help = "how many times each bucket's documents are trained on, one number per bucket; "
                    "a control bucket, which is never trained on, is added",
            .min = 1,
            .max = 1e6});
  list.add("suffix_tokens", &memorize.suffix_tokens,
           {.help = "length of the end of each document, which the model must recite",
            .unit = "tokens",
            .min = 1});
  list.add("prompt_lengths", &memorize.prompt_lengths,
           {.help = "further prompt lengths: only this many tokens before the suffix are shown; "
                    "the prompt of the whole document before it is always tested",
            .unit = "tokens",
            .min = 1});
  list.add("trials", &memorize.trials,
           {.help = "number of repetitions of the whole study, each with another seed",
            .min = 1,
            .max = 1000});
  list.add("losses", &memorize.losses,
           {.help = "losses to compare: standard, goldfish (with the settings of "
                    "training.goldfish), or both"});
  list.add("policies", &memorize.policies,
           {.help = "how a user samples, for the probability that the model writes a suffix: "
                    "\"greedy\", or temperature, top-k and top-p as in \"t=0.7,k=40,p=0.9\", of "
                    "which each may be left out"});
  list.add(
      "batch", &memorize.batch,
      {.help = "documents that a (z, data) coordinate recites at once; 0: as many as fit in 1 GiB",
       .min = 0});
  list.add("hold_weights", &memorize.hold_weights,
           {.help = "whether weights stay gathered over z while the model recites, which takes z "
                    "times their memory; false: they are gathered for every token, which is slow "
                    "for many documents"});
}

}  // namespace

bool MemorizeConfig::has_goldfish() const {
  return std::ranges::find(losses, kGoldfishLoss) != losses.end();
}

FurtherSection memorize_section(std::shared_ptr<MemorizeConfig> memorize) {
  return {.name = kMemorize,
          .list = [memorize](OptionList& list) { list_memorize(*memorize, list); },
          .unread = "only axonn memorize reads it"};
}

void validate_study(const Config& config, const MemorizeConfig& memorize) {
  const std::int64_t seq_len = config.training.seq_len;
  if (memorize.losses.empty())
    refuse("[memorize] losses is empty; set it to standard, goldfish or both");
  for (const std::string& loss : memorize.losses) {
    if (loss != MemorizeConfig::kStandardLoss && loss != MemorizeConfig::kGoldfishLoss)
      refuse("[memorize] losses has no choice '", loss, "'; the choices are standard and goldfish");
    if (std::ranges::count(memorize.losses, loss) > 1)
      refuse("[memorize] losses names ", loss, " twice");
  }
  parse_policies(memorize.policies, "[memorize] policies");
  if (memorize.has_goldfish() && config.training.goldfish.k == 0)
    refuse(
        "[memorize] losses has goldfish, but [training] goldfish.k is 0; set goldfish = {k = 2, "
        "h = 13}, or losses = [\"standard\"]");
  if (memorize.epochs.empty())
    refuse("[memorize] epochs is empty; give the epochs of each bucket, such as [1, 4, 6]");
  const std::int64_t longest =
      memorize.prompt_lengths.empty() ? 1 : std::ranges::max(memorize.prompt_lengths);
  if (longest + memorize.suffix_tokens > seq_len + 1)  // the last token is only a target
    refuse("[training] seq_len = ", seq_len, " has no room for a prompt of ", longest,
           " tokens and [memorize] suffix_tokens = ", memorize.suffix_tokens,
           "; documents are cut to seq_len + 1 tokens");
  if (config.training.patience > 0)
    refuse("[training] patience = ", config.training.patience,
           " would end some trainings of a study before others, which could not be compared; leave "
           "it out");
  if (!config.stage.empty())
    refuse(
        "[memorize] injects documents into the data of one training; name them in [data], and "
        "leave out [[stage]]");
  if (batch_stages(config.training).size() > 1 || config.lr_scheduler.counts_samples())
    refuse(
        "[memorize] injects documents at counted places of equal steps; leave out [training] "
        "batch_ramp and batch_stages, and [lr_scheduler] warmup_samples, decay_samples and "
        "total_samples");
  if (config.training.epochs > 0)
    refuse("[training] epochs = ", toml_number(config.training.epochs),
           ": a study counts its steps itself, since documents are injected; set steps");
  if (warmup_steps(config) >= config.training.steps)
    refuse("[lr_scheduler] warmup_steps = ", warmup_steps(config),
           " leaves none of [training] steps = ", config.training.steps,
           " for the documents, which are injected after the warm-up");
}

}  // namespace axonn
