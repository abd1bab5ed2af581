#include "axonn/study/injection.h"

#include <algorithm>
#include <numeric>

#include "axonn/base/check.h"
#include "axonn/base/random.h"

namespace axonn {

std::vector<std::int32_t> injections(const InjectionPlan& plan,
                                     std::span<const std::int64_t> epochs) {
  const std::int64_t slots = (plan.steps - plan.warmup_steps) * plan.batch,
                     wanted = std::accumulate(epochs.begin(), epochs.end(), std::int64_t{0});
  if (wanted > slots)
    refuse("the documents of all epochs need ", wanted, " sequences, but the ",
           plan.steps - plan.warmup_steps, " steps after the warm-up have ", slots,
           "; set training.steps to ", plan.warmup_steps + (wanted + plan.batch - 1) / plan.batch,
           " or more, or lower memorize.bucket_size or memorize.epochs");
  struct Visit {
    double time;  // in [0, 1)
    std::int32_t document;
  };
  std::vector<Visit> visits;
  const Random random(plan.seed, "study/injections");
  for (std::size_t d = 0; d < epochs.size(); ++d)
    for (std::int64_t e = 0; e < epochs[d]; ++e)
      visits.push_back({(static_cast<double>(e) + random.uniform(visits.size())) /
                            static_cast<double>(epochs[d]),
                        static_cast<std::int32_t>(d)});
  std::ranges::stable_sort(visits, {}, &Visit::time);
  std::vector<std::int32_t> injected(static_cast<std::size_t>(slots), -1);
  for (std::int64_t i = 0; i < wanted; ++i)
    injected[static_cast<std::size_t>(i * slots / wanted)] = visits[i].document;
  return injected;
}

InjectedSequences::InjectedSequences(std::unique_ptr<const Sequences> others,
                                     std::shared_ptr<const std::vector<StudyDocument>> documents,
                                     std::span<const std::int64_t> epochs,
                                     const InjectionPlan& plan, std::int64_t seq_len)
    : others_(std::move(others)),
      documents_(std::move(documents)),
      first_(plan.warmup_steps * plan.batch),
      seq_len_(seq_len),
      injected_(injections(plan, epochs)) {
  AXONN_CHECK(epochs.size() == documents_->size(), "injected sequences: ", epochs.size(),
              " numbers of epochs for ", documents_->size(), " documents");
  std::int64_t others_before = first_;
  for (const std::int32_t document : injected_) {
    earlier_.push_back(others_before);
    others_before += document < 0;
  }
  Sequence sample;
  others_->read(0, sample);
  packed_ = !sample.starts.empty();
}

std::int64_t InjectedSequences::count() const { return first_ + std::ssize(injected_); }

std::pair<std::int32_t, std::int64_t> InjectedSequences::place(std::int64_t n) const {
  AXONN_CHECK(n >= 0 && n < count(), "sequence ", n, " is out of range: there are ", count(),
              " sequences");
  if (n < first_) return {-1, n};
  return {injected_[n - first_], earlier_[n - first_]};
}

void InjectedSequences::read(std::int64_t n, Sequence& to) const {
  const auto [document, other] = place(n);
  if (document < 0) return others_->read(other, to);
  const std::vector<std::int32_t>& tokens = (*documents_)[document].tokens;
  const auto length = static_cast<std::size_t>(seq_len_);
  to.ids.assign(tokens.begin(), tokens.end() - 1);
  to.targets.assign(tokens.begin() + 1, tokens.end());
  to.ids.resize(length, 0);
  to.targets.resize(length, -1);
  to.positions.clear();
  to.starts.clear();
  if (!packed_) return;
  to.positions.resize(length);
  std::iota(to.positions.begin(), to.positions.end(), 0);
  to.starts.assign(length, 0);
}

Sequences::Size InjectedSequences::size(std::int64_t n) const {
  const auto [document, other] = place(n);
  if (document < 0) return others_->size(other);
  const std::int64_t inputs = std::ssize((*documents_)[document].tokens) - 1;
  return {inputs, inputs};
}

std::string InjectedSequences::where(std::int64_t n) const {
  const auto [document, other] = place(n);
  return document < 0 ? others_->where(other) : (*documents_)[document].name;
}

}  // namespace axonn
