#include "axonn/parallel/block.h"

#include "axonn/base/check.h"
#include "axonn/parallel/scheduling.h"

namespace axonn {

namespace {

/// Whether backward through a block that runs now will reduce its gradients.
bool expects_reduce(const Context& ctx) {
  const Rerun rerun = ctx.scheduling().scope.rerun;
  return rerun == Rerun::none ? ctx.tape != nullptr : rerun == Rerun::first_run;
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

void with_parameters(const Context& ctx, ParameterGroup& group,
                     const std::function<void(const Context&)>& body, ReadIn read_in) {
  const auto f = [&body, &group](Context inside) {
    std::vector<std::function<void()>> before_release;
    inside.own_scheduling().scope.before_release = group.stays() ? nullptr : &before_release;
    in_block(inside, [&] { body(inside); });
    for (const auto& make : before_release) make();
  };
  Context inside = ctx;
  BlockScope& scope = inside.own_scheduling().scope;
  scope.label = group.name();
  if (read_in == ReadIn::held) scope.hold_parameters = true;
  const bool held = scope.hold_parameters;
  group.acquire(inside);
  ctx.backend.mark(group.name());
  const bool learns = !group.frozen();
  if (learns && expects_reduce(ctx)) group.expect_reduce();
  if (!ctx.tape) {
    f(inside);
    group.release();
    return;
  }
  const bool again = held || read_in == ReadIn::both_passes;
  // If the group is never released, chunks of one block need not wait for all chunks of the next.
  Tape& end = group.stays() ? ctx.tape->last_lane() : *ctx.tape;
  end.record([inside, &group, learns, again] {
    if (learns) group.reduce(inside);
    if (again) group.release();
  });
  if (held) {
    if (learns) group.begin_backward(inside);
    f(inside);
    return;
  }
  f(inside);
  group.release();
  Tape& begin = group.stays() ? ctx.tape->first_lane() : *ctx.tape;
  begin.record([inside, &group, learns, again] {
    if (again) group.acquire(inside);
    if (learns) group.begin_backward(inside);
  });
}

bool adds_gradient(const Context& ctx, const Parameter& parameter, const Placement& placement) {
  const AxisSet cut = placement.rows | placement.cols, partial = parameter.spec().layout.partial;
  bool adds = !parameter.frozen();
  for (const Axis axis : {Axis::x, Axis::y})
    adds = adds && (!partial.has(axis) || cut.has(axis) || ctx.grid.coord(axis) == 0);
  return adds;
}

namespace {

Var with_all(const Context& ctx, std::span<ParameterGroup* const> groups, const Var& inp,
             const Forward& f) {
  if (groups.empty()) return f(ctx, inp);
  Var out;
  with_parameters(ctx, *groups.front(), [&](const Context& inside) {
    out = with_all(inside, groups.subspan(1), inp, f);
  });
  return out;
}

}  // namespace

Var run_block(const Context& ctx, std::span<ParameterGroup* const> groups, const Var& inp,
              const Forward& f, std::int64_t number) {
  AXONN_CHECK(!groups.empty(), "run_block: no groups; without parameters, call the function");
  const std::vector<ParameterGroup*> all(groups.begin(), groups.end());
  const Recompute recompute = ctx.scheduling().run.recompute.of(number);
  const Forward named = [all, f, recompute](const Context& inner, const Var& x) {
    Context inside = inner;  // all of the block's collectives have the first group's name
    BlockScope& scope = inside.own_scheduling().scope;
    scope.label = all.front()->name();
    scope.recompute = recompute;
    return f(inside, x);
  };
  const Forward whole = [all, named](const Context& inner, const Var& x) {
    return with_all(inner, all, x, named);
  };
  if (recompute.is_all()) return checkpoint(ctx, inp, whole);
  const Var out = whole(ctx, inp);
  return recompute == Recompute() ? out : out.kept();
}

Var run_block(const Context& ctx, ParameterGroup& group, const Var& inp, const Forward& f,
              std::int64_t number) {
  ParameterGroup* one = &group;
  return run_block(ctx, std::span(&one, 1), inp, f, number);
}

}  // namespace axonn
