#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <utility>
#include <vector>

#include "axonn/run/records/sample_file.h"

namespace axonn {

/// An answer that a run wrote, with its rewards by name; NaN: none.
struct ScoredAnswer {
  TextSample sample;
  std::vector<std::pair<std::string, double>> rewards;
  double advantage = 0;
};

/// Follows the folder of a run's answers with rewards, a file of each generation named by its first
/// step. Never throws.
class RunAnswers {
 public:
  /// Of a step, so many are shown.
  static constexpr std::size_t kMostAnswers = 64;

  explicit RunAnswers(std::string folder) : folder_(std::move(folder)) {}

  /// Lists the files anew if the folder has changed.
  void read();

  /// The steps that have answers, ascending.
  const std::vector<std::int64_t>& steps() const { return steps_; }
  /// The last step that has answers; 0: none.
  std::int64_t last_step() const { return steps_.empty() ? 0 : steps_.back(); }
  /// The first answers of the generation that began with a step; none if the step has none.
  std::vector<ScoredAnswer> at(std::int64_t step) const;

 private:
  std::string folder_;
  std::filesystem::file_time_type changed_ = {};
  std::vector<std::int64_t> steps_;
};

}  // namespace axonn
