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
#include "axonn/run/train/data_stages.h"
#include "axonn/use/infer/generator.h"
#include "axonn/use/rewards/reward_program.h"
#include "axonn/use/rewards/verifiers.h"

namespace axonn {

namespace {

constexpr double kNone = std::numeric_limits<double>::quiet_NaN();

/// The rewards of a generation's answers, by name.
struct Rewards {
  std::vector<std::string> names;
  std::vector<std::vector<double>> of_answers;
  std::vector<std::string> warnings;
  std::int64_t missing = 0;  ///< answers without any
};

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
      built_in_.emplace_back(name, make_verifier(name));
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
    for (const auto& [name, verify] : built_in_) {
      all.names.push_back(name);
      for (std::size_t i = 0; i < answers.size(); ++i) {
        const auto wanted = wanted_of_line(prompts[i]->line);
        all.of_answers[i].push_back(
            wanted || !reads_wanted(name) ? verify(texts[i], wanted.value_or("")) : kNone);
      }
    }
    if (program_) ask(prompts, answers, texts, all);
    for (const std::vector<double>& one : all.of_answers)
      all.missing += std::ranges::all_of(one, [](double v) { return std::isnan(v); }) ? 1 : 0;
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
  std::vector<std::pair<std::string, Verifier>> built_in_;
  std::optional<RewardProgram> program_;
};

class PromptSampler final : public RolloutSampler {
 public:
  PromptSampler(LoadedModel& model, std::shared_ptr<const Corpus> corpus)
      : model_(model), corpus_(std::move(corpus)) {
    const Config& config = model.config();
    if (config.rl.rewards.empty() && config.rl.reward_program.empty())
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
    }
    context_ = std::min(longest + config.rl.max_tokens, config.model.positions);
    if (model.grid().world().rank() == 0) finder_.emplace(config.rl, *corpus_->tokenizer);
  }

  SamplingCost write(std::int64_t g, RolloutFile& to) override {
    const std::vector<const Prompt*> prompts = prompts_of(g);
    SamplingCost cost;
    double start = now_seconds();
    to.answers = answers_to(prompts, g);
    cost.sampling_seconds = now_seconds() - start;
    start = now_seconds();
    find_rewards(prompts, to, cost);
    cost.reward_seconds = now_seconds() - start;
    return cost;
  }

 private:
  /// The prompt of each answer.
  std::vector<const Prompt*> prompts_of(std::int64_t g) const {
    const Config& config = model_.config();
    const std::vector<Prompt>& all = corpus_->prompts->prompts;
    const GenerationSteps steps = generation_steps(config, *corpus_);
    const std::int64_t count = steps.of_generation() / config.rl.group, size = std::ssize(all);
    std::vector<const Prompt*> prompts;
    for (std::int64_t i = 0; i < count; ++i) {
      const std::int64_t n = g * count + i, epoch = n / size;
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

  std::vector<Rollout> answers_to(const std::vector<const Prompt*>& prompts, std::int64_t g) {
    const RlConfig& rl = model_.config().rl;
    std::vector<std::vector<std::int32_t>> tokens;
    for (const Prompt* prompt : prompts) tokens.push_back(prompt->tokens);
    const GenerationOptions wanted{.max_tokens = rl.max_tokens,
                                   .sampling = {.temperature = 1},
                                   .seed = seed_of("answers", g),
                                   .likeliest = 0,
                                   .stop_tokens = corpus_->prompts->ends,
                                   .keeps_stop_token = true};
    Generator generator(model_, {.context = context_,
                                 .hold_weights = rl.hold_weights,
                                 .trained_positions = model_.config().training.seq_len,
                                 .logit_factor = static_cast<float>(1 / rl.temperature)});
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
    cost.warnings.assign(warnings, texts.end());
    const std::size_t each = to.reward_names.size();
    std::vector<double> values(to.answers.size() * each + 1);
    if (finder_) {
      values.back() = static_cast<double>(found.missing);
      for (std::size_t i = 0; i < to.answers.size(); ++i)
        std::ranges::copy(found.of_answers[i],
                          values.begin() + static_cast<std::ptrdiff_t>(i * each));
    }
    world.broadcast(buffer(std::span(values)), 0, "rewards").wait();
    for (std::size_t i = 0; i < to.answers.size(); ++i)
      to.answers[i].rewards.assign(values.begin() + static_cast<std::ptrdiff_t>(i * each),
                                   values.begin() + static_cast<std::ptrdiff_t>((i + 1) * each));
    cost.without_reward = static_cast<std::int64_t>(values.back());
    AXONN_CHECK(cost.without_reward < std::ssize(to.answers), "no answer of the generation has a ",
                "reward, so there is nothing to learn",
                cost.warnings.empty()
                    ? ": the lines of data.jsonl say nothing that rl.rewards compares with "
                      "(\"answer\")"
                    : "; " + cost.warnings.front());
  }

  LoadedModel& model_;
  std::shared_ptr<const Corpus> corpus_;
  std::int64_t context_ = 0;
  std::optional<RewardFinder> finder_;  // of rank 0
};

}  // namespace

std::unique_ptr<RolloutSampler> make_rollout_sampler(LoadedModel& model,
                                                     std::shared_ptr<const Corpus> corpus) {
  return std::make_unique<PromptSampler>(model, std::move(corpus));
}

}  // namespace axonn
