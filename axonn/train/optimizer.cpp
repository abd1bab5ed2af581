#include "axonn/train/optimizer.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <numbers>
#include <set>

#include "axonn/base/check.h"
#include "axonn/data/batch_stages.h"
#include "axonn/storage/checkpoint/checkpoint_index.h"
#include "axonn/train/adamw.h"
#include "axonn/train/muon.h"

namespace axonn {

namespace {

/// Adam with decoupled weight decay. Source: Loshchilov and Hutter, "Decoupled Weight Decay
/// Regularization", 2019, arXiv:1711.05101, algorithm 2. AdEMAMix adds a slow mean of gradients.
class AdamW final : public Optimizer {
 public:
  explicit AdamW(const OptimizerConfig& config) : config_(config) {}

  std::vector<std::string> state_names() const override {
    if (config_.kind == OptimizerKind::ademamix) return {"exp_avg", "exp_avg_slow", "exp_avg_sq"};
    return {"exp_avg", "exp_avg_sq"};
  }
  void update(const Context& ctx, const ParameterGroup& group,
              const Update& update) const override {
    const std::int64_t all = group.piece_size(), decayed = group.decayed();
    if (group.rate() == 1)
      return update_adamw(ctx, config_, group, update, {.count = all, .decayed = decayed});
    update_adamw(ctx, config_, group, update,
                 {.count = decayed, .decayed = decayed, .rate = group.rate()});
    update_adamw(ctx, config_, group, update, {.begin = decayed, .count = all - decayed});
  }

 private:
  OptimizerConfig config_;
};

/// Gradient descent without momentum, with decoupled weight decay.
class Sgd final : public Optimizer {
 public:
  explicit Sgd(const OptimizerConfig& config) : config_(config) {}

  std::vector<std::string> state_names() const override { return {}; }
  void update(const Context& ctx, const ParameterGroup& group,
              const Update& update) const override {
    ctx.backend.run(ops::Sgd{.master = group.master(),
                             .gradient = group.gradient(),
                             .out = group.piece_of_compute(),
                             .scale = update.scale,
                             .lr = static_cast<float>(update.lr),
                             .weight_decay = static_cast<float>(config_.weight_decay),
                             .decayed = group.decayed()});
  }

 private:
  OptimizerConfig config_;
};

}  // namespace

const View& StateViews::operator[](std::size_t i) const {
  AXONN_CHECK(i < views_.size(), "state[", i, "]: the rule's state_names() has ", views_.size(),
              " names");
  return views_[i];
}

OptimizerConfig optimizer_of(const Config& config) {
  OptimizerConfig scaled = config.optimizer;
  scaled.eps /= config.model.width_factor();
  return scaled;
}

std::unique_ptr<Optimizer> make_optimizer(const OptimizerConfig& config) {
  if (const OptimizerRule* own = optimizer_rule_of(config.kind)) {
    std::unique_ptr<Optimizer> rule = own->make(config);
    AXONN_CHECK(rule, "optimizer.kind '", own->name, "': its function `make` returned null");
    return rule;
  }
  if (config.kind == OptimizerKind::sgd) return std::make_unique<Sgd>(config);
  if (config.kind == OptimizerKind::muon) return make_muon(config);
  return std::make_unique<AdamW>(config);
}

std::vector<std::string> state_kinds(const OptimizerConfig& config) {
  std::vector<std::string> kinds = make_optimizer(config)->state_names();
  kinds.insert(kinds.begin(), kWeightsKind);
  if (config.ema_decay > 0) kinds.emplace_back(kAveragesKind);
  return kinds;
}

namespace {

/// The share of the peak rate above the lowest that is left when a share `done` of a decay is.
double left_after(DecayShape shape, double done) {
  if (shape == DecayShape::cosine) return 0.5 * (1 + std::cos(std::numbers::pi * done));
  return 1 - std::sqrt(done);
}

}  // namespace

double learning_rate(const Config& config, std::int64_t step) {
  if (!config.lr_scheduler.counts_samples()) return learning_rate(config, step, 0);
  return learning_rate(config, step,
                       BatchStages(batch_stages(config.training)).consumed_before(step));
}

double learning_rate(const Config& config, std::int64_t step, std::int64_t samples) {
  const ScheduleConfig& schedule = config.lr_scheduler;
  const double lr = config.optimizer.lr, low = schedule.min_lr;
  const bool by_samples = schedule.counts_samples();
  // Where the run is, and the ends of warm-up and run, in steps or in samples.
  const std::int64_t now = by_samples ? samples : step,
                     last = by_samples ? schedule.total_samples : config.training.steps - 1,
                     warmup = by_samples ? schedule.warmup_samples : warmup_steps(config);
  if (now < warmup)
    return lr * static_cast<double>(by_samples ? now : now + 1) / static_cast<double>(warmup);

  const bool only_step = !by_samples && config.training.steps == 1;
  if (schedule.kind == ScheduleKind::constant || only_step) return lr;
  const bool wsd = schedule.kind == ScheduleKind::wsd;
  const std::int64_t decay = by_samples ? schedule.decay_samples : schedule.decay_steps,
                     begin = wsd ? std::max(warmup, last - decay) : warmup;
  // The fraction, 0 to 1, of the decay that is done.
  double done = now < last ? 0 : 1;
  if (now > begin && now < last)
    done = static_cast<double>(now - begin) / static_cast<double>(last - begin);
  const DecayShape shape = wsd                                     ? schedule.decay
                           : schedule.kind == ScheduleKind::cosine ? DecayShape::cosine
                                                                   : DecayShape::linear;
  if (shape == DecayShape::linear) return lr + (low - lr) * done;
  return low + (lr - low) * left_after(shape, done);
}

OptimizerState::OptimizerState(std::vector<ParameterGroup*> groups,
                               std::unique_ptr<Optimizer> optimizer, double ema_decay)
    : groups_(std::move(groups)), optimizer_(std::move(optimizer)), ema_decay_(ema_decay) {
  AXONN_CHECK(optimizer_, "OptimizerState: there is no optimizer; make_optimizer() makes one");
  std::set<std::string> kinds{kWeightsKind, kAveragesKind};
  for (const std::string& name : optimizer_->state_names())
    AXONN_CHECK(!name.empty() && kinds.insert(name).second, "OptimizerState: state_names() has '",
                name, "'; wanted names that differ from each other, from ", kWeightsKind, " and ",
                kAveragesKind);
}

void OptimizerState::allocate(const Context& ctx) {
  const std::size_t names = optimizer_->state_names().size();
  for (const ParameterGroup* group : groups_) {
    std::vector<Tensor>& buffers = state_.emplace_back();
    for (std::size_t i = 0; i < names; ++i)
      buffers.push_back(ctx.zeros(1, group->piece_size(), DType::f32, MemoryUse::optimizer));
    if (ema_decay_ > 0)
      averages_.push_back(ctx.zeros(1, group->piece_size(), DType::f32, MemoryUse::optimizer));
  }
  optimizer_->prepare(ctx, groups_);
}

void OptimizerState::check_allocated(const char* function) const {
  AXONN_CHECK(state_.size() == groups_.size(), function,
              ": the optimizer has no state; call OptimizerState::allocate() before");
}

void OptimizerState::add_squared_norm(const Context& ctx, const View& out) const {
  for (const ParameterGroup* group : groups_)
    for (const auto& [begin, end] : group->owned_ranges())
      ctx.backend.run(ops::SquaredSum{out, group->gradient().col_range(begin, end - begin)});
}

void OptimizerState::update(const Context& ctx, std::int64_t step, double lr, const View& scale) {
  check_allocated("update");
  std::vector<std::vector<View>> states(groups_.size());
  for (std::size_t i = 0; i < groups_.size(); ++i)
    for (const Tensor& buffer : state_[i]) states[i].push_back(buffer.view());
  optimizer_->update_together(ctx, {.step = step, .lr = lr, .scale = scale}, states);
  for (std::size_t i = 0; i < groups_.size(); ++i) {
    ParameterGroup& group = *groups_[i];
    ctx.backend.mark(group.name());
    optimizer_->update(ctx, group, {.step = step, .lr = lr, .scale = scale, .state = states[i]});
    if (ema_decay_ > 0) update_average(ctx, i);
    group.publish(ctx);
  }
  has_averages_ = ema_decay_ > 0;
}

void OptimizerState::update_average(const Context& ctx, std::size_t i) const {
  const View average = averages_[i].view(), weights = groups_[i]->master();
  if (has_averages_)
    ctx.backend.run(ops::MovingAverage{average, weights, static_cast<float>(1 - ema_decay_)});
  else
    ctx.backend.run(ops::Cast{average, weights});
}

void OptimizerState::exchange_averages(const Context& ctx) {
  constexpr std::int64_t kAtOnce = 1 << 20;  // elements, held in 4 MiB of further memory
  AXONN_CHECK(has_averages_,
              "there are no averages of the weights to exchange: optimizer.ema_decay"
              " is 0, or no update was done");
  for (std::size_t i = 0; i < groups_.size(); ++i) {
    for (std::int64_t begin = 0; begin < groups_[i]->piece_size(); begin += kAtOnce) {
      const std::int64_t count = std::min(kAtOnce, groups_[i]->piece_size() - begin);
      const View weights = groups_[i]->master().col_range(begin, count),
                 averages = averages_[i].view().col_range(begin, count);
      const Tensor held = ctx.empty(1, count, DType::f32);
      ctx.backend.run(ops::Cast{held.view(), weights});
      ctx.backend.run(ops::Cast{weights, averages});
      ctx.backend.run(ops::Cast{averages, held.view()});
    }
    groups_[i]->publish_values(ctx);
  }
}

std::vector<std::pair<std::string, View>> OptimizerState::buffers(std::size_t i) const {
  check_allocated("buffers");
  AXONN_CHECK(i < groups_.size(), "buffers: there is no group ", i, " of ", groups_.size());
  std::vector<std::pair<std::string, View>> all{{kWeightsKind, groups_[i]->master()}};
  const std::vector<std::string> names = optimizer_->state_names();
  for (std::size_t k = 0; k < names.size(); ++k) all.emplace_back(names[k], state_[i][k].view());
  if (has_averages_) all.emplace_back(kAveragesKind, averages_[i].view());
  return all;
}

NamedNorms gradient_norms(const Context& ctx, const OptimizerState& optimizer) {
  NamedNorms norms;
  std::map<const ParameterSpec*, std::int64_t> index;
  for (const ParameterGroup* group : optimizer.groups())
    for (const auto& parameter : group->parameters()) {
      index[&parameter->spec()] = std::ssize(norms);
      norms.emplace_back(parameter->spec().name, 0);
    }
  Tensor sums = ctx.zeros(1, std::ssize(norms), DType::f64);
  for (const ParameterGroup* group : optimizer.groups())
    for (const auto& [spec, slice] : group->piece_slices())
      if (slice.owned)
        ctx.backend.run(ops::SquaredSum{sums.view().col_range(index.at(spec), 1),
                                        group->gradient().col_range(slice.offset, slice.count())});
  sums.set_pending(ctx.grid.world().all_reduce(buffer_of(sums.raw_view()), "gradient norms"));
  std::vector<double> host(norms.size());
  ctx.device().copy_to_host(host.data(), sums.view().data, sums.bytes());
  for (std::size_t i = 0; i < norms.size(); ++i) norms[i].second = std::sqrt(host[i]);
  return norms;
}

}  // namespace axonn
