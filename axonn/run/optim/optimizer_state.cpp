#include "axonn/run/optim/optimizer_state.h"

#include <algorithm>
#include <cmath>
#include <set>

#include "axonn/data/storage/checkpoint/checkpoint_index.h"
#include "axonn/foundation/base/check.h"
#include "axonn/run/optim/small_state.h"
#include "axonn/run/optim/state_sums.h"

namespace axonn {

OptimizerState::OptimizerState(std::vector<ParameterGroup*> groups,
                               std::unique_ptr<Optimizer> optimizer, const Options& options)
    : groups_(std::move(groups)), optimizer_(std::move(optimizer)), options_(options) {
  AXONN_CHECK(optimizer_, "OptimizerState: there is no optimizer; make_optimizer() makes one");
  std::set<std::string> kinds{kWeightsKind, kAveragesKind};
  kinds.insert(kFactorKinds.begin(), kFactorKinds.end());
  for (const std::string& name : optimizer_->state_names())
    AXONN_CHECK(!name.empty() && kinds.insert(name).second, "OptimizerState: state_names() has '",
                name, "'; wanted names that differ from each other, from ", kWeightsKind, ", ",
                kAveragesKind, ", ", kFactorKinds[0], " and ", kFactorKinds[1]);
  const std::string training = optimizer_->training_weights();
  AXONN_CHECK(
      training.empty() || (kinds.contains(training) && training != kWeightsKind &&
                           training != kAveragesKind && !optimizer_->number_names().empty()),
      "OptimizerState: training_weights() is '", training,
      "'; wanted one of state_names(), of a rule with number_names()");
  if (optimizer_->state_names().empty() && !optimizer_->keeps_factors())
    options_.moments = MomentType::f32;  // the rule keeps nothing
  AXONN_CHECK(
      options_.moments == MomentType::f32 || !optimizer_->state_signs().empty(),
      "OptimizerState: the rule has no state_signs(), so its state cannot be kept in 8 bits "
      "or in bf16; set optimizer.moments = \"f32\"");
}

OptimizerState::~OptimizerState() = default;

void OptimizerState::allocate(const Context& ctx) {
  const bool is_small = options_.moments != MomentType::f32;
  const std::size_t names = is_small ? 0 : optimizer_->state_names().size();
  for (const ParameterGroup* group : groups_) {
    if (is_small) small_.emplace_back(ctx, *group, options_.moments, optimizer_->state_signs());
    std::vector<Tensor>& buffers = state_.emplace_back();
    for (std::size_t i = 0; i < names; ++i)
      buffers.push_back(ctx.long_lived(1, group->piece_size(), DType::f32, MemoryUse::optimizer));
    if (optimizer_->keeps_factors()) {
      FactorLayout layout(*group);
      Tensor piece = ctx.zeros(1, layout.piece(), DType::f32, MemoryUse::optimizer);
      factors_.push_back({std::move(layout), std::move(piece)});
    }
    if (options_.ema_decay > 0)
      averages_.push_back(ctx.long_lived(1, group->piece_size(), DType::f32, MemoryUse::optimizer));
  }
  if (options_.sums) make_sums(ctx);
  optimizer_->prepare(ctx, groups_);
}

void OptimizerState::make_sums(const Context& ctx) {
  using Covers = StateSums::Covers;
  sums_ = std::make_unique<StateSums>(ctx.grid);
  std::vector<std::string> names = optimizer_->state_names();
  std::string master = kWeightsKind;
  const auto training = std::ranges::find(names, optimizer_->training_weights());
  if (training != names.end()) std::swap(*training, master);
  for (std::size_t i = 0; i < groups_.size(); ++i) {
    ParameterGroup& group = *groups_[i];
    sums_->add_group(group, master);
    const auto runs = StateSums::runs_of(group.piece_slices());
    for (std::size_t k = 0; k < state_[i].size(); ++k)
      sums_->add(i, names[k], state_[i][k], Covers::piece, runs);
    for (std::size_t k = 0; !small_.empty() && k < small_[i].size(); ++k) {
      const auto& [sign, few, absmax, full] = small_[i][k];
      const SmallLayout& layout = small_[i].layout();
      const auto of_few = StateSums::runs_of(layout.slices(true));
      sums_->add(i, names[k], few, Covers::small, of_few);
      sums_->add(i, names[k], absmax, Covers::absmax,
                 StateSums::runs_of(layout.slices(true), DynamicMap::kBlock));
      sums_->add(i, names[k], full, Covers::full, StateSums::runs_of(layout.slices(false)));
    }
    if (!factors_.empty()) {
      std::vector<NamedSlice> slices = factors_[i].layout.slices(0);
      const std::vector<NamedSlice>& of_cols = factors_[i].layout.slices(1);
      slices.insert(slices.end(), of_cols.begin(), of_cols.end());
      sums_->add(i, "exp_avg_sq", factors_[i].piece, Covers::all, StateSums::runs_of(slices));
    }
    if (!averages_.empty()) sums_->add_average(i, kAveragesKind, averages_[i]);
  }
  for (ParameterGroup* group : options_.frozen) sums_->add_group(*group, kWeightsKind);
  sums_->allocate();
}

std::string OptimizerState::changed(const std::string& what) const {
  return concat("silent corruption: ", groups_.front()->grid().describe(), ": ", what,
                " changed in memory between two updates");
}

void OptimizerState::refuse_fault(const std::string& fault) const {
  if (fault.empty()) return;
  fail(Where::here(), changed(fault),
       "; several flipped bits or faulty hardware are likely. Resume from the newest checkpoint "
       "(checkpoint.resume = \"auto\"): it was compared with its checksums. Take that rank's node "
       "out if it happens there again");
}

void OptimizerState::begin_step() {
  if (sums_) sums_->begin_step();
}

bool OptimizerState::check_copies() { return sums_ && sums_->check_copies(); }

void OptimizerState::mend_copies(const Context& ctx) {
  refuse_fault(sums_->lost_for_good());  // before other ranks get it
  const std::string lost = sums_->lost_copy();
  for (ParameterGroup* group : groups_) group->publish_values(ctx);
  for (ParameterGroup* group : options_.frozen) group->publish_values(ctx);
  sums_->ignore_publishes();
  sums_->check_copies();
  refuse_fault(sums_->lost_copy());
  if (!lost.empty())
    remarks_.push_back(concat(changed(lost), ": it is made anew. If this happens there again, ",
                              "take that rank's node out"));
}

bool OptimizerState::check_sums() {
  if (!sums_) return true;
  refuse_fault(sums_->find_fault());
  return !note_mended();
}

bool OptimizerState::note_mended() {
  const std::vector<std::string> mended = sums_->take_mended();
  for (const std::string& what : mended)
    remarks_.push_back(concat(changed(what), ": the flipped bit is set right. If this happens ",
                              "there again, take that rank's node out"));
  return !mended.empty();
}

std::vector<std::string> OptimizerState::take_remarks() {
  if (sums_) note_mended();
  return std::exchange(remarks_, {});
}

void OptimizerState::expect_averages(bool stored) {
  has_averages_ = stored && options_.ema_decay > 0;
  if (sums_) sums_->forget();
}

void OptimizerState::check_allocated(const char* function) const {
  AXONN_CHECK(state_.size() == groups_.size(), function,
              ": the optimizer has no state; call OptimizerState::allocate() before");
}

void OptimizerState::for_owned_gradients(const auto& f) const {
  for (const ParameterGroup* group : groups_) {
    const InMemory brought = group->bring_gradient(FileAccess::read);
    for (const auto& [begin, end] : group->owned_ranges())
      f(group->gradient().col_range(begin, end - begin));
  }
}

std::vector<Tensor> OptimizerState::pieces(std::size_t i) const {
  std::vector<Tensor> all = groups_[i]->pieces();
  all.insert(all.end(), state_[i].begin(), state_[i].end());
  if (!averages_.empty()) all.push_back(averages_[i]);
  return all;
}

bool OptimizerState::is_offloaded(std::size_t i) const {
  return std::ranges::any_of(pieces(i), &Tensor::in_file);
}

InMemory OptimizerState::parts_in_memory(std::size_t i) const {
  std::vector<Tensor> parts;
  if (!small_.empty()) parts = small_[i].parts_at_once();
  for (const Tensor& one : pieces(i))
    parts.push_back(one.col_range(0, std::min(one.count(), SmallState::kAtOnce)));
  return {parts, FileAccess::parts};
}

std::vector<Tensor> OptimizerState::offloadable(std::size_t i) const {
  std::vector<Tensor> all = pieces(i);
  if (!small_.empty())
    for (const Tensor& one : small_[i].buffers()) all.push_back(one);
  return all;
}

void OptimizerState::scale_gradients(const Context& ctx, double factor) const {
  for (const ParameterGroup* group : groups_) {
    const InMemory brought = group->bring_gradient(FileAccess::changed);
    const View gradient = group->gradient();
    ctx.backend.run(ops::Scale{gradient, gradient, static_cast<float>(factor)});
  }
}

void OptimizerState::add_squared_norm(const Context& ctx, const View& out) const {
  for_owned_gradients([&](const View& gradient) {
    ctx.backend.run(ops::SquaredSum{out, gradient});
  });
}

void OptimizerState::add_norm(const Context& ctx, double p, const View& squared_norm,
                              const View& out) const {
  for_owned_gradients([&](const View& gradient) {
    if (std::isinf(p))
      ctx.backend.run(ops::LargestSize{out, gradient});
    else
      ctx.backend.run(ops::PowerSum{out, gradient, squared_norm, p});
  });
}

void OptimizerState::clip_values(const Context& ctx, double limit) const {
  for (const ParameterGroup* group : groups_) {
    const InMemory brought = group->bring_gradient(FileAccess::changed);
    ctx.backend.run(ops::Clamp{group->gradient(), static_cast<float>(limit)});
  }
}

void OptimizerState::update(const Context& ctx, std::int64_t step, double lr, const View& scale) {
  check_allocated("update");
  std::vector<std::vector<View>> views(groups_.size());
  std::vector<StateViews> states;
  for (std::size_t i = 0; i < groups_.size(); ++i) {
    for (const Tensor& buffer : state_[i]) views[i].push_back(buffer.view());
    if (!small_.empty()) small_[i].begin(options_.seed, step);
    states.push_back(small_.empty() ? StateViews(views[i]) : StateViews(small_[i]));
  }
  numbers_.resize(optimizer_->number_names().size());
  Optimizer::Update now{.step = step, .lr = lr, .scale = scale};
  optimizer_->change_numbers(now, numbers_);
  now.numbers = numbers_;
  const bool by_parts = sums_ && optimizer_->updates_by_parts();
  for (std::size_t i = 0; sums_ && !by_parts && i < groups_.size(); ++i) sums_->check(i);
  optimizer_->update_together(ctx, now, states);
  for (std::size_t i = 0; i < groups_.size(); ++i) {
    ParameterGroup& group = *groups_[i];
    const std::vector<Tensor> all = pieces(i);
    const InMemory brought = optimizer_->updates_by_parts()
                                 ? parts_in_memory(i)
                                 : InMemory(offloadable(i), FileAccess::changed);
    ctx.backend.mark(group.name());
    const GroupSums sums{sums_.get(), i};
    now.state = by_parts ? states[i].with(sums) : states[i];
    if (is_offloaded(i) && optimizer_->updates_by_parts()) now.state = now.state.with(all);
    if (!factors_.empty()) {
      now.factors = factors_[i].piece.view();
      now.factor_layout = &factors_[i].layout;
    }
    optimizer_->update(ctx, group, now);
    if (sums_ && !by_parts) sums_->keep(i);
    if (options_.ema_decay > 0) update_average(ctx, i);
    group.publish(ctx);
  }
  has_averages_ = options_.ema_decay > 0;
  if (sums_) refuse_fault(sums_->finish_update());
}

namespace {

/// f(parts) of at most so many elements of tensors of equal length, which are then put away.
void for_parts_of(const std::vector<Tensor>& tensors, std::int64_t at_once, const auto& f) {
  const std::int64_t size = tensors.front().count();
  for (std::int64_t begin = 0; begin < size; begin += at_once) {
    std::vector<Tensor> parts;
    for (const Tensor& one : tensors)
      parts.push_back(one.col_range(begin, std::min(at_once, size - begin)));
    f(parts);
    for (const Tensor& part : parts) part.put_away();
  }
}

}  // namespace

void OptimizerState::update_average(const Context& ctx, std::size_t i) const {
  if (sums_) sums_->check_average(i);
  const Tensor &average = averages_[i], &master = groups_[i]->master_copy();
  const std::int64_t at_once = is_offloaded(i) ? SmallState::kAtOnce : average.count();
  for_parts_of({master, average}, at_once, [&](const auto& parts) {
    const View weights = parts[0].view(), mean = parts[1].view();
    if (has_averages_)
      ctx.backend.run(
          ops::MovingAverage{mean, weights, static_cast<float>(1 - options_.ema_decay)});
    else
      ctx.backend.run(ops::Cast{mean, weights});
  });
  if (sums_) sums_->keep_average(i);
}

void OptimizerState::exchange(const Context& ctx, const auto& of_group) {
  for (std::size_t i = 0; i < groups_.size(); ++i) {
    const InMemory brought = parts_in_memory(i);
    const Tensor& other = of_group(i);
    for_parts_of({groups_[i]->master_copy(), other}, SmallState::kAtOnce, [&](const auto& parts) {
      const View weights = parts[0].view(), others = parts[1].view();
      const Tensor held = ctx.empty(1, weights.cols, DType::f32);
      ctx.backend.run(ops::Cast{held.view(), weights});
      ctx.backend.run(ops::Cast{weights, others});
      ctx.backend.run(ops::Cast{others, held.view()});
    });
    groups_[i]->publish_values(ctx);
  }
  if (sums_) sums_->ignore_publishes();
}

void OptimizerState::exchange_averages(const Context& ctx) {
  AXONN_CHECK(has_averages_,
              "there are no averages of the weights to exchange: optimizer.ema_decay"
              " is 0, or no update was done");
  exchange(ctx, [&](std::size_t i) -> const Tensor& { return averages_[i]; });
}

std::optional<std::size_t> OptimizerState::evaluated() const {
  const std::string name = optimizer_->training_weights();
  if (name.empty() || numbers_.empty()) return std::nullopt;
  const std::vector<std::string> names = optimizer_->state_names();
  return std::ranges::find(names, name) - names.begin();
}

void OptimizerState::exchange_evaluated(const Context& ctx) {
  if (const auto k = evaluated())
    exchange(ctx, [&](std::size_t i) -> const Tensor& { return state_[i][*k]; });
}

std::map<std::string, double> OptimizerState::numbers() const {
  std::map<std::string, double> named;
  if (numbers_.empty()) return named;
  const std::vector<std::string> names = optimizer_->number_names();
  for (std::size_t k = 0; k < names.size(); ++k) named[names[k]] = numbers_[k];
  return named;
}

void OptimizerState::set_numbers(const std::map<std::string, double>& stored) {
  numbers_.clear();
  if (stored.empty()) return;
  for (const std::string& name : optimizer_->number_names()) {
    const auto found = stored.find(name);
    if (found == stored.end())
      refuse("the checkpoint's state.json has no ", name, " of its optimizer; resume from another");
    numbers_.push_back(found->second);
  }
}

std::vector<std::pair<std::string, View>> OptimizerState::buffers(std::size_t i) const {
  check_allocated("buffers");
  AXONN_CHECK(i < groups_.size(), "buffers: there is no group ", i, " of ", groups_.size());
  std::vector<std::pair<std::string, View>> all{{kWeightsKind, groups_[i]->master()}};
  const std::vector<std::string> names = optimizer_->state_names();
  for (std::size_t k = 0; k < state_[i].size(); ++k)
    all.emplace_back(names[k], state_[i][k].view());
  if (const auto k = evaluated()) std::swap(all.front().second, all[*k + 1].second);
  if (has_averages_) all.emplace_back(kAveragesKind, averages_[i].view());
  return all;
}

const SmallState* OptimizerState::small(std::size_t i) const {
  check_allocated("small");
  AXONN_CHECK(i < groups_.size(), "small: there is no group ", i, " of ", groups_.size());
  return small_.empty() ? nullptr : &small_[i];
}

std::vector<std::string> OptimizerState::kinds() const {
  std::vector<std::string> all;
  for (const auto& [kind, data] : buffers(0)) all.push_back(kind);
  if (small(0))
    for (const std::string& name : state_names()) all.push_back(name);
  for (const auto& [kind, piece, slices] : factors(0)) all.push_back(kind);
  return all;
}

std::vector<OptimizerState::Factors> OptimizerState::factors(std::size_t i) const {
  check_allocated("factors");
  AXONN_CHECK(i < groups_.size(), "factors: there is no group ", i, " of ", groups_.size());
  std::vector<Factors> all;
  if (factors_.empty()) return all;
  for (std::size_t kind = 0; kind < kFactorKinds.size(); ++kind)
    all.push_back({kFactorKinds[kind], factors_[i].piece.view(), &factors_[i].layout.slices(kind)});
  return all;
}

}  // namespace axonn
