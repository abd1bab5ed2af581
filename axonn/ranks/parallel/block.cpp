#include "axonn/ranks/parallel/block.h"

#include <array>
#include <utility>

#include "axonn/foundation/base/check.h"
#include "axonn/ranks/parallel/scheduling.h"

namespace axonn {

namespace {

/// Whether backward through a block that runs now will reduce its gradients.
bool expects_reduce(const Context& ctx) {
  const Rerun rerun = ctx.scheduling().scope.rerun;
  return rerun == Rerun::none ? ctx.tape != nullptr : rerun == Rerun::first_run;
}

/// What becomes of gathered weights that a part of a pass has read. `again`: a later part of this
/// micro-batch reads them, too.
ParameterGroup::Gathered after_read(const Context& ctx, const ParameterGroup& group, bool again) {
  const auto& [run, step, scope] = ctx.scheduling();
  const bool later = group.frozen() || (step && step->more_micro_batches);
  const bool kept = run.keep_weights == KeepWeights::step          ? again || later
                    : run.keep_weights == KeepWeights::micro_batch ? again
                                                                   : false;
  return kept ? ParameterGroup::Gathered::kept : ParameterGroup::Gathered::freed;
}

}  // namespace

Var checkpoint(const Context& ctx, const Var& inp, const Forward& f) {
  Context silent = ctx;
  silent.tape = nullptr;
  if (ctx.tape && ctx.scheduling().scope.rerun == Rerun::none)
    silent.own_scheduling().scope.rerun = Rerun::first_run;
  const Var silently = f(silent, inp);
  if (!ctx.tape) return silently;
  Var out;
  std::vector<std::shared_ptr<Gradient>> gradients;
  for (Chunk chunk : silently) {
    chunk.gradient = std::make_shared<Gradient>();
    gradients.push_back(chunk.gradient);
    out.push_back(std::move(chunk));
  }

  ctx.tape->record([ctx, inp, gradients, f] {
    Tape inner;
    Context again = ctx;
    again.tape = &inner;
    BlockScope& scope = again.own_scheduling().scope;
    scope.hold_parameters = true;
    scope.rerun = Rerun::second_run;
    scope.before_release = nullptr;  // the parameters stay gathered during backward
    const Var second = f(again, inp);
    AXONN_CHECK(second.size() == gradients.size(), "checkpoint: the second forward pass returned ",
                second.size(), " chunks, the first ", gradients.size());
    for (std::size_t i = 0; i < second.size(); ++i)
      if (second[i].gradient) second[i].gradient->add(ctx, gradients[i]->take());
    inner.backward();
  });
  return out;
}

GatheredWeights::GatheredWeights(const Context& ctx, std::span<ParameterGroup* const> groups,
                                 ReadIn read_in)
    : held_(ctx.scheduling().scope.hold_parameters || read_in == ReadIn::held),
      again_(held_ || read_in == ReadIn::both_passes),
      repeated_(read_in == ReadIn::forward_again ||
                ctx.scheduling().scope.rerun == Rerun::first_run),
      inside_(ctx) {
  BlockScope& scope = inside_.own_scheduling().scope;
  scope.hold_parameters = held_;
  scope.before_release = nullptr;
  for (ParameterGroup* group : groups) {
    scope.label = group->name();
    if (!group->stays()) scope.before_release = &before_release_;
  }
  for (ParameterGroup* group : groups) gather(*group);
}

GatheredWeights::GatheredWeights(const Context& ctx, ParameterGroup& group, ReadIn read_in)
    : GatheredWeights(ctx, std::array{&group}, read_in) {}

void GatheredWeights::gather(ParameterGroup& group) {
  group.acquire(inside_);
  if (!held_for_backward()) groups_.push_back(&group);
  inside_.backend.mark(group.name());
  const bool learns = !group.frozen();
  if (learns && expects_reduce(inside_)) group.expect_reduce();
  if (!inside_.tape) return;
  // If the group is never released, chunks of one block need not wait for all chunks of the next.
  Tape& end = group.stays() ? inside_.tape->last_lane() : *inside_.tape;
  end.record([ctx = inside_, &group, learns, again = again_] {
    if (learns) group.reduce(ctx);
    if (again) group.release(after_read(ctx, group, false));
  });
  if (held_ && learns) group.begin_backward(inside_);
}

void GatheredWeights::release() {
  for (std::size_t i = 0; i < before_release_.size(); ++i)
    std::exchange(before_release_[i], nullptr)();
  while (!groups_.empty()) {
    ParameterGroup& group = *groups_.back();
    groups_.pop_back();
    group.release(after_read(inside_, group, repeated_ || (inside_.tape && again_)));
    if (!inside_.tape) continue;
    Tape& begin = group.stays() ? inside_.tape->first_lane() : *inside_.tape;
    begin.record([ctx = inside_, &group, again = again_] {
      if (again) group.acquire(ctx);
      if (!group.frozen()) group.begin_backward(ctx);
    });
  }
}

GatheredWeights::~GatheredWeights() {
  for (ParameterGroup* group : groups_) group->release();
}

HeldWeights::HeldWeights(const Context& ctx, std::vector<ParameterGroup*> groups)
    : ctx_(ctx), groups_(std::move(groups)) {
  for (ParameterGroup* group : groups_) group->hold(ctx_);
}

HeldWeights::~HeldWeights() {
  for (ParameterGroup* group : groups_) group->let_go(after_read(ctx_, *group, false));
}

bool adds_gradient(const Context& ctx, const Parameter& parameter, const Placement& placement) {
  const AxisSet cut = placement.rows | placement.cols, partial = parameter.spec().layout.partial;
  bool adds = !parameter.frozen();
  for (const Axis axis : {Axis::x, Axis::y})
    adds = adds && (!partial.has(axis) || cut.has(axis) || ctx.grid.coord(axis) == 0);
  return adds;
}

namespace {

/// A block without checkpointing.
Var run_once(const Context& ctx, std::span<ParameterGroup* const> groups, const Var& inp,
             const Forward& f, Recompute recompute) {
  GatheredWeights weights(ctx, groups);
  Context inside = weights.context();
  BlockScope& scope = inside.own_scheduling().scope;
  scope.label = groups.front()->name();
  scope.recompute = recompute;
  Var out;
  try {
    out = f(inside, inp);
  } catch (const AccessError& error) {
    fail_in_block(inside, error);
  }
  weights.release();
  return out;
}

}  // namespace

Var run_block(const Context& ctx, std::span<ParameterGroup* const> groups, const Var& inp,
              const Forward& f, std::int64_t number) {
  AXONN_CHECK(!groups.empty(), "run_block: no groups; without parameters, call the function");
  const Recompute recompute = ctx.scheduling().run.recompute.of(number);
  if (recompute.is_all()) {
    const std::vector<ParameterGroup*> all(groups.begin(), groups.end());
    return checkpoint(ctx, inp, [all, f, recompute](const Context& inner, const Var& x) {
      return run_once(inner, all, x, f, recompute);
    });
  }
  const Var out = run_once(ctx, groups, inp, f, recompute);
  return recompute == Recompute() ? out : out.kept();
}

Var run_block(const Context& ctx, ParameterGroup& group, const Var& inp, const Forward& f,
              std::int64_t number) {
  return run_block(ctx, std::array{&group}, inp, f, number);
}

}  // namespace axonn
