#include "axonn/app/board/run_answers.h"

#include <algorithm>
#include <cmath>
#include <fstream>
#include <optional>
#include <system_error>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "axonn/foundation/base/numbers.h"

namespace axonn {

namespace {

constexpr std::string_view kBegin = "step-", kEnd = ".jsonl";

/// The step in the name of a generation's file; nothing for other files.
std::optional<std::int64_t> step_of(std::string_view name) {
  if (!name.starts_with(kBegin) || !name.ends_with(kEnd)) return {};
  return parse_integer(name.substr(kBegin.size(), name.size() - kBegin.size() - kEnd.size()));
}

/// Throws a json::exception if the line is damaged.
ScoredAnswer parse_answer(const std::string& line, std::int64_t step) {
  const auto value = nlohmann::ordered_json::parse(line);
  ScoredAnswer answer;
  answer.sample.step = step;
  answer.sample.prompt = value.value("prompt", "");
  answer.sample.text = value.value("completion", "");
  answer.sample.tokens = std::ssize(value.value("completion_ids", std::vector<std::int64_t>()));
  answer.sample.end = value.value("truncated", false) ? "max_tokens" : "stop_token";
  answer.advantage = value.value("advantage", 0.0);
  if (const auto found = value.find("rewards"); found != value.end() && found->is_object())
    for (const auto& [name, one] : found->items())
      answer.rewards.emplace_back(name, one.is_number() ? one.get<double>() : NAN);
  return answer;
}

}  // namespace

void RunAnswers::read() {
  std::error_code error;
  const auto changed = std::filesystem::last_write_time(folder_, error);
  if (error) return steps_.clear();
  if (changed == changed_) return;
  changed_ = changed;
  steps_.clear();
  for (std::filesystem::directory_iterator file(folder_, error), end; !error && file != end;
       file.increment(error))
    if (const auto step = step_of(file->path().filename().string())) steps_.push_back(*step);
  std::ranges::sort(steps_);
}

std::vector<ScoredAnswer> RunAnswers::at(std::int64_t step) const {
  std::vector<ScoredAnswer> answers;
  std::ifstream file(fmt::format("{}/{}{:06}{}", folder_, kBegin, step, kEnd));
  for (std::string line; answers.size() < kMostAnswers && std::getline(file, line);) try {
      answers.push_back(parse_answer(line, step));
    } catch (const nlohmann::json::exception&) {
      continue;  // damaged
    }
  return answers;
}

}  // namespace axonn
