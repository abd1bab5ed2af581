#include "axonn/data/batches.h"

#include <algorithm>

#include "axonn/base/check.h"

namespace axonn {

namespace {

std::vector<BatchStage> stages_of(const BatchOptions& options) {
  if (!options.stages.empty()) return options.stages;
  return {{.batch = options.global_batch}};
}

}  // namespace

Batches::Batches(std::shared_ptr<const Sequences> sequences, SequenceMask mask,
                 const BatchOptions& options)
    : sequences_(std::move(sequences)),
      mask_(std::move(mask)),
      options_(options),
      stages_(stages_of(options)) {
  const BatchOptions& o = options_;
  AXONN_CHECK(o.seq_len > 0 && o.micro_batch > 0 && o.place >= 0 && o.place < o.places,
              "Batches: sequences of ", o.seq_len, " tokens in micro-batches of ", o.micro_batch,
              " for coordinate ", o.place, " of ", o.places);
  for (const BatchStage& stage : stages_of(options))
    AXONN_CHECK(stage.batch % (o.micro_batch * o.places) == 0, "Batches: ", stage.batch,
                " sequences in micro-batches of ", o.micro_batch, " for ", o.places,
                " coordinates");
}

Batches::~Batches() { end_reading(); }

void Batches::end_reading() {
  {
    const std::lock_guard guard(lock_);
    ends_ = true;
  }
  changed_.notify_all();
  if (reader_.joinable()) reader_.join();
}

void Batches::begin_at(std::int64_t step, std::int64_t sequence, std::int64_t consumed) {
  AXONN_CHECK(step >= 0 && sequence >= 0 && consumed >= 0, "Batches: step ", step, " at sequence ",
              sequence, " after ", consumed);
  end_reading();
  ends_ = false;
  ready_.clear();
  first_step_ = step;
  behind_ = sequence - consumed;
  stages_.begin_at(step, consumed);
}

std::int64_t Batches::steps() const {
  return (options_.end + options_.global_batch - 1) / options_.global_batch;
}

std::shared_ptr<const Batch> Batches::read(std::int64_t n) const {
  const std::int64_t begin = first_of(n), size = batch_of(n), each = size / options_.places,
                     mine = begin + options_.place * each,
                     end = options_.end > 0 ? options_.end : begin + size;
  auto result = std::make_shared<Batch>();
  Batch& batch = *result;
  for (std::int64_t i = begin; i < std::min(begin + size, end); ++i) {
    const auto [targets, inputs] = sequences_->size(i);
    batch.whole.targets += targets;
    batch.whole.inputs += inputs;
  }
  const auto append = [](std::vector<std::int32_t>& to, const std::vector<std::int32_t>& from) {
    to.insert(to.end(), from.begin(), from.end());
  };
  const auto count_targets = [](const std::vector<std::int32_t>& targets) {
    return std::ranges::count_if(targets, [](std::int32_t target) { return target >= 0; });
  };
  Sequence one;
  for (std::int64_t first = mine; first < mine + each; first += options_.micro_batch) {
    MicroBatch& micro = batch.micro_batches.emplace_back();
    micro.first = first;
    micro.sequences = options_.micro_batch;
    for (std::int64_t i = first; i < first + options_.micro_batch; ++i) {
      sequences_->read(std::min(i, end - 1), one);
      if (i >= end) one.targets.assign(options_.seq_len, -1);
      batch.targets += count_targets(one.targets);
      batch.inputs += std::ssize(one.targets) - std::ranges::count(one.targets, kPaddingTarget);
      if (mask_) mask_(i, one);
      append(micro.rows.ids, one.ids);
      append(micro.rows.targets, one.targets);
      append(micro.rows.positions, one.positions);
      append(micro.rows.starts, one.starts);
    }
    batch.counted += count_targets(micro.rows.targets);
  }
  return result;
}

std::optional<std::int64_t> Batches::next() const {
  const std::int64_t last = wanted_ + options_.ahead;
  for (std::int64_t n = wanted_; n <= last; ++n) {
    if (options_.end > 0 && n >= steps() && n != wanted_) return {};
    const auto found = ready_.find(n);
    if (found == ready_.end()) return n;
    if (found->second.error) return {};  // whoever asks for it gets the error; no use to go on
  }
  return {};
}

void Batches::read_ahead() {
  std::unique_lock guard(lock_);
  while (true) {
    std::optional<std::int64_t> n;
    changed_.wait(guard, [&] { return ends_ || (n = next()); });
    if (ends_) return;
    guard.unlock();
    Read result;
    try {
      result.batch = read(*n);
    } catch (...) {
      result.error = std::current_exception();
    }
    guard.lock();
    if (*n >= wanted_ && *n <= wanted_ + options_.ahead) ready_[*n] = std::move(result);
    changed_.notify_all();
  }
}

std::shared_ptr<const Batch> Batches::at(std::int64_t n) {
  AXONN_CHECK(n >= first_step_, "Batches: step ", n, " comes before the first, ", first_step_);
  if (options_.ahead == 0) return read(n);
  std::unique_lock guard(lock_);
  wanted_ = n;
  std::erase_if(ready_, [&](const auto& entry) {
    return entry.first < n || entry.first > n + options_.ahead;
  });
  if (!reader_.joinable()) reader_ = std::thread([this] { read_ahead(); });
  changed_.notify_all();
  changed_.wait(guard, [&] { return ready_.contains(n); });
  const auto& [batch, error] = ready_.at(n);
  if (error) std::rethrow_exception(error);
  return batch;
}

}  // namespace axonn
