#include "axonn/run/train/policy_term.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <utility>

#include <nlohmann/json.hpp>

#include "axonn/data/corpus/batches.h"
#include "axonn/foundation/base/check.h"
#include "axonn/network/nn/loss.h"
#include "axonn/ranks/parallel/scheduling.h"
#include "axonn/ranks/parallel/stored_values.h"
#include "axonn/ranks/parallel/whole_rows.h"

namespace axonn {

namespace {

using Values = std::vector<std::vector<double>>;

/// Sums over all ranks what one rank of each batch coordinate has, and the others lack.
void share(const Grid& grid, Values& values) {
  std::vector<double> flat;
  for (const std::vector<double>& one : values) flat.insert(flat.end(), one.begin(), one.end());
  if (!grid.leads_batch_coordinate()) std::ranges::fill(flat, 0);
  grid.world().all_reduce(buffer(std::span(flat)), "log-probabilities").wait();
  auto next = flat.begin();
  for (std::vector<double>& one : values) {
    std::copy_n(next, one.size(), one.begin());
    next += std::ssize(one);
  }
}

}  // namespace

PolicyTerm::PolicyTerm(const RlConfig& config, PolicyData data)
    : config_(config), data_(std::move(data)) {
  if (data_.file && !data_.sampler) name_rewards();
}

void PolicyTerm::name_rewards() {
  check_reward_names(config_, data_.file->reward_names);
  reward_metrics_.clear();
  for (const std::string& name : data_.file->reward_names)
    reward_metrics_.push_back({"rewards/" + name + "/mean", "rewards/" + name + "/std"});
}

std::string PolicyTerm::graph_obstacle() const {
  return weighs_answers(config_) ? kWeighsInStep : std::string();
}

std::vector<std::uint8_t> PolicyTerm::counting(const Rollout& rollout) const {
  const bool none = config_.mask_truncated && rollout.truncated;
  return none ? std::vector<std::uint8_t>(rollout.counts.size(), 0) : rollout.counts;
}

double PolicyTerm::tokens_of(std::int64_t number) const {
  const std::vector<std::uint8_t> counted = counting(rollout(number));
  return std::accumulate(counted.begin(), counted.end(), 0.0);
}

void PolicyTerm::attach_temperature(Context& ctx) const {
  if (config_.temperature == 1) return;
  ctx.attach(
      std::make_shared<LogitFactor>(LogitFactor{static_cast<float>(1 / config_.temperature)}));
}

std::vector<std::int64_t> PolicyTerm::numbers_of(std::int64_t step) const {
  const GenerationSteps& steps = data_.sequences->steps();
  std::vector<std::int64_t> numbers(steps.answers);
  std::iota(numbers.begin(), numbers.end(),
            data_.sequences->first_of(steps.generation(step)) + steps.first(step));
  return numbers;
}

std::vector<PolicyTerm::Answer> PolicyTerm::answers_of(const Context& ctx, Model& model,
                                                       const Tokens& tokens) const {
  Context pass = ctx;
  attach_temperature(pass);
  const Tensor losses = model.target_losses(pass, tokens);
  if (!ctx.device().keeps_values() || !data_.file || tokens.numbers.empty()) return {};
  const WholeRows whole(ctx, tokens.rows);
  const auto targets = whole.gather(stored_values<std::int32_t>(ctx, tokens.targets));
  const auto of_rows = whole.gather(stored_values<float>(ctx, losses), losses.cols());
  const std::int64_t length = whole.positions();
  std::vector<Answer> answers(tokens.rows.sequences);
  for (std::int64_t s = 0; s < tokens.rows.sequences; ++s) {
    const auto first = targets.begin() + s * length, end = first + length;
    const auto found = std::find_if(first, end, [](std::int32_t target) { return target >= 0; });
    if (found == end) continue;  // padding
    Answer& answer = answers[s];
    answer.number = tokens.numbers[s];
    answer.first_row = found - targets.begin();
    for (std::size_t t = 0; t < rollout(answer.number).answer.size(); ++t) {
      const float* const of_row = &of_rows[losses.cols() * (answer.first_row + t)];
      answer.policy.push_back(-static_cast<double>(of_row[0]));
      if (losses.cols() > 2) answer.entropy.push_back(of_row[2]);
    }
  }
  return answers;
}

std::vector<std::vector<double>> PolicyTerm::scores(const Context& ctx, Model& model,
                                                    Batches& batches, std::int64_t n) const {
  const GenerationSteps& steps = data_.sequences->steps();
  Values all(steps.of_generation());
  for (std::size_t i = 0; i < all.size(); ++i)
    all[i].assign(rollout(first() + static_cast<std::int64_t>(i)).answer.size(), 0);
  StepState state;
  Context pass = ctx;
  pass.own_scheduling().step = &state;
  for (std::int64_t part = 0; part < steps.parts; ++part) {
    const std::shared_ptr<const Batch> batch = batches.at(n + part);
    for (const MicroBatch& micro : batch->micro_batches) {
      state.prefetcher.begin_pass();
      state.more_micro_batches = part + 1 < steps.parts || &micro != &batch->micro_batches.back();
      for (Answer& answer : answers_of(pass, model, make_tokens(ctx, micro)))
        if (answer.number >= 0) all.at(answer.number - first()) = std::move(answer.policy);
    }
  }
  share(ctx.grid, all);
  return all;
}

void PolicyTerm::find_advantages() {
  generation_.rewards.clear();
  generation_.divergences.clear();
  for (std::int64_t i = 0; i < data_.sequences->steps().of_generation(); ++i) {
    const Rollout& one = rollout(first() + i);
    double reward = reward_sum(config_, one.rewards);
    if (config_.loss == PolicyLoss::rloo && needs_reference()) {
      const std::vector<std::uint8_t> counted = counting(one);
      double divergence = 0;
      for (std::size_t t = 0; t < counted.size(); ++t)
        if (counted[t] != 0)
          divergence += generation_.old.at(i)[t] - generation_.reference.at(i)[t];
      reward -= kl_of(config_) * divergence;
      generation_.divergences.push_back(divergence);
    }
    generation_.rewards.push_back(reward);
  }
  generation_.advantages = config_.reward_sum == RewardSum::normalize_then_sum
                               ? advantages_of_each(config_, rewards_of_each())
                               : advantages(config_, generation_.rewards);
}

std::vector<std::vector<double>> PolicyTerm::rewards_of_each() const {
  std::vector<std::vector<double>> all;
  for (std::int64_t i = 0; i < data_.sequences->steps().of_generation(); ++i)
    all.push_back(rollout(first() + i).rewards);
  return all;
}

bool PolicyTerm::begin_generation(Context ctx, Model& model, Batches& batches, std::int64_t n) {
  if (!data_.file) return false;
  const GenerationSteps& steps = data_.sequences->steps();
  if (generation_.number == steps.generation(n)) return false;
  generation_ = {.number = steps.generation(n)};
  const std::int64_t begin = n - n % steps.steps();
  AXONN_CHECK(begin == n || !keeps_generation(), "step ", n + 1,
              " is within a generation whose policy is not known");
  if (data_.sampler) {
    cost_ = data_.sampler->write(generation_.number, *data_.written);
    if (weighs_answers(config_) && config_.batch_invariant && !data_.batch_invariant &&
        reward_metrics_.empty())
      cost_.warnings.push_back(
          "rl.batch_invariant: on this device a token's products depend on how many others are "
          "computed with it, so that its log-probability in training is another one than when it "
          "was written; sampling/sampling_logp_difference tells by how much");
    name_rewards();
  }
  const bool of_rewards = config_.loss == PolicyLoss::rloo && needs_reference();
  if (needs_old(config_) || of_rewards) generation_.old = scores(ctx, model, batches, begin);
  if (needs_reference())
    generation_.reference =
        scores(data_.reference->context(), data_.reference->model(), batches, begin);
  find_advantages();
  return true;
}

std::string PolicyTerm::lines(const Tokenizer* tokenizer) const {
  std::string text;
  for (std::size_t i = 0; i < data_.file->answers.size(); ++i)
    text += rollout_line(data_.file->answers[i], data_.file->reward_names,
                         generation_.advantages.at(i), tokenizer);
  return text;
}

std::string PolicyTerm::state() const {
  if (generation_.number < 0 || !keeps_generation()) return "";
  nlohmann::json state{{"generation", generation_.number},
                       {"old", generation_.old},
                       {"reference", generation_.reference}};
  if (data_.sampler) state["answers"] = lines(nullptr);
  return state.dump();
}

void PolicyTerm::set_state(std::string_view json, std::int64_t n, const std::string& location) {
  const GenerationSteps& steps = data_.sequences->steps();
  const auto value = nlohmann::json::parse(json, nullptr, false);
  Generation read;
  try {
    read.number = value.at("generation").get<std::int64_t>();
    read.old = value.at("old").get<Values>();
    read.reference = value.at("reference").get<Values>();
    if (data_.sampler)
      *data_.written = parse_rollouts(value.at("answers").get<std::string>(), location);
  } catch (const nlohmann::json::exception&) {
    refuse(location, " does not hold the log-probabilities of a generation; it is damaged");
  }
  if (read.number != steps.generation(n)) return;  // the next one begins
  generation_ = std::move(read);
  for (const Values* of : {&generation_.old, &generation_.reference}) {
    bool fits = of->empty() || std::ssize(*of) == steps.of_generation();
    for (std::size_t i = 0; i < of->size() && fits; ++i)
      fits = (*of)[i].size() == rollout(first() + static_cast<std::int64_t>(i)).answer.size();
    if (!fits)
      refuse(location, ": its log-probabilities are not those of the answers of data.jsonl; go on ",
             "with the same data, training.global_batch, rl.steps_per_generation and ",
             "rl.iterations");
  }
  if (data_.sampler) name_rewards();
  find_advantages();
}

void PolicyTerm::score(const Context& ctx, Model& model, const Tokens& tokens, int micro) {
  if (micro == 0) micros_.clear();
  Micro& mine = micros_.emplace_back();
  mine.weights = ctx.empty(tokens.rows.count(), 1, DType::f32);
  if (config_.entropy_coef > 0) mine.bonus = ctx.empty(tokens.rows.count(), 2, DType::f32);
  if (!data_.file && data_.reference) {  // made-up rows: what a generation computes
    StepState state;
    Context pass = data_.reference->context();
    pass.own_scheduling().step = &state;
    answers_of(pass, data_.reference->model(), tokens);
  }
  Context own = ctx;
  own.attach(std::make_shared<TargetEntropies>());
  mine.answers = answers_of(own, model, tokens);
  if (!mine.answers.empty()) mine.rows = WholeRows(ctx, tokens.rows);
}

PolicyDivisors PolicyTerm::divisors(std::span<const std::int64_t> numbers) const {
  PolicyDivisors by{.answers = static_cast<double>(numbers.size())};
  if (config_.loss == PolicyLoss::bnpo) {
    for (const std::int64_t number : numbers) by.tokens += tokens_of(number);
    return by;
  }
  const GenerationSteps& steps = data_.sequences->steps();
  for (std::int64_t i = 0; i < steps.of_generation(); ++i) by.tokens += tokens_of(first() + i);
  by.tokens /= static_cast<double>(steps.parts);
  return by;
}

EntropyRule PolicyTerm::rule_of_step(const Grid& grid) const {
  double tokens = 0;
  for (const std::int64_t number : numbers_) tokens += tokens_of(number);
  std::vector<double> entropies;
  if (config_.top_entropy_quantile < 1) {
    Values all;
    for (const std::int64_t number : numbers_) all.emplace_back(rollout(number).answer.size());
    for (const Micro& micro : micros_)
      for (const Answer& answer : micro.answers)
        if (answer.number >= 0) all.at(answer.number - numbers_.front()) = answer.entropy;
    share(grid, all);
    for (std::size_t i = 0; i < all.size(); ++i) {
      const std::vector<std::uint8_t> counted = counting(rollout(numbers_[i]));
      for (std::size_t t = 0; t < counted.size(); ++t)
        if (counted[t] != 0) entropies.push_back(all[i][t]);
    }
  }
  return entropy_rule(config_, tokens, std::move(entropies));
}

void PolicyTerm::add_answer(const Answer& answer, const PolicyDivisors& by, double count,
                            RowValues& rows) {
  const Rollout& one = rollout(answer.number);
  const std::vector<std::uint8_t> counted = counting(one);
  const std::int64_t i = answer.number - first();
  const auto of = [i](const Values& values) {
    return values.empty() ? std::span<const double>() : std::span<const double>(values.at(i));
  };
  const std::span<const double> old =
      needs_old(config_) ? of(generation_.old) : std::span<const double>();
  std::vector<double> d(answer.policy.size());
  const PolicyPart part = policy_loss(config_,
                                      {.policy = answer.policy,
                                       .old = old,
                                       .reference = of(generation_.reference),
                                       .sampler = one.sampler,
                                       .counts = counted,
                                       .advantage = generation_.advantages.at(i),
                                       .entropy = answer.entropy,
                                       .rule = rule_},
                                      by, d);
  // The gradient of the log-probability of a target is minus that of its loss, and a step divides
  // by its answers.
  for (std::size_t t = 0; t < d.size(); ++t) {
    const std::int64_t row = answer.first_row + static_cast<std::int64_t>(t);
    rows.weights[row] = static_cast<float>(-d[t] * count);
    rows.entropies[row] = static_cast<float>(answer.entropy[t]);
    if (counted[t] != 0 && rule_.keeps(answer.entropy[t]))
      rows.bonuses[row] = static_cast<float>(rule_.weight * count);
  }
  const std::span<double> figures =
      std::span(figures_).subspan((answer.number - numbers_.front()) * kFigures, kFigures);
  figures[kLoss] = part.loss;
  figures[kTokens] = part.tokens;
  figures[kKl] = part.kl;
  figures[kLow] = part.low;
  figures[kHigh] = part.high;
  figures[kCorrection] = part.correction;
  figures[kLeastCorrection] = part.tokens > 0 ? part.least_correction : 0;
  figures[kLargestCorrection] = part.largest_correction;
  for (std::size_t t = 0; t < answer.entropy.size(); ++t)
    figures[kEntropy] += counted[t] != 0 ? answer.entropy[t] : 0;
  const std::span<const double> written = old.empty() ? std::span(answer.policy) : old;
  for (std::size_t t = 0; t < one.sampler.size(); ++t) {
    if (counted[t] == 0 || std::isnan(one.sampler[t])) continue;
    const double difference = std::abs(written[t] - one.sampler[t]);
    figures[kDifference] += difference;
    figures[kDifferenceLargest] = std::max(figures[kDifferenceLargest], difference);
  }
}

void PolicyTerm::set_rows(const Context& ctx, const Micro& micro, const RowValues& values) const {
  const bool some = !micro.answers.empty();
  const auto own = [&](const std::vector<float>& whole) {
    return some ? micro.rows.own(whole) : std::vector<float>(micro.weights.count());
  };
  const std::vector<float> weights = own(values.weights);
  ctx.device().copy_from_host(micro.weights.view().data, weights.data(), micro.weights.bytes());
  if (micro.bonus.rows() == 0) return;
  const std::vector<float> bonuses = own(values.bonuses), entropies = own(values.entropies);
  std::vector<float> both;
  for (std::size_t row = 0; row < bonuses.size(); ++row) {
    both.push_back(bonuses[row]);
    both.push_back(entropies[row]);
  }
  ctx.device().copy_from_host(micro.bonus.view().data, both.data(), micro.bonus.bytes());
}

void PolicyTerm::finish_scores(const Context& ctx, const StepInput& input) {
  if (!ctx.device().keeps_values()) return;
  figures_.clear();
  numbers_.clear();
  if (data_.file) {
    numbers_ = numbers_of(input.step);
    figures_.assign(numbers_.size() * kFigures, 0);
  }
  const PolicyDivisors by = data_.file ? divisors(numbers_) : PolicyDivisors();
  rule_ = data_.file ? rule_of_step(ctx.grid) : EntropyRule();
  for (const Micro& micro : micros_) {
    const std::vector<float> none(micro.answers.size() * micro.rows.positions());
    RowValues rows{none, none, none};
    for (const Answer& answer : micro.answers)
      if (answer.number >= 0) add_answer(answer, by, static_cast<double>(input.tokens), rows);
    set_rows(ctx, micro, rows);
  }
  if (!ctx.grid.leads_batch_coordinate()) std::ranges::fill(figures_, 0);
  ctx.grid.world().all_reduce(buffer(std::span(figures_)), "answers").wait();
  check_sampler();
}

void PolicyTerm::check_sampler() const {
  if (!data_.batch_invariant) return;
  for (std::size_t i = 0; i < numbers_.size(); ++i)
    if (const double difference = figures_of(i)[kDifferenceLargest]; difference > 0)
      refuse("rl.batch_invariant: a token of answer ", numbers_[i] + 1, " of the generation had ",
             "another log-probability when it was written than it has in the training pass, by ",
             difference, ", so that this model's layers depend on which rows are computed ",
             "together; set rl.batch_invariant = false to train with such differences, which ",
             "rl.sampler_correction weighs");
}

void PolicyTerm::begin_step(const StepInput& input) {
  next_ = 0;
  if (weighs_answers(config_)) return;
  numbers_.clear();
  if (data_.file) numbers_ = numbers_of(input.step);
}

void PolicyTerm::begin_pass(Context& ctx, const Rows&, const View&) {
  if (!weighs_answers(config_)) return;
  const Micro& micro = micros_.at(next_++);
  ctx.attach(std::make_shared<RowWeights>(RowWeights{micro.weights, micro.bonus}));
  attach_temperature(ctx);
}

std::optional<double> PolicyTerm::loss(std::span<const double>, const StepInput&) const {
  if (!weighs_answers(config_)) return {};
  double sum = 0;
  for (std::size_t i = 0; i < numbers_.size(); ++i) sum += figures_of(i)[kLoss];
  return sum;
}

void PolicyTerm::add_rewards(std::vector<Metric>& all) const {
  std::vector<double> sums;
  const std::int64_t count = std::ssize(generation_.rewards);
  for (std::int64_t i = 0; i < count; ++i)
    sums.push_back(reward_sum(config_, rollout(first() + i).rewards));
  const Summary reward = summary_of(sums);
  all.push_back({.name = "reward", .value = reward.mean, .in_line = "reward"});
  all.push_back({.name = "reward_std", .value = reward.deviation});
  for (std::size_t r = 0; r < data_.file->reward_names.size(); ++r) {
    std::vector<double> one;
    for (std::int64_t i = 0; i < count; ++i) one.push_back(rollout(first() + i).rewards.at(r));
    const Summary summary = summary_of(one);
    all.push_back({.name = reward_metrics_[r][0], .value = summary.mean});
    all.push_back({.name = reward_metrics_[r][1], .value = summary.deviation});
  }
  all.push_back({.name = "frac_reward_zero_std", .value = share_without_spread(config_, sums)});
}

double PolicyTerm::divergence_of_generation() const {
  double sum = 0, tokens = 0;
  for (std::int64_t i = 0; i < std::ssize(generation_.divergences); ++i) {
    sum += generation_.divergences[i];
    tokens += tokens_of(first() + i);
  }
  return sum / std::max(tokens, 1.0);
}

void PolicyTerm::add_ratios(std::vector<Metric>& all) const {
  // Gmpo bounds the ratios of single tokens, whose mean is that of the answer.
  const bool whole = has_ratios_of_answers(config_) && config_.loss != PolicyLoss::gmpo;
  double low = 0, high = 0, units = 0, kl = 0, tokens = 0, entropy = 0;
  std::vector<double> lows, highs;
  for (std::size_t i = 0; i < numbers_.size(); ++i) {
    const std::span<const double> of = figures_of(i);
    const double unit = whole ? std::min(of[kTokens], 1.0) : of[kTokens];
    const double share = of[kTokens] > 0 ? unit / of[kTokens] : 0;
    low += of[kLow] * share;
    high += of[kHigh] * share;
    units += unit;
    kl += of[kKl];
    entropy += of[kEntropy];
    tokens += of[kTokens];
    lows.push_back(of[kTokens] > 0 ? of[kLow] / of[kTokens] : NAN);
    highs.push_back(of[kTokens] > 0 ? of[kHigh] / of[kTokens] : NAN);
  }
  units = std::max(units, 1.0);
  all.push_back({.name = "entropy", .value = entropy / std::max(tokens, 1.0)});
  if (needs_reference())
    all.push_back({.name = "kl",
                   .value = generation_.divergences.empty() ? kl / std::max(tokens, 1.0)
                                                            : divergence_of_generation()});
  if (config_.loss == PolicyLoss::cispo) {
    all.push_back({.name = "cispo_clip_ratio", .value = high / units});
  } else if (config_.loss != PolicyLoss::sapo) {
    all.push_back({.name = "clip_ratio/low_mean", .value = low / units});
    all.push_back({.name = "clip_ratio/low_min", .value = summary_of(lows).least});
    all.push_back({.name = "clip_ratio/high_mean", .value = high / units});
    all.push_back({.name = "clip_ratio/high_max", .value = summary_of(highs).largest});
    all.push_back({.name = "clip_ratio/region_mean", .value = (low + high) / units});
  }
}

void PolicyTerm::add_lengths(std::vector<Metric>& all) const {
  std::vector<double> lengths;
  double truncated = 0;
  for (const std::int64_t number : numbers_) {
    const std::vector<std::uint8_t>& counted = rollout(number).counts;
    lengths.push_back(std::accumulate(counted.begin(), counted.end(), 0.0));
    truncated += rollout(number).truncated ? 1 : 0;
  }
  const Summary length = summary_of(lengths);
  all.push_back({.name = "completions/mean_length", .value = length.mean, .in_line = "length"});
  all.push_back({.name = "completions/min_length", .value = length.least});
  all.push_back({.name = "completions/max_length", .value = length.largest});
  all.push_back({.name = "completions/clipped_ratio",
                 .value = truncated / static_cast<double>(numbers_.size())});
}

void PolicyTerm::add_sampler(std::vector<Metric>& all) const {
  const bool whole = corrects_answers(config_);
  double difference = 0, tokens = 0, largest = 0, correction = 0, units = 0;
  std::vector<double> least, most;
  for (std::size_t i = 0; i < numbers_.size(); ++i) {
    const std::span<const double> of = figures_of(i);
    if (of[kTokens] == 0) continue;
    difference += of[kDifference];
    tokens += of[kTokens];
    largest = std::max(largest, of[kDifferenceLargest]);
    const double unit = whole ? 1 : of[kTokens];
    correction += of[kCorrection] * unit / of[kTokens];
    units += unit;
    least.push_back(of[kLeastCorrection]);
    most.push_back(of[kLargestCorrection]);
  }
  const auto add = [&](std::string_view name, double value) {
    all.push_back({.name = name, .value = value});
  };
  add("sampling/sampling_logp_difference/mean", difference / std::max(tokens, 1.0));
  add("sampling/sampling_logp_difference/max", largest);
  add("sampling/importance_sampling_ratio/min", summary_of(least).least);
  add("sampling/importance_sampling_ratio/mean", correction / std::max(units, 1.0));
  add("sampling/importance_sampling_ratio/max", summary_of(most).largest);
}

std::vector<Metric> PolicyTerm::metrics(std::span<const double>, const StepInput&) const {
  std::vector<Metric> all;
  if (numbers_.empty()) return all;
  const bool rewarded = !data_.file->reward_names.empty();
  if (rewarded) add_rewards(all);
  if (data_.sampler) {
    if (rewarded)
      all.push_back(
          {.name = "rewards/missing", .value = static_cast<double>(cost_.without_reward)});
    if (config_.sampling_attempts > 1) {
      all.push_back({.name = "sampling/attempts", .value = static_cast<double>(cost_.attempts)});
      all.push_back(
          {.name = "sampling/dropped_groups", .value = static_cast<double>(cost_.dropped_groups)});
    }
    all.push_back({.name = "sampling_s", .value = cost_.sampling_seconds, .decimals = 3});
    if (rewarded) all.push_back({.name = "reward_s", .value = cost_.reward_seconds, .decimals = 3});
  }
  if (weighs_answers(config_)) add_ratios(all);
  add_lengths(all);
  if (weighs_answers(config_) && std::ranges::any_of(numbers_, [&](std::int64_t number) {
        return !rollout(number).sampler.empty();
      }))
    add_sampler(all);
  return all;
}

}  // namespace axonn
