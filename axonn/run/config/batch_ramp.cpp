#include "axonn/run/config/batch_ramp.h"

#include <sstream>

#include "axonn/data/corpus/batch_stages.h"
#include "axonn/foundation/base/check.h"
#include "axonn/foundation/base/numbers.h"
#include "axonn/foundation/options/options.h"

namespace axonn {

namespace {

/// The `count` positive integers that the text is. Throws UsageError, with what is wanted.
std::vector<std::int64_t> integers_of(const char* key, const std::string& text, std::size_t count,
                                      const char* wanted) {
  std::vector<std::int64_t> numbers;
  std::istringstream stream(text);
  bool right = true;
  for (std::string word; right && stream >> word;) {
    numbers.push_back(parse_integer(word).value_or(0));
    right = numbers.back() > 0;
  }
  if (!right || numbers.size() != count)
    refuse("[training] ", key, ": ", toml_string(text), " is not ", wanted);
  return numbers;
}

/// Source: the ramp of Megatron-LM. The batch rises by `increment` after equal numbers of
/// sequences, so that after `sequences` it is global_batch.
std::vector<BatchStage> ramp_of(const TrainingConfig& training) {
  const auto numbers = integers_of("batch_ramp", training.batch_ramp, 3,
                                   "\"start increment sequences\", such as \"256 64 1000000\"");
  const std::int64_t start = numbers[0], increment = numbers[1], sequences = numbers[2],
                     rise = training.global_batch - start;
  if (rise <= 0 || rise % increment != 0)
    refuse("[training] batch_ramp = \"", training.batch_ramp, "\": the batch does not rise from ",
           start, " by ", increment, " to global_batch = ", training.global_batch,
           "; the difference must be a multiple of the increment");
  const std::int64_t count = rise / increment;
  std::vector<BatchStage> stages;
  for (std::int64_t i = 1; i <= count; ++i)  // i sequences / count, rounded up, without overflow
    stages.push_back(
        {.batch = start + (i - 1) * increment,
         .until = sequences / count * i + (sequences % count * i + count - 1) / count});
  return stages;
}

std::vector<BatchStage> listed_stages(const TrainingConfig& training) {
  std::vector<BatchStage> stages;
  for (const std::string& text : training.batch_stages) {
    const auto numbers =
        integers_of("batch_stages", text, 2,
                    "\"batch sequences\", such as \"1024 2000000\": the batch until the run has "
                    "consumed that many sequences");
    stages.push_back({.batch = numbers[0], .until = numbers[1]});
  }
  for (std::size_t i = 0; i < stages.size(); ++i) {
    const std::int64_t next = i + 1 < stages.size() ? stages[i + 1].batch : training.global_batch;
    if (stages[i].batch >= next || (i > 0 && stages[i].until <= stages[i - 1].until))
      refuse("[training] batch_stages: \"", training.batch_stages[i],
             "\" is out of order: batches rise to global_batch = ", training.global_batch,
             ", and each stage ends after the one before it");
  }
  return stages;
}

}  // namespace

std::vector<BatchStage> batch_stages(const TrainingConfig& training) {
  if (!training.batch_ramp.empty() && !training.batch_stages.empty())
    refuse("[training] batch_ramp and batch_stages exclude one another; leave one of them out");
  std::vector<BatchStage> stages =
      training.batch_ramp.empty() ? listed_stages(training) : ramp_of(training);
  stages.push_back({.batch = training.global_batch});
  return stages;
}

}  // namespace axonn
