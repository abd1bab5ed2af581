#include "axonn/data/corpus/batch_stages.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "axonn/foundation/base/check.h"

namespace axonn {

bool any_padded(const std::vector<BatchStage>& stages, std::int64_t unit) {
  return std::ranges::any_of(stages,
                             [&](const BatchStage& stage) { return stage.batch % unit != 0; });
}

BatchStages::BatchStages(std::vector<BatchStage> stages) : stages_(std::move(stages)) {
  AXONN_CHECK(!stages_.empty(), "BatchStages: no stage");
  for (const BatchStage& stage : stages_)
    AXONN_CHECK(stage.batch > 0, "BatchStages: a batch of ", stage.batch, " sequences");
  begin_at(0, 0);
}

void BatchStages::begin_at(std::int64_t step, std::int64_t consumed) {
  parts_.clear();
  for (std::size_t i = 0; i < stages_.size(); ++i) {
    const auto& [batch, until] = stages_[i];
    const bool last = i + 1 == stages_.size();
    if (!last && until <= consumed) continue;
    parts_.push_back({step, consumed, batch});
    if (last) return;
    const std::int64_t steps = (until - consumed + batch - 1) / batch;
    step += steps;
    consumed += steps * batch;
  }
}

const BatchStages::Part& BatchStages::part_of(std::int64_t n) const {
  const auto after = std::ranges::upper_bound(parts_, n, {}, &Part::step);
  return after == parts_.begin() ? parts_.front() : *std::prev(after);
}

std::int64_t BatchStages::consumed_before(std::int64_t n) const {
  const auto& [step, consumed, batch] = part_of(n);
  return consumed + std::max<std::int64_t>(n - step, 0) * batch;
}

}  // namespace axonn
