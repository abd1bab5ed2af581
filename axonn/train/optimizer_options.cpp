// The keys of [optimizer] and [lr_scheduler].
#include "axonn/train/config_options.h"

namespace axonn {

namespace {

constexpr std::string_view kOptimizerKinds[] = {"adamw", "sgd"};
constexpr std::string_view kScheduleKinds[] = {"constant", "linear", "cosine", "wsd"};

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

}  // namespace axonn
