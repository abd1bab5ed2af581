// The keys of [optimizer] and [lr_scheduler].
#include <algorithm>

#include "axonn/foundation/base/check.h"
#include "axonn/run/config/config_options.h"
#include "axonn/run/config/optimizer_rules.h"

namespace axonn {

namespace {

constexpr std::string_view kMuonScales[] = {"rms", "shape"};
constexpr std::string_view kMuonCoefficients[] = {"keller", "schedule"};
constexpr std::string_view kMomentTypes[] = {"f32", "bf16", "8bit"};
constexpr std::string_view kAdafactorForms[] = {"paper", "pytorch"};
constexpr std::string_view kScheduleKinds[] = {"constant", "linear", "cosine", "wsd"};
constexpr std::string_view kDecayShapes[] = {"linear", "cosine", "1-sqrt"};

void list_state(OptimizerConfig& optimizer, OptionList& list) {
  list.add("ema_decay", &optimizer.ema_decay,
           {.help = "decay rate of running averages of the weights, which are saved, validated "
                    "(val_loss_ema) and exported (convert --ema); 0: none",
            .min = 0,
            .below = 1,
            .also = "ema ema_rate"});
  list.add(
      "moments", optimizer.moments, kMomentTypes,
      {.help = "how the running means of gradients and of their squares are kept, in 4, 2 or "
               "about 1 byte for each weight and mean; bf16: rounded at random; 8bit: as 8-bit "
               "Adam in bitsandbytes, but for vectors and matrices of less than 4096 elements",
       .also = "optim_bits state_bits"});
}

void list_ademamix(OptimizerConfig& optimizer, OptionList& list) {
  list.add("beta3", &optimizer.beta3,
           {.help = "decay rate of the slow running mean of gradients (ademamix)",
            .above = 0,
            .below = 1,
            .also = "ademamix_beta3"});
  list.add("alpha", &optimizer.alpha,
           {.help = "weight of the slow mean in the update; that of the fast one is 1 (ademamix)",
            .min = 0,
            .also = "ademamix_alpha"});
  list.add("alpha_warmup", &optimizer.alpha_warmup,
           {.help = "steps in which alpha rises linearly from 0; 0: no warm-up (ademamix)",
            .min = 0,
            .also = "ademamix_alpha_warmup t_alpha"});
  list.add(
      "beta3_warmup", &optimizer.beta3_warmup,
      {.help = "steps in which the slow mean's decay rate goes from beta1 to beta3, so that its "
               "half-life rises almost linearly; 0: no warm-up (ademamix)",
       .min = 0,
       .also = "ademamix_beta3_warmup t_beta3"});
}

void list_muon(OptimizerConfig& optimizer, OptionList& list) {
  list.add("momentum", &optimizer.momentum,
           {.help = "share of the momentum that a step keeps, before it adds the gradient (muon)",
            .min = 0,
            .below = 1,
            .also = "muon_momentum"});
  list.add(
      "nesterov", &optimizer.nesterov,
      {.help = "orthogonalise the gradient plus momentum times the new momentum, instead of the "
               "new momentum alone (muon)",
       .also = "muon_nesterov"});
  list.add(
      "muon_scale", optimizer.muon_scale, kMuonScales,
      {.help = "factor of the orthogonal updates; rms: 0.2 times the root of the longer side, "
               "for the rate and decay of adamw; shape: the root of rows / columns, at least 1",
       .also = "muon_scale_mode"});
  list.add(
      "muon_coefficients", optimizer.muon_coefficients, kMuonCoefficients,
      {.help = "coefficients of the Newton-Schulz steps; keller: (3.4445, -4.775, 2.0315) in "
               "each; schedule: others in each of five steps, which end closer to orthogonal"});
  list.add("muon_steps", &optimizer.muon_steps,
           {.help = "number of Newton-Schulz steps (muon)",
            .min = 1,
            .max = 20,
            .also = "muon_num_ns_steps ns_steps"});
}

void list_sgd(OptimizerConfig& optimizer, OptionList& list) {
  list.add("sgd_momentum", &optimizer.sgd_momentum,
           {.help = "share of the momentum that a step keeps, before it adds the gradient with its "
                    "weight decay, as PyTorch's SGD does; 0: no momentum (sgd)",
            .min = 0,
            .below = 1});
  list.add("sgd_nesterov", &optimizer.sgd_nesterov,
           {.help = "step by the gradient plus sgd_momentum times the new momentum, instead of the "
                    "new momentum alone (sgd)"});
  list.add(
      "sgd_dampening", &optimizer.sgd_dampening,
      {.help = "share of the gradient that the momentum leaves out, after the first step (sgd)",
       .min = 0,
       .max = 1,
       .also = "dampening"});
}

void list_adafactor(OptimizerConfig& optimizer, OptionList& list) {
  list.add("relative_step", &optimizer.relative_step,
           {.help = "in update t, counted from 1, the rate is at most 1 / sqrt(t), and at most lr; "
                    "false: it is lr (adafactor)"});
  list.add("scale_parameter", &optimizer.scale_parameter,
           {.help = "multiply the rate by the root mean square of each matrix's weights, at least "
                    "eps2 (adafactor)"});
  list.add("clip_threshold", &optimizer.clip_threshold,
           {.help = "largest root mean square of a matrix's step before its rate (adafactor)",
            .above = 0});
  list.add("beta2_decay", &optimizer.beta2_decay,
           {.help = "exponent of the second moment: update t, counted from 1, replaces t to the "
                    "beta2_decay of it (adafactor)",
            .max = 0,
            .also = "decay_rate"});
  list.add(
      "eps1", &optimizer.eps1,
      {.help = "added to squared gradients; with adafactor_form = \"pytorch\", whose default is "
               "1.19e-7, the least mean square and root of the second moment (adafactor)",
       .min = 1e-35});
  list.add("eps2", &optimizer.eps2,
           {.help = "least size of a matrix's weights by which scale_parameter multiplies the rate "
                    "(adafactor)",
            .min = 0});
  list.add("adafactor_beta1", &optimizer.adafactor_beta1,
           {.help = "decay rate of a running mean of the steps; 0: none, which saves its memory "
                    "(adafactor)",
            .min = 0,
            .below = 1});
  list.add("adafactor_form", optimizer.adafactor_form, kAdafactorForms,
           {.help = "what eps1 and weight_decay mean; paper, as in transformers: eps1 is added to "
                    "squares, and decay is multiplied by the whole rate; pytorch: eps1 is a lower "
                    "bound, and decay is multiplied by lr alone"});
}

}  // namespace

void set_adapter_defaults(Config& config, Origins& origins) {
  // As papers and programs that train adapters have them: the rate is ten times that of a whole
  // model, and decay would pull the factors, whose product is the change, towards no change.
  constexpr double kRate = 2e-4, kWarmup = 0.03, kDecay = 0;
  const LoraConfig& lora = config.model.lora;
  if (lora.rank == 0 && lora.path.empty()) return;
  const auto set = [&](const char* key, double& value, double suited) {
    if (origins.is_set(key)) return;
    value = suited;
    origins.set(key, "default of adapters");
  };
  set("optimizer.lr", config.optimizer.lr, kRate);
  set("optimizer.weight_decay", config.optimizer.weight_decay, kDecay);
  ScheduleConfig& schedule = config.lr_scheduler;
  if (!origins.is_set("lr_scheduler.warmup_steps") && !schedule.counts_samples())
    set("lr_scheduler.warmup_ratio", schedule.warmup_ratio, kWarmup);
}

void list_optimizer(OptimizerConfig& optimizer, OptionList& list) {
  list.section("optimizer", "How gradients update the weights");
  list.add(
      "kind", optimizer.kind, optimizer_kinds(),
      {.help =
           "update rule: adamw; ademamix, which adds a slow mean of gradients; muon, which "
           "orthogonalises the updates of hidden matrices and leaves the other parameters "
           "to adamw; sgd, with momentum if sgd_momentum is set; lion, which moves each weight "
           "by the sign of a mean of gradients; schedule_free_adamw, which evaluates an average "
           "of the weights in place of a falling rate; adafactor, which keeps second moments of "
           "rows and columns alone",
       .also = "name optim optimizer"});
  list.add("lr", &optimizer.lr,
           {.help = "peak learning rate, reached at the end of the warm-up; with adapters 2e-4 "
                    "if it is not set",
            .above = 0,
            .required = true,
            .also = "learning_rate max_lr"});
  list.add("beta1", &optimizer.beta1,
           {.help = "decay rate of the running mean of gradients (all but sgd and adafactor; of "
                    "muon's matrices, momentum is); of lion, the mean's share in the direction; of "
                    "schedule_free_adamw, the average's share in the weights of training",
            .min = 0,
            .below = 1,
            .also = "adam_beta1 betas"});
  list.add("beta2", &optimizer.beta2,
           {.help = "decay rate of the running mean of squared gradients (all but sgd, lion and "
                    "adafactor); "
                    "of lion, that of the mean of gradients, whose authors have 0.99",
            .min = 0,
            .below = 1,
            .also = "adam_beta2 betas"});
  list.add(
      "eps", &optimizer.eps,
      {.help = "added to the square root of the second moment before the division by it (all but "
               "sgd, lion and adafactor)",
       .above = 0,
       .also = "adam_eps adam_epsilon epsilon"});
  list.add("weight_decay", &optimizer.weight_decay,
           {.help = "decoupled weight decay of matrices, not of biases and norm weights; with "
                    "sgd_momentum it enters the momentum, as in PyTorch; 0: none; with adapters 0 "
                    "if it is not set",
            .min = 0,
            .also = "wd"});
  list_state(optimizer, list);
  list_ademamix(optimizer, list);
  list_muon(optimizer, list);
  list_sgd(optimizer, list);
  list_adafactor(optimizer, list);
  for (const OptimizerRule& rule : registered_optimizers())
    list_own_section(rule.name, optimizer.own_values, list, [&optimizer, &rule] {
      const std::string_view kind = optimizer_kinds()[static_cast<std::size_t>(optimizer.kind)];
      return kind == rule.name ? "" : concat("optimizer.kind is ", kind);
    });
}

void list_schedule(ScheduleConfig& schedule, OptionList& list) {
  list.section("lr_scheduler", "How the learning rate changes over the steps");
  list.add("kind", schedule.kind, kScheduleKinds,
           {.help = "learning rate after the warm-up; constant: stays at lr; linear, cosine: falls "
                    "to min_lr at the last step; wsd: stays at lr, then falls to min_lr over the "
                    "last decay_steps",
            .also = "lr_decay_style decay_type lr_scheduler_type"});
  list.add("warmup_steps", &schedule.warmup_steps,
           {.help = "steps in which the learning rate rises linearly to lr; 0: no warm-up",
            .min = 0,
            .also = "warmup_iters lr_warmup_iters num_warmup_steps"});
  list.add("warmup_ratio", &schedule.warmup_ratio,
           {.help = "length of the warm-up as a share of all steps, such as 0.03, in place of "
                    "warmup_steps; rounded up; 0: warmup_steps; with adapters 0.03 if neither is "
                    "set",
            .min = 0,
            .max = 1,
            .also = "lr_warmup_fraction warmup_fraction"});
  list.add(
      "min_lr", &schedule.min_lr,
      {.help = "learning rate of the last step after the warm-up, or from total_samples on; not "
               "used by constant",
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
