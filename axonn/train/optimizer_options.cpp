// The keys of [optimizer] and [lr_scheduler].
#include "axonn/train/config_options.h"

namespace axonn {

namespace {

constexpr std::string_view kOptimizerKinds[] = {"adamw", "sgd"};
constexpr std::string_view kScheduleKinds[] = {"constant", "linear", "cosine", "wsd"};
constexpr std::string_view kDecayShapes[] = {"linear", "cosine", "1-sqrt"};

}  // namespace

void list_optimizer(OptimizerConfig& optimizer, OptionList& list) {
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
}

void list_schedule(ScheduleConfig& schedule, OptionList& list) {
  list.section("lr_scheduler", "How the learning rate changes over the steps");
  list.add("kind", schedule.kind, kScheduleKinds,
           {.help = "learning rate after the warm-up; constant: stays at lr; linear, cosine: falls "
                    "to min_lr at the last step; wsd: stays at lr, then falls to min_lr over the "
                    "last decay_steps",
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
  list.add("decay", schedule.decay, kDecayShapes,
           {.help = "curve of wsd's final decay, by the share r of it that is done: 1-sqrt falls "
                    "as 1 - sqrt(r), fast at first",
            .also = "lr_wsd_decay_style"});
  list.add("warmup_samples", &schedule.warmup_samples,
           {.help = "warm-up as the number of sequences consumed before a step, in place of "
                    "warmup_steps; the first step then has a learning rate of 0",
            .unit = "sequences",
            .min = 0,
            .also = "lr_warmup_samples"});
  list.add("decay_samples", &schedule.decay_samples,
           {.help = "length of wsd's final decay, in place of decay_steps; 0: a tenth of "
                    "total_samples",
            .unit = "sequences",
            .min = 0,
            .also = "lr_wsd_decay_samples"});
  list.add("total_samples", &schedule.total_samples,
           {.help = "number of consumed sequences at which min_lr is reached, if the schedule "
                    "counts sequences; 0: those of all steps",
            .unit = "sequences",
            .min = 0,
            .also = "lr_decay_samples train_samples"});
}

}  // namespace axonn
