#include "axonn/run/config/preference.h"

#include <algorithm>
#include <cmath>
#include <numbers>
#include <numeric>

#include "axonn/foundation/base/check.h"
#include "axonn/run/config/logistic.h"

namespace axonn {

namespace {

double log_logistic(double u) { return std::min(u, 0.0) - std::log1p(std::exp(-std::abs(u))); }
double logistic_slope(double u) { return logistic(u) * logistic(-u); }

/// What the formulas are written in.
struct PairTerms {
  double beta, smoothing, gamma;
  double c, r;                        ///< minus the reference, if the loss has one
  double chosen_size, rejected_size;  ///< tokens

  double margin() const { return beta * (c - r); }
  double mean_margin() const { return beta * (c / chosen_size - r / rejected_size); }
};

/// A function of one number, and its derivative.
struct Slope {
  double value, d;
};

/// The loss of a function of margin().
PairLoss of_margin(const PairTerms& t, const Slope& f) {
  return {f.value, t.beta * f.d, -t.beta * f.d};
}
/// The loss of a function of mean_margin(), or of that and a constant.
PairLoss of_mean_margin(const PairTerms& t, const Slope& f) {
  return {f.value, t.beta * f.d / t.chosen_size, -t.beta * f.d / t.rejected_size};
}

/// -(1 - e) ls(u) - e ls(-u).
Slope smoothed(double u, double e) {
  return {-(1 - e) * log_logistic(u) - e * log_logistic(-u),
          -(1 - e) * logistic(-u) + e * logistic(u)};
}

PairLoss dpo(const PairTerms& t) { return of_margin(t, smoothed(t.margin(), 0)); }
PairLoss cdpo(const PairTerms& t) { return of_margin(t, smoothed(t.margin(), t.smoothing)); }
PairLoss sigmoid_norm(const PairTerms& t) {
  return of_mean_margin(t, smoothed(t.mean_margin(), 0));
}
PairLoss simpo(const PairTerms& t) {
  return of_mean_margin(t, smoothed(t.mean_margin() - t.gamma, t.smoothing));
}

PairLoss robust(const PairTerms& t) {
  const double u = t.margin(), e = t.smoothing, share = 1 - 2 * e;
  return of_margin(t, {(-(1 - e) * log_logistic(u) + e * log_logistic(-u)) / share,
                       (-(1 - e) * logistic(-u) - e * logistic(u)) / share});
}

PairLoss hinge(const PairTerms& t) {
  const double u = t.margin();
  return of_margin(t, {std::max(0.0, 1 - u), u < 1 ? -1.0 : 0.0});
}

PairLoss ipo(const PairTerms& t) {
  const double d = t.c / t.chosen_size - t.r / t.rejected_size - 1 / (2 * t.beta);
  return {d * d, 2 * d / t.chosen_size, -2 * d / t.rejected_size};
}

PairLoss exo_pair(const PairTerms& t) {
  const double u = t.margin(), of_right = std::log1p(-t.smoothing),
               of_wrong = std::log(t.smoothing);
  return of_margin(
      t, {logistic(u) * (log_logistic(u) - of_right) + logistic(-u) * (log_logistic(-u) - of_wrong),
          logistic_slope(u) * (u + of_wrong - of_right)});
}

PairLoss nca_pair(const PairTerms& t) {
  const double c = t.beta * t.c, r = t.beta * t.r;
  return {-log_logistic(c) - (log_logistic(-c) + log_logistic(-r)) / 2,
          t.beta * (logistic(c) / 2 - logistic(-c)), t.beta * logistic(r) / 2};
}

PairLoss bco_pair(const PairTerms& t) {
  const double c = t.beta * t.c, r = t.beta * t.r;
  return {-log_logistic(c) - log_logistic(-r), -t.beta * logistic(-c), t.beta * logistic(r)};
}

PairLoss sppo_hard(const PairTerms& t) {
  const double half = 1 / (2 * t.beta), c = t.c - half, r = t.r + half;
  return {c * c + r * r, 2 * c, 2 * r};
}

PairLoss apo_zero(const PairTerms& t) {
  const double c = t.beta * t.c, r = t.beta * t.r;
  return {logistic(-c) + logistic(r), -t.beta * logistic_slope(c), t.beta * logistic_slope(r)};
}

PairLoss apo_down(const PairTerms& t) {
  const double c = t.beta * t.c, u = t.margin(), slope = logistic_slope(u);
  return {logistic(c) + logistic(-u), t.beta * (logistic_slope(c) - slope), t.beta * slope};
}

PairLoss discopop(const PairTerms& t) {
  constexpr double kTemperature = 0.05;
  const double u = t.margin(), h = logistic(u / kTemperature),
               d_h = logistic_slope(u / kTemperature) / kTemperature;
  return of_margin(t, {-log_logistic(u) * (1 - h) + std::exp(-u) * h,
                       -logistic(-u) * (1 - h) + log_logistic(u) * d_h + std::exp(-u) * (d_h - h)});
}

/// These two unlearn the rejected answer, whatever the chosen one is.
PairLoss ascent(const PairTerms& t) { return {t.r / t.rejected_size, 0, 1 / t.rejected_size}; }
PairLoss npo(const PairTerms& t) {
  const double r = t.beta * t.r;
  return {-2 * log_logistic(-r) / t.beta, 0, 2 * logistic(r)};
}

/// log(1 - e^mean) of a negative number.
double log_rest(double mean) {
  return mean > -std::numbers::ln2 ? std::log(-std::expm1(mean)) : std::log1p(-std::exp(mean));
}

PairLoss orpo(const PairTerms& t) {
  const double c = t.c / t.chosen_size, r = t.r / t.rejected_size,
               odds = (c - r) - (log_rest(c) - log_rest(r)), d = t.beta * logistic(-odds);
  return {-t.beta * log_logistic(odds), d / (std::expm1(c) * t.chosen_size),
          -d / (std::expm1(r) * t.rejected_size)};
}

/// The function of the logarithm of policy over reference that the divergence has for it.
Slope of_divergence(const PreferenceConfig& config, double c) {
  constexpr double kMost = 80, kLeast = 1e-6;  // of the exponent, and of a - 1, as TRL has them
  const double power = config.f_alpha_divergence_coef - 1;
  switch (config.f_divergence_type) {
    case Divergence::reverse_kl:
      break;
    case Divergence::forward_kl:
      return {-std::expm1(-c), std::exp(-c)};
    case Divergence::js_divergence:
      return {std::numbers::ln2 + log_logistic(c), logistic(-c)};
    case Divergence::alpha_divergence:
      if (std::abs(power) < kLeast) break;
      return {std::expm1(std::min(power * c, kMost)) / power,
              power * c > kMost ? 0 : std::exp(power * c)};
  }
  return {c, 1};
}

struct LossEntry {
  PairLoss (*loss)(const PairTerms&);  ///< null: none, or not of pairs
  bool reference, smoothing, margin;   ///< margin: reads c - r, or their means
};

/// In the order of PreferenceLoss.
constexpr std::array<LossEntry, kPreferenceLosses.size()> kLosses = {
    {{nullptr, false, false, false},    {dpo, true, false, true},
     {cdpo, true, true, true},          {ipo, true, false, true},
     {hinge, true, false, true},        {robust, true, true, true},
     {sigmoid_norm, true, false, true}, {exo_pair, true, true, true},
     {nca_pair, true, false, false},    {bco_pair, true, false, false},
     {sppo_hard, true, false, false},   {apo_zero, true, false, false},
     {apo_down, true, false, false},    {discopop, true, false, true},
     {cdpo, false, true, false},        {hinge, false, false, false},
     {ipo, false, false, false},        {simpo, false, true, false},
     {orpo, false, false, false},       {nullptr, true, false, false},
     {nullptr, true, false, false},     {nullptr, true, true, false},
     {nullptr, true, true, false},      {ascent, true, false, false},
     {npo, true, false, false}}};

std::string_view name_of(PreferenceLoss loss) {
  return kPreferenceLosses[static_cast<std::size_t>(loss)];
}
const LossEntry& entry_of(PreferenceLoss loss) { return kLosses[static_cast<std::size_t>(loss)]; }

}  // namespace

bool is_dpo_kind(PreferenceLoss loss) { return has_reference(loss) && !reads_labels(loss); }
bool reads_margin(PreferenceLoss loss) { return entry_of(loss).margin; }
bool has_reference(PreferenceLoss loss) { return entry_of(loss).reference; }
bool smooths_labels(PreferenceLoss loss) { return entry_of(loss).smoothing; }

std::vector<WeightedLoss> weighted_losses(const PreferenceConfig& config) {
  std::vector<WeightedLoss> all{{config.loss, 1}};
  for (const std::string& name : config.more_losses) {
    const auto found = std::ranges::find(kPreferenceLosses, name);
    if (found == kPreferenceLosses.end())
      refuse("[preference] more_losses: there is no loss '", name, "'; those of pairs with a ",
             "reference can be added, such as bco_pair");
    all.push_back({static_cast<PreferenceLoss>(found - kPreferenceLosses.begin()), 1});
  }
  for (std::size_t i = 0; i < std::min(all.size(), config.loss_weights.size()); ++i)
    all[i].weight = config.loss_weights[i];
  return all;
}

bool sorts_pairs(const PreferenceConfig& config) {
  return std::ranges::any_of(
      weighted_losses(config), [](PreferenceLoss loss) { return sorts_pairs(loss); },
      &WeightedLoss::loss);
}

AnswerData answer_data(const Config& config) {
  if (config.rl.loss != PolicyLoss::none)
    return {.kind = AnswerData::Kind::rollouts,
            .group = config.rl.group,
            .mixed = config.rl.loss == PolicyLoss::distill && config.distill.lmbda < 1};
  const PreferenceLoss loss = config.preference.loss;
  if (loss == PreferenceLoss::none) return {};
  return {.kind = reads_labels(loss) ? AnswerData::Kind::labels : AnswerData::Kind::pairs,
          .with_prompt = loss == PreferenceLoss::orpo,
          .shared_prompt = config.preference.shared_prompt,
          .block = std::max<std::int64_t>(2, config.training.global_batch),
          .max_length = config.preference.max_length};
}

namespace {

/// Refuses sums of losses that there are not.
void validate_sum(const PreferenceConfig& config) {
  const auto losses = weighted_losses(config);
  for (const auto& [loss, weight] : losses) {
    if (losses.size() > 1 && !is_dpo_kind(loss))
      refuse("[preference] more_losses: the loss ", name_of(loss),
             " cannot be one of several; those of pairs with a reference can, and the loss of the ",
             "chosen answers' tokens by sft_weight");
    if (!(weight >= 0) || !std::isfinite(weight))
      refuse("[preference] loss_weights = ", weight, " must be 0 or more");
  }
  if (!config.loss_weights.empty() && config.loss_weights.size() != losses.size())
    refuse("[preference] loss_weights has ", config.loss_weights.size(), " numbers for ",
           losses.size(), " losses; give one for loss and one for each of more_losses");
}

/// Refuses what only losses of pairs with a reference read.
void validate_dpo_keys(const PreferenceConfig& config) {
  const auto refuse_key = [&](bool is_set, const char* key, const char* remedy) {
    if (is_set)
      refuse("[preference] ", key, ": the loss ", name_of(config.loss), " does not read it; ",
             remedy);
  };
  const bool own = is_dpo_kind(config.loss);
  const char* const leave_out = "leave it out, or choose a loss of pairs with a reference";
  refuse_key(config.sft_weight > 0 && !own, "sft_weight",
             reads_alpha(config.loss) ? "its key is cpo_alpha" : leave_out);
  refuse_key(config.ld_alpha != 1 && !own, "ld_alpha", leave_out);
  refuse_key(config.use_weighting && !own, "use_weighting", leave_out);
  for (const auto& [loss, weight] : weighted_losses(config))
    if (config.f_divergence_type != Divergence::reverse_kl && !reads_margin(loss))
      refuse("[preference] f_divergence_type: the loss ", name_of(loss),
             " does not read it; leave it out, or choose dpo, cdpo, ipo, hinge, robust, ",
             "sigmoid_norm, exo_pair or discopop");
  refuse_key(!config.more_losses.empty() && !own, "more_losses", leave_out);
  if (config.use_weighting && sorts_pairs(config))
    refuse(
        "[preference] use_weighting weighs pairs, which aot and aot_unpaired sort; leave one of ",
        "them out");
  if (!(config.ld_alpha >= 0 && config.ld_alpha <= 1))
    refuse("[preference] ld_alpha = ", config.ld_alpha, " must be from 0 to 1");
  if (config.use_weighting && config.sft_weight > 0)
    refuse(
        "[preference] use_weighting weighs pairs, which the loss of sft_weight is not of; leave ",
        "one of them out");
  if (config.max_length < 0 || config.max_length == 1)
    refuse("[preference] max_length = ", config.max_length, " must be at least 2, or 0 for all");
}

}  // namespace

void validate_preference(const PreferenceConfig& config) {
  const std::string_view name = name_of(config.loss);
  const double e = config.label_smoothing;
  if (!(config.beta > 0) || !std::isfinite(config.beta))
    refuse("[preference] beta = ", config.beta, " must be a positive number, such as 0.1");
  if (!(e >= 0 && e < 0.5))
    refuse("[preference] label_smoothing = ", e, " must be 0 or more and less than 0.5");
  validate_sum(config);
  const auto losses = weighted_losses(config);
  if (e > 0 && std::ranges::none_of(losses, smooths_labels, &WeightedLoss::loss))
    refuse("[preference] label_smoothing: the loss ", name,
           " does not read it; leave it out, or choose cdpo, robust, exo_pair, aot, aot_unpaired, ",
           "cpo or simpo");
  validate_dpo_keys(config);
  if (config.alpha != 0 && !reads_alpha(config.loss))
    refuse("[preference] alpha: the loss ", name,
           " does not read it; leave it out, or choose cpo, ", "cpo_hinge, cpo_ipo or simpo");
  if (e == 0 &&
      std::ranges::find(losses, PreferenceLoss::exo_pair, &WeightedLoss::loss) != losses.end())
    refuse("[preference] label_smoothing = 0: the loss exo_pair takes its logarithm; set it, such ",
           "as to 0.001");
}

namespace {

/// AlphaPO's function of the log-probability of an answer, or of the mean of its tokens.
Slope with_alpha(const PreferenceConfig& config, const AnswerScore& answer) {
  const double size = uses_means(config.loss) ? static_cast<double>(answer.tokens) : 1,
               l = answer.policy / size, a = config.alpha;
  if (a == 0) return {answer.policy, 1};
  return {-size * std::expm1(-a * l) / a, std::exp(-a * l)};
}

PairLoss loss_of(const LossEntry& entry, const PreferenceConfig& config, const AnswerScore& chosen,
                 const AnswerScore& rejected) {
  const auto score = [&](const AnswerScore& answer) {
    return entry.reference ? of_divergence(config, answer.policy - answer.reference)
                           : with_alpha(config, answer);
  };
  const Slope c = score(chosen), r = score(rejected);
  const PairLoss loss = entry.loss({.beta = config.beta,
                                    .smoothing = config.label_smoothing,
                                    .gamma = config.simpo_gamma,
                                    .c = c.value,
                                    .r = r.value,
                                    .chosen_size = static_cast<double>(chosen.tokens),
                                    .rejected_size = static_cast<double>(rejected.tokens)});
  return {loss.value, loss.d_chosen * c.d, loss.d_rejected * r.d};
}

/// The pairs' numbers in the order of `of` a pair.
template <typename Of>
std::vector<std::size_t> order_by(std::size_t count, const Of& of) {
  std::vector<std::size_t> order(count);
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::ranges::stable_sort(order, {}, of);
  return order;
}

}  // namespace

PairLoss preference_loss(const PreferenceConfig& config, const AnswerScore& chosen,
                         const AnswerScore& rejected) {
  AXONN_CHECK(chosen.tokens > 0 && rejected.tokens > 0, "preference_loss: answers of ",
              chosen.tokens, " and ", rejected.tokens, " tokens, wanted at least one in each");
  PairLoss sum;
  for (const auto& [loss, weight] : weighted_losses(config)) {
    const LossEntry& entry = entry_of(loss);
    if (sorts_pairs(loss)) continue;
    AXONN_CHECK(entry.loss, "preference_loss: the loss is ", name_of(loss),
                ", which is not one of pairs; set [preference] loss");
    const PairLoss one = loss_of(entry, config, chosen, rejected);
    sum.value += weight * one.value;
    sum.d_chosen += weight * one.d_chosen;
    sum.d_rejected += weight * one.d_rejected;
  }
  return sum;
}

std::vector<PairLoss> sorted_losses(const PreferenceConfig& config,
                                    std::span<const std::array<AnswerScore, 2>> pairs) {
  std::vector<PairLoss> sums(pairs.size());
  const auto ratio = [&](std::size_t i, std::size_t side) {
    return pairs[i][side].policy - pairs[i][side].reference;
  };
  const auto policy = [&](std::size_t i) { return pairs[i][0].policy - pairs[i][1].policy; };
  const auto reference = [&](std::size_t i) {
    return pairs[i][0].reference - pairs[i][1].reference;
  };
  const auto chosen = [&](std::size_t i) { return ratio(i, 0); };
  const auto rejected = [&](std::size_t i) { return ratio(i, 1); };
  for (const auto& [loss, weight] : weighted_losses(config)) {
    if (!sorts_pairs(loss)) continue;
    const bool paired = loss == PreferenceLoss::aot;
    const auto first = paired ? order_by(pairs.size(), policy) : order_by(pairs.size(), chosen),
               second =
                   paired ? order_by(pairs.size(), reference) : order_by(pairs.size(), rejected);
    for (std::size_t k = 0; k < pairs.size(); ++k) {
      const double d =
          paired ? policy(first[k]) - reference(second[k]) : chosen(first[k]) - rejected(second[k]);
      const Slope slope = smoothed(config.beta * d, config.label_smoothing);
      PairLoss& of_first = sums[first[k]];
      of_first.value += weight * slope.value;
      of_first.d_chosen += weight * config.beta * slope.d;
      // The reference is constant, so of aot the pair's own rejected answer moves.
      sums[paired ? first[k] : second[k]].d_rejected -= weight * config.beta * slope.d;
    }
  }
  return sums;
}

double reward_of(const PreferenceConfig& config, const AnswerScore& answer) {
  const double size = uses_means(config.loss) ? static_cast<double>(answer.tokens) : 1;
  const double reference = has_reference(config.loss) ? answer.reference : 0;
  return config.beta * (with_alpha(config, answer).value / size - reference);
}

AnswerLoss answer_loss(const PreferenceConfig& config, const AnswerScore& answer, bool good,
                       double divergence) {
  AXONN_CHECK(reads_labels(config.loss), "answer_loss: the loss is ", name_of(config.loss),
              ", which is not one of labelled answers; set [preference] loss");
  const double sign = good ? 1 : -1,
               weight = good ? config.desirable_weight : config.undesirable_weight,
               shift = config.loss == PreferenceLoss::kto ? std::max(0.0, divergence) : 0,
               u = sign * config.beta * (answer.policy - answer.reference - shift);
  return {weight * logistic(-u), -weight * sign * config.beta * logistic_slope(u)};
}

}  // namespace axonn
