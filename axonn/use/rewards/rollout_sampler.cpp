#include "axonn/use/rewards/rollout_sampler.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <nlohmann/json.hpp>

#include "axonn/data/corpus/corpus.h"
#include "axonn/foundation/base/check.h"
#include "axonn/foundation/base/clock.h"
#include "axonn/foundation/base/hash.h"
#include "axonn/foundation/base/random.h"
#include "axonn/foundation/base/utf8.h"
#include "axonn/ranks/comm/texts.h"
#include "axonn/run/config/policy_loss.h"
#include "axonn/run/train/data_stages.h"
#include "axonn/use/infer/generator.h"
#include "axonn/use/rewards/reward_function.h"
#include "axonn/use/rewards/reward_program.h"

namespace axonn {

namespace {

constexpr double kNone = std::numeric_limits<double>::quiet_NaN();

/// The rewards of a generation's answers, by name.
struct Rewards {
  std::vector<std::string> names;
  std::vector<std::vector<double>> of_answers;
  std::vector<std::string> warnings;
};

bool gives_rewards(const RlConfig& config) {
  return !config.rewards.empty() || !config.reward_program.empty();
}

/// What a reply of the program says: numbers by name, or a fault.
struct NamedRewards {
  std::vector<std::string> names;
  std::vector<double> values;
  std::string fault = {};
};

NamedRewards parse_reply(const ProgramReply& reply) {
  if (!reply.fault.empty()) return {.names = {}, .values = {}, .fault = reply.fault};
  const auto value = nlohmann::ordered_json::parse(reply.line, nullptr, false);
  NamedRewards read;
  const auto add = [&](const std::string& name, const nlohmann::ordered_json& one) {
    read.names.push_back(name);
    if (one.is_number() && std::isfinite(one.get<double>()))
      read.values.push_back(one.get<double>());
    else if (one.is_boolean())
      read.values.push_back(one.get<bool>() ? 1 : 0);
    else if (one.is_null())
      read.values.push_back(kNone);
    else
      read.fault = concat("\"", printable(reply.line.substr(0, 80)),
                          "\" is no number, null or object of these");
  };
  if (value.is_object() && !value.empty())
    for (const auto& [name, one] : value.items()) add(name, one);
  else
    add("reward", value);
  return read;
}

/// Finds rewards; on one rank.
class RewardFinder {
 public:
  RewardFinder(const RlConfig& config, const Tokenizer& tokenizer) : tokenizer_(tokenizer) {
    for (const std::string& name : config.rewards)
      functions_.emplace_back(name, reward_function(config, name));
    if (!config.reward_program.empty())
      program_.emplace(RewardProgram::Options{.command = config.reward_program,
                                              .workers = static_cast<int>(config.reward_workers),
                                              .seconds = config.reward_timeout});
  }

  /// `prompts`: that of each answer.
  Rewards find(const std::vector<const Prompt*>& prompts, const std::vector<Rollout>& answers) {
    Rewards all;
    all.of_answers.resize(answers.size());
    std::vector<std::string> texts;
    for (const Rollout& answer : answers) texts.push_back(text_of(answer));
    for (const auto& [name, reward] : functions_) {
      all.names.push_back(name);
      for (std::size_t i = 0; i < answers.size(); ++i)
        all.of_answers[i].push_back(reward({.text = texts[i],
                                            .tokens = answers[i].answer,
                                            .truncated = answers[i].truncated,
                                            .prompt_line = prompts[i]->line}));
    }
    if (program_) ask(prompts, answers, texts, all);
    return all;
  }

 private:
  std::string text_of(const Rollout& answer) const {
    std::vector<std::int32_t> tokens = answer.answer;
    if (!answer.truncated) tokens.pop_back();
    return text_of_answer(tokenizer_, std::move(tokens));
  }

  std::string question(const Prompt& prompt, const Rollout& answer, const std::string& text) const {
    using Json = nlohmann::ordered_json;
    Json line = Json::parse(prompt.line, nullptr, false);
    if (!line.is_object()) line = Json::object();
    line["completion"] = text;
    line["completion_ids"] = answer.answer;
    line["truncated"] = answer.truncated;
    return line.dump(-1, ' ', false, Json::error_handler_t::replace);
  }

  void ask(const std::vector<const Prompt*>& prompts, const std::vector<Rollout>& answers,
           const std::vector<std::string>& texts, Rewards& all) {
    constexpr std::size_t kShown = 3;
    std::vector<std::string> lines, names, faults;
    for (std::size_t i = 0; i < answers.size(); ++i)
      lines.push_back(question(*prompts[i], answers[i], texts[i]));
    std::vector<NamedRewards> replies;
    for (const ProgramReply& reply : program_->ask(lines)) replies.push_back(parse_reply(reply));
    for (const NamedRewards& reply : replies)
      if (names.empty() && reply.fault.empty()) names = reply.names;
    for (std::size_t i = 0; i < replies.size(); ++i) {
      NamedRewards& reply = replies[i];
      if (reply.fault.empty() && reply.names != names)
        reply.fault = "its rewards have other names than those of the first answer";
      if (!reply.fault.empty()) {
        faults.push_back(concat("answer ", i + 1, ": ", reply.fault));
        reply.values.assign(names.size(), kNone);
      }
      auto& mine = all.of_answers[i];
      mine.insert(mine.end(), reply.values.begin(), reply.values.end());
    }
    all.names.insert(all.names.end(), names.begin(), names.end());
    for (std::size_t i = 0; i < std::min(faults.size(), kShown); ++i)
      all.warnings.push_back("rl.reward_program: no reward of " + faults[i]);
    if (faults.size() > kShown)
      all.warnings.push_back(
          concat("rl.reward_program: no reward of ", faults.size() - kShown, " further answers"));
  }

  const Tokenizer& tokenizer_;
  std::vector<std::pair<std::string, RewardFunction>> functions_;
  std::optional<RewardProgram> program_;
};

class PromptSampler final : public RolloutSampler {
 public:
  PromptSampler(LoadedModel& model, std::shared_ptr<const Corpus> corpus)
      : model_(model), corpus_(std::move(corpus)) {
    const Config& config = model.config();
    if (weighs_answers(config.rl) && !gives_rewards(config.rl))
      refuse(
          "[rl] rewards: the lines of data.jsonl are prompts, and nothing gives the answers to ",
          "them rewards; set rl.rewards or rl.reward_program, or give lines of recorded answers ",
          "with \"completion_ids\" and \"rewards\"");
    AXONN_CHECK(corpus_->tokenizer, "prompts without a tokenizer");
    std::int64_t longest = 0;
    for (std::size_t i = 0; i < corpus_->prompts->prompts.size(); ++i) {
      const std::int64_t size = std::ssize(corpus_->prompts->prompts[i].tokens);
      if (size + config.rl.max_tokens - 1 > config.training.seq_len)
        refuse("prompt ", i + 1, " of data.jsonl has ", size,
               " tokens, and with rl.max_tokens = ", config.rl.max_tokens,
               " an answer is longer than training.seq_len = ", config.training.seq_len,
               "; raise seq_len, or lower max_tokens");
      longest = std::max(longest, size);
      refuse_long_answer(i);
    }
    writing_ = rollout_writing(config, longest);
    writing_.answers.stop_tokens = corpus_->prompts->ends;
    if (model.grid().world().rank() == 0) finder_.emplace(config.rl, *corpus_->tokenizer);
  }

  SamplingCost write(std::int64_t g, RolloutFile& to) override {
    const std::int64_t attempts = model_.config().rl.sampling_attempts,
                       groups = generation_steps(model_.config(), *corpus_).of_generation() /
                                model_.config().rl.group;
    SamplingCost cost;
    RolloutFile kept, even;  // groups whose rewards differ, and others
    while (groups_of(kept) < groups && cost.attempts < attempts) {
      const std::int64_t number = g * attempts + cost.attempts++;
      divide(attempt(number, groups, groups - groups_of(kept), cost), kept, even);
    }
    const std::int64_t missing = (groups - groups_of(kept)) * model_.config().rl.group;
    cost.dropped_groups = groups_of(even) - (groups - groups_of(kept));
    kept.answers.insert(kept.answers.end(), even.answers.begin(), even.answers.begin() + missing);
    to = std::move(kept);
    for (const Rollout& answer : to.answers)
      cost.without_reward +=
          std::ranges::all_of(answer.rewards, [](double v) { return std::isnan(v); }) ? 1 : 0;
    AXONN_CHECK(!gives_rewards(model_.config().rl) || cost.without_reward < std::ssize(to.answers),
                "no answer of the generation has a ", "reward, so there is nothing to learn",
                cost.warnings.empty()
                    ? ": the lines of data.jsonl say nothing that rl.rewards compares with "
                      "(\"answer\")"
                    : "; " + cost.warnings.front());
    return cost;
  }

 private:
  void refuse_long_answer(std::size_t i) const {
    const Rollout& given = corpus_->prompts->prompts[i].given;
    const std::int64_t rows = std::ssize(given.prompt) + std::ssize(given.answer) - 1,
                       length = model_.config().training.seq_len;
    if (rows > length)
      refuse("line ", i + 1, " of data.jsonl has ", rows,
             " tokens in prompt and answer, more than training.seq_len = ", length,
             "; raise seq_len, or leave the line out");
  }

  std::int64_t groups_of(const RolloutFile& file) const {
    return std::ssize(file.answers) / model_.config().rl.group;
  }

  /// Answers to the first `count` of the `groups` prompts that attempt `number` of the run has.
  RolloutFile attempt(std::int64_t number, std::int64_t groups, std::int64_t count,
                      SamplingCost& cost) {
    const std::vector<const Prompt*> prompts = prompts_from(number * groups, count);
    RolloutFile made;
    double start = now_seconds();
    made.answers = writes(number) ? answers_to(prompts, number) : given_to(prompts);
    cost.sampling_seconds += now_seconds() - start;
    start = now_seconds();
    find_rewards(prompts, made, cost);
    cost.reward_seconds += now_seconds() - start;
    return made;
  }

  /// Whether attempt `number` has answers of the run, or those of the data.
  bool writes(std::int64_t number) const {
    const double share = model_.config().distill.lmbda;
    return !corpus_->answers.mixed ||
           Random(static_cast<std::uint64_t>(model_.config().training.seed), "distill.lmbda")
                   .uniform(static_cast<std::uint64_t>(number)) < share;
  }

  static std::vector<Rollout> given_to(const std::vector<const Prompt*>& prompts) {
    std::vector<Rollout> answers;
    for (const Prompt* prompt : prompts) answers.push_back(prompt->given);
    return answers;
  }

  /// Adds the groups of `made` to those whose rewards differ or to the others. All are kept if
  /// there is one attempt.
  void divide(RolloutFile made, RolloutFile& kept, RolloutFile& even) const {
    const RlConfig& rl = model_.config().rl;
    check_reward_names(rl, made.reward_names);
    take_names(made, kept);
    for (auto first = made.answers.begin(); first != made.answers.end(); first += rl.group) {
      std::vector<double> sums;
      for (auto answer = first; answer != first + rl.group; ++answer)
        sums.push_back(reward_sum(rl, answer->rewards));
      const bool keeps = rl.sampling_attempts == 1 || summary_of(sums).deviation > 0;
      auto& to = (keeps ? kept : even).answers;
      to.insert(to.end(), std::move_iterator(first), std::move_iterator(first + rl.group));
    }
  }

  /// Gives the rewards of `made` the order of those of the first attempt; a reward that all answers
  /// of this attempt lack has no value.
  static void take_names(RolloutFile& made, RolloutFile& kept) {
    if (kept.reward_names.empty()) kept.reward_names = made.reward_names;
    if (kept.reward_names == made.reward_names) return;
    for (const std::string& name : made.reward_names)
      AXONN_CHECK(std::ranges::find(kept.reward_names, name) != kept.reward_names.end(),
                  "rl.reward_program gives a reward \"", name, "\", which the answers before had ",
                  "not; it must give the same names to all");
    for (Rollout& answer : made.answers) {
      std::vector<double> values;
      for (const std::string& name : kept.reward_names) {
        const auto at = std::ranges::find(made.reward_names, name) - made.reward_names.begin();
        values.push_back(at < std::ssize(answer.rewards) ? answer.rewards[at] : kNone);
      }
      answer.rewards = std::move(values);
    }
  }

  /// The prompt of each answer: `count` prompts from number `first` of all epochs on.
  std::vector<const Prompt*> prompts_from(std::int64_t first, std::int64_t count) const {
    const Config& config = model_.config();
    const std::vector<Prompt>& all = corpus_->prompts->prompts;
    const std::int64_t size = std::ssize(all);
    std::vector<const Prompt*> prompts;
    for (std::int64_t n = first; n < first + count; ++n) {
      const std::int64_t epoch = n / size;
      std::int64_t at = n % size;
      if (config.data.shuffle)
        at = static_cast<std::int64_t>(permute(static_cast<std::uint64_t>(at),
                                               static_cast<std::uint64_t>(size),
                                               seed_of("prompts", epoch)));
      prompts.insert(prompts.end(), config.rl.group, &all[at]);
    }
    return prompts;
  }

  std::uint64_t seed_of(const char* use, std::int64_t number) const {
    return xxh3(concat(use, ' ', model_.config().training.seed, ' ', number));
  }

  std::vector<Rollout> answers_to(const std::vector<const Prompt*>& prompts, std::int64_t number) {
    std::vector<std::vector<std::int32_t>> tokens;
    for (const Prompt* prompt : prompts) tokens.push_back(prompt->tokens);
    GenerationOptions wanted = writing_.answers;
    wanted.seed = seed_of("answers", number);
    Generator generator(model_, writing_.generator);
    std::vector<Rollout> answers;
    for (const Generation& one : generator.generate(tokens, wanted)) {
      Rollout& answer = answers.emplace_back();
      answer.prompt = tokens[answers.size() - 1];
      answer.answer = one.tokens;
      answer.counts.assign(one.tokens.size(), 1);
      for (const TokenScore& score : one.scores) answer.sampler.push_back(score.log_probability);
      answer.truncated = one.reason != FinishReason::stop_token;
    }
    return answers;
  }

  void find_rewards(const std::vector<const Prompt*>& prompts, RolloutFile& to,
                    SamplingCost& cost) {
    Communicator& world = model_.grid().world();
    Rewards found;
    std::string error;
    if (finder_) try {
        found = finder_->find(prompts, to.answers);
      } catch (const std::exception& thrown) {
        error = thrown.what();
      }
    std::vector<std::string> texts{error};  // then names and warnings
    texts.push_back(std::to_string(found.names.size()));
    texts.insert(texts.end(), found.names.begin(), found.names.end());
    texts.insert(texts.end(), found.warnings.begin(), found.warnings.end());
    texts = broadcast_texts(world, std::move(texts));
    AXONN_CHECK(texts[0].empty(), texts[0]);
    const auto names = texts.begin() + 2, warnings = names + std::stol(texts[1]);
    to.reward_names.assign(names, warnings);
    cost.warnings.insert(cost.warnings.end(), warnings, texts.end());
    const std::size_t each = to.reward_names.size();
    std::vector<double> values(to.answers.size() * each);
    if (finder_)
      for (std::size_t i = 0; i < to.answers.size(); ++i)
        std::ranges::copy(found.of_answers[i],
                          values.begin() + static_cast<std::ptrdiff_t>(i * each));
    world.broadcast(buffer(std::span(values)), 0, "rewards").wait();
    for (std::size_t i = 0; i < to.answers.size(); ++i)
      to.answers[i].rewards.assign(values.begin() + static_cast<std::ptrdiff_t>(i * each),
                                   values.begin() + static_cast<std::ptrdiff_t>((i + 1) * each));
  }

  LoadedModel& model_;
  std::shared_ptr<const Corpus> corpus_;
  RolloutWriting writing_;
  std::optional<RewardFinder> finder_;  // of rank 0
};

}  // namespace

RolloutWriting rollout_writing(const Config& config, std::int64_t longest_prompt) {
  const RlConfig& rl = config.rl;
  return {.generator = {.context = std::min(longest_prompt + rl.max_tokens, config.model.positions),
                        .hold_weights = rl.hold_weights,
                        .trained_positions = config.training.seq_len,
                        .logit_factor = static_cast<float>(1 / rl.temperature)},
          .answers = {.max_tokens = rl.max_tokens,
                      .sampling = {.temperature = 1},
                      .likeliest = 0,
                      .keeps_stop_token = true}};
}

bool may_write_rollouts(const RlConfig& config) {
  return config.loss != PolicyLoss::none && (gives_rewards(config) || !weighs_answers(config));
}

std::unique_ptr<RolloutSampler> make_rollout_sampler(LoadedModel& model,
                                                     std::shared_ptr<const Corpus> corpus) {
  return std::make_unique<PromptSampler>(model, std::move(corpus));
}

}  // namespace axonn
