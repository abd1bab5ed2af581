#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "axonn/app/board/line_tail.h"
#include "axonn/run/records/sample_file.h"

namespace axonn {

/// Follows the samples.jsonl of a run. Keeps the offsets of its steps, not their texts. Never
/// throws.
class RunSamples {
 public:
  /// If there are more steps, every second one of all but the newest is dropped: old ones are
  /// sparser than new ones.
  static constexpr std::size_t kMostSteps = 1024;

  explicit RunSamples(std::string path) : file_(std::move(path)) {}

  /// Reads new lines for about `seconds`. Returns whether there are more.
  bool read(double seconds);

  /// The steps that have samples, ascending.
  std::vector<std::int64_t> steps() const;
  /// The last step that has samples; 0: none.
  std::int64_t last_step() const { return offsets_.empty() ? 0 : offsets_.back().step; }
  /// The samples of the last such step up to `step`, or of the first if that is later. Reads them
  /// from the file.
  std::vector<TextSample> at(std::int64_t step) const;

 private:
  struct Offset {
    std::int64_t step, from, to;  // bytes of the file
  };
  void take(std::string_view line, std::int64_t offset);

  LineTail file_;
  std::vector<Offset> offsets_;
};

}  // namespace axonn
