#include "axonn/data/corpus/batches.h"

#include <algorithm>
#include <functional>

#include "axonn/foundation/base/check.h"

namespace axonn {

namespace {

std::vector<BatchStage> stages_of(const BatchOptions& options) {
  if (!options.stages.empty()) return options.stages;
  return {{.batch = options.global_batch}};
}

}  // namespace

Batches::Batches(std::shared_ptr<const Sequences> sequences, SequenceMask mask,
                 const BatchOptions& options)
    : Batches({{.sequences = std::move(sequences), .mask = std::move(mask)}}, options) {}

Batches::Batches(std::vector<BatchSource> sources, const BatchOptions& options)
    : sources_(std::move(sources)),
      options_(options),
      stages_(stages_of(options)),
      done_(sources_.size()) {
  const BatchOptions& o = options_;
  AXONN_CHECK(
      o.seq_len > 0 && o.micro_batch > 0 && o.coordinate >= 0 && o.coordinate < o.coordinates,
      "Batches: sequences of ", o.seq_len, " tokens in micro-batches of ", o.micro_batch,
      " for coordinate ", o.coordinate, " of ", o.coordinates);
  AXONN_CHECK(
      !sources_.empty() && (sources_.size() == 1 || o.end == 0) &&
          std::ranges::is_sorted(sources_, std::less(), &BatchSource::first_step),
      "Batches: ", sources_.size(),
      " sources; want at least one, sorted by first_step, and end = 0 if there are several");
  may_pad_ = any_padded(stages_of(options), o.micro_batch * o.coordinates);
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

void Batches::begin_at(std::int64_t step, std::int64_t consumed, std::vector<std::int64_t> done) {
  AXONN_CHECK(step >= 0 && consumed >= 0 && done.size() == sources_.size() &&
                  std::ranges::all_of(done, [](std::int64_t each) { return each >= 0; }),
              "Batches::begin_at: step ", step, " after ", consumed, " sequences, with samples of ",
              done.size(), " sources done; want none below 0, for ", sources_.size(), " sources");
  end_reading();
  ends_ = false;
  ready_.clear();
  first_step_ = step;
  done_ = std::move(done);
  stages_.begin_at(step, consumed);
}

std::size_t Batches::source_index(std::int64_t n) const {
  const auto after = std::ranges::upper_bound(sources_, n, {}, &BatchSource::first_step);
  return static_cast<std::size_t>(std::max<std::ptrdiff_t>(after - sources_.begin() - 1, 0));
}

std::int64_t Batches::done(std::size_t s, std::int64_t n) const {
  AXONN_CHECK(s < sources_.size(), "Batches: there is no source ", s, " of ", sources_.size());
  const std::int64_t begin = std::max(sources_[s].first_step, first_step_),
                     end = s + 1 < sources_.size() ? sources_[s + 1].first_step : n,
                     steps_until = std::max(std::min(n, end), begin);
  return done_[s] + (consumed_before(steps_until) - consumed_before(begin)) * sources_[s].in_one;
}

bool Batches::counts_inputs_by_reading() const {
  return std::ranges::any_of(
      sources_, [](const BatchSource& source) { return source.sequences->counts_by_reading(); });
}

bool Batches::counts_by_reading() const {
  return counts_inputs_by_reading() ||
         std::ranges::any_of(sources_, [](const BatchSource& source) { return !!source.mask; });
}

std::int64_t Batches::steps() const {
  return (options_.end + options_.global_batch - 1) / options_.global_batch;
}

std::int64_t Batches::sequences_here(std::int64_t n) const {
  const std::int64_t micro_batches =
      batch_share(batch_of(n), options_.micro_batch * options_.coordinates);
  return micro_batches * options_.micro_batch * source_of(n).in_one;
}

void Batches::read_sequence(const BatchSource& source, std::int64_t i, std::int64_t end,
                            Sequence& to) const {
  // Padding has the ids of a sequence that exists, so it computes nothing that others do not.
  source.sequences->read(std::min(i, end - 1), to);
  if (i >= end) std::ranges::fill(to.targets, kPaddingTarget);
}

std::shared_ptr<const Batch> Batches::read(std::int64_t n) const {
  const BatchSource& source = source_of(n);
  if (n < source.first_step)
    refuse("step ", n + 1, " has no data: the first stage, ", source.name, ", begins with step ",
           source.first_step + 1, "; set its from_step, or resume from a later checkpoint");
  const Sequences& sequences = *source.sequences;
  const std::int64_t begin = first_of(n), after = begin + batch_of(n) * source.in_one,
                     end = options_.end > 0 ? std::min(options_.end, after) : after,
                     at_once = options_.micro_batch * source.in_one, mine = first_here(n);
  auto result = std::make_shared<Batch>();
  Batch& batch = *result;
  batch.end = end;
  for (std::int64_t i = begin; i < end; ++i) {
    const auto [targets, inputs] = sequences.size(i);
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
  for (std::int64_t first = mine; first < mine + sequences_here(n); first += at_once) {
    MicroBatch& micro = batch.micro_batches.emplace_back();
    micro.first = first;
    micro.sequences = at_once;
    micro.may_pad = may_pad_;
    micro.further = options_.further;
    for (std::int64_t i = first; i < first + at_once; ++i) {
      read_sequence(source, i, end, one);
      batch.targets += count_targets(one.targets);
      batch.inputs += std::ssize(one.targets) - std::ranges::count(one.targets, kPaddingTarget);
      if (source.mask && i < end) source.mask(i, one);
      micro.numbers.push_back(sequences.own_number(std::min(i, end - 1)));
      append(micro.rows.ids, one.ids);
      append(micro.rows.targets, one.targets);
      append(micro.rows.positions, one.positions);
      append(micro.rows.starts, one.starts);
      append(micro.rows.branches, one.branches);
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
