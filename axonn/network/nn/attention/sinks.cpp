#include "axonn/network/nn/attention/sinks.h"

#include "axonn/ranks/parallel/block.h"

namespace axonn {

Sinks::Sinks(ParameterGroup& group, const std::string& name, const Heads& heads, double init_std)
    : parameter_(&group.add(
          {.name = name + ".sinks",
           .layout = {.rows = heads.heads,
                      .row_axis = Axis::x,
                      .segments = {{.rows = heads.heads, .unit = 1, .kind = Segment::Kind::padded}},
                      .partial = Axis::y},
           .init_std = init_std})) {}

/// The numbers of the heads in a value here, of `all` that this coordinate of x has.
View Sinks::part(const Context& ctx, const LocalHeads& at, const Placement& placement,
                 const View& all) const {
  const std::int64_t part = placement.cols.has(Axis::y) ? ctx.grid.coord(Axis::y) : 0;
  return all.col_range(part * at.heads, at.heads);
}

void Sinks::add(const Context& ctx, const LocalHeads& at, const Placement& placement,
                const Forward& of) const {
  ctx.backend.mark(parameter_->spec().name);
  ctx.backend.run(
      ops::AddSinks{of.out, of.total, of.stats, part(ctx, at, placement, parameter_->weight())});
}

void Sinks::backward(const Context& ctx, const LocalHeads& at, const Placement& placement,
                     const Backward& of) const {
  if (!adds_gradient(ctx, *parameter_, placement)) return;
  ctx.backend.mark(parameter_->spec().name);
  const Tensor terms = ctx.empty(of.total.rows, of.total.cols, DType::f32);
  ctx.backend.run(ops::SinkTerms{terms.view(), of.d_out, of.out, of.total,
                                 part(ctx, at, placement, parameter_->weight())});
  ctx.backend.run(
      ops::ColumnSum{part(ctx, at, placement, parameter_->gradient(ctx)), terms.view()});
}

}  // namespace axonn
