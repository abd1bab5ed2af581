#include "axonn/data/corpus/rollouts/rollout_sequences.h"

#include <algorithm>

#include "axonn/data/corpus/packing.h"
#include "axonn/foundation/base/check.h"
#include "axonn/foundation/base/log.h"

namespace axonn {

RolloutSequences::RolloutSequences(std::shared_ptr<const RolloutFile> file, std::int64_t seq_len,
                                   const GenerationSteps& steps)
    : file_(std::move(file)), seq_len_(seq_len), steps_(steps) {
  if (steps.generations > 0) return;
  for (std::size_t i = 0; i < file_->answers.size(); ++i) {
    const auto& [prompt, answer] = std::tie(file_->answers[i].prompt, file_->answers[i].answer);
    const std::int64_t rows = std::ssize(prompt) + std::ssize(answer) - 1;
    if (rows > seq_len)
      refuse("answer ", i + 1, " of data.jsonl has ", rows,
             " tokens with its prompt, more than training.seq_len = ", seq_len, "; raise seq_len");
  }
  if (generations() == 0)
    refuse("data.jsonl has ", file_->answers.size(), " answers, and a generation has ",
           steps.of_generation(),
           " (training.global_batch answers in each of rl.steps_per_generation steps); give more, ",
           "or lower these");
}

std::int64_t RolloutSequences::generations() const {
  if (steps_.generations > 0) return steps_.generations;
  return std::ssize(file_->answers) / steps_.of_generation();
}

std::int64_t RolloutSequences::first_of(std::int64_t g) const {
  return steps_.generations > 0 ? 0 : g % generations() * steps_.of_generation();
}

std::int64_t RolloutSequences::count() const {
  return generations() * steps_.of_generation() * steps_.iterations;
}

std::int64_t RolloutSequences::own_number(std::int64_t n) const {
  const std::int64_t step = n / steps_.answers;
  return first_of(steps_.generation(step)) + steps_.first(step) + n % steps_.answers;
}

void RolloutSequences::read(std::int64_t n, Sequence& to) const {
  AXONN_CHECK(n >= 0, "answer ", n, " was asked for");
  const Rollout& rollout = file_->answers.at(own_number(n));
  make_padding(seq_len_, to);
  std::int32_t row = 0;
  const auto border = std::ssize(rollout.prompt), end = border + std::ssize(rollout.answer);
  const auto token = [&](std::ptrdiff_t t) {
    return t < border ? rollout.prompt[t] : rollout.answer[t - border];
  };
  for (std::ptrdiff_t t = 0; t + 1 < end; ++t, ++row) {
    to.ids[row] = token(t);
    const bool counts =
        t + 1 >= border && (!steps_.only_counting || rollout.counts[t + 1 - border] != 0);
    to.targets[row] = counts ? token(t + 1) : -1;
    to.positions[row] = row;
    to.starts[row] = 0;
  }
}

Sequences::Size RolloutSequences::size(std::int64_t n) const {
  const Rollout& rollout = file_->answers.at(own_number(n));
  const auto answer = std::ssize(rollout.answer);
  const auto counted =
      steps_.only_counting ? answer - std::ranges::count(rollout.counts, std::uint8_t{0}) : answer;
  return {counted, std::ssize(rollout.prompt) + answer - 1};
}

std::string RolloutSequences::where(std::int64_t n) const {
  return concat("answer ", own_number(n) + 1, " of data.jsonl");
}

std::vector<std::string> RolloutSequences::notes() const {
  const std::int64_t over = std::ssize(file_->answers) % steps_.of_generation();
  if (over == 0 || steps_.generations > 0) return {};
  return {concat("the last ", format_count(over), " of ", format_count(std::ssize(file_->answers)),
                 " answers are left out: they are less than a generation of ",
                 format_count(steps_.of_generation()))};
}

}  // namespace axonn
