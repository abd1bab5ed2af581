#include "axonn/network/nn/pointwise.h"

#include <memory>
#include <numeric>
#include <string_view>
#include <utility>

#include "axonn/foundation/base/check.h"
#include "axonn/ranks/parallel/scheduling.h"
#include "axonn/ranks/parallel/var.h"

namespace axonn {

Chunk gelu_chunk(const Context& ctx, const Chunk& inp, Tensor value) {
  Chunk out = make_chunk(ctx, inp, std::move(value), inp.placement);
  if (!out.gradient) return out;
  out.gelu_of = {saved(ctx, inp), inp.gradient};
  ctx.tape->record([ctx, of = out.gelu_of, gradient = out.gradient] {
    const Tensor d_out = gradient->take_if_any();
    if (d_out.empty()) return;  // a product's epilogue has added to of.gradient instead
    const Tensor& from = of.value.get();
    Tensor d_inp = d_out.unique() ? d_out : ctx.like(from);
    ctx.backend.run(ops::GeluBackward{d_inp.view(), d_out.view(), from.view()});
    of.gradient->add(ctx, std::move(d_inp));
  });
  return out;
}

Var gelu(const Context& context, const Var& inp) {
  return each_later(context, inp, [](const Context& ctx, const Chunk& in) {
    const auto of = [ctx](const Tensor& from) {
      Tensor value = ctx.like(from);
      ctx.backend.run(ops::Gelu{value.view(), from.view()});
      return value;
    };
    Chunk out = gelu_chunk(ctx, in, of(in.value));
    let_remake(ctx, out, Remade::activations, in, of);
    return out;
  });
}

Var swiglu(const Context& context, const Var& inp, const ops::Gate& gate) {
  return each_later(context, inp, [gate](const Context& ctx, const Chunk& in) {
    const auto of = [ctx, gate](const Tensor& from) {
      Tensor value = ctx.empty(from.rows(), from.cols() / 2, ctx.dtype);
      ctx.backend.run(ops::Swiglu{value.view(), from.view(), gate});
      return value;
    };
    Chunk out = make_chunk(ctx, in, of(in.value), in.placement);
    let_remake(ctx, out, Remade::activations, in, of);
    return with_backward(
        ctx, out, [ctx, gate, kept = saved(ctx, in), to = in.gradient](const Tensor& d_out) {
          const Tensor& from = kept.get();
          Tensor d_inp = kept.unique() ? from : ctx.like(from);
          ctx.backend.run(ops::SwigluBackward{d_inp.view(), d_out.view(), from.view(), gate});
          to->add(ctx, std::move(d_inp));
        });
  });
}

namespace {

void check_alike(std::string_view name, const Chunk& a, const Chunk& b) {
  AXONN_CHECK(a.placement == b.placement && a.value.cols() == b.value.cols() &&
                  a.value.rows() == b.value.rows(),
              name, ": ", a.value.raw_view(), " and ", b.value.raw_view(),
              " differ in shape or in placement on the grid");
}

Var activation(const Context& context, const Var& inp, ops::ActivationKind kind) {
  return each_later(context, inp, [kind](const Context& ctx, const Chunk& in) {
    const auto of = [ctx, kind](const Tensor& from) {
      Tensor value = ctx.like(from);
      ctx.backend.run(ops::Activation{value.view(), from.view(), kind});
      return value;
    };
    Chunk out = make_chunk(ctx, in, of(in.value), in.placement);
    let_remake(ctx, out, Remade::activations, in, of);
    const auto backward = [ctx, kind, kept = saved(ctx, in),
                           to = in.gradient](const Tensor& d_out) {
      const Tensor& from = kept.get();
      Tensor d_inp = d_out.unique() ? d_out : ctx.like(from);
      ctx.backend.run(ops::ActivationBackward{d_inp.view(), d_out.view(), from.view(), kind});
      to->add(ctx, std::move(d_inp));
    };
    return with_backward(ctx, out, backward);
  });
}

/// Columns over both axes are heads: x's part is cut over y.
constexpr Axis kColumnAxes[] = {Axis::y, Axis::x};

/// Over how many ranks the columns are cut.
int column_ways(const Context& ctx, const Chunk& chunk) {
  int ways = 1;
  for (Axis axis : kColumnAxes)
    if (chunk.placement.cols.has(axis)) ways *= ctx.grid.extent(axis);
  return ways;
}

/// The statistics of the softmax of all pieces of the chunk's rows, in the order of the columns.
Tensor gather_softmax_stats(const Context& ctx, const Chunk& inp) {
  Tensor stats = ctx.empty(inp.value.rows(), 2, DType::f32);
  ctx.backend.run(ops::SoftmaxStats{
      stats.view(), inp.value.view(), {}, {.first = 0, .valid = inp.value.cols()}});
  for (Axis axis : kColumnAxes)
    if (inp.placement.cols.has(axis)) stats = Gather(ctx, stats, axis, Cut::rows).whole(ctx, {});
  return stats;
}

Chunk finish_softmax(const Context& ctx, const Chunk& in, const Tensor& stats) {
  Tensor value = ctx.like(in.value);
  ctx.backend.run(ops::Softmax{value.view(), in.value.view(), stats.view()});
  Chunk out = make_chunk(ctx, in, value, in.placement);
  if (!out.gradient) return out;
  struct Sums {
    Tensor d_out, dots;
  };
  const auto sums = std::make_shared<Sums>();
  ctx.tape->record([ctx, value, sums, to = in.gradient] {
    const auto [d_out, dots] = std::exchange(*sums, {});
    Tensor d_inp = d_out.unique() ? d_out : ctx.like(value);
    ctx.backend.run(ops::SoftmaxBackward{d_inp.view(), d_out.view(), value.view(), dots.view()});
    to->add(ctx, std::move(d_inp));
  });
  if (column_ways(ctx, in) > 1) ctx.tape->pause();
  ctx.tape->record([ctx, value, sums, cols = in.placement.cols, gradient = out.gradient] {
    Tensor d_out = gradient->take(), dots = ctx.empty(value.rows(), 1, DType::f32);
    ctx.backend.run(ops::RowDots{dots.view(), d_out.view(), value.view()});
    for (Axis axis : kColumnAxes)
      if (cols.has(axis)) sum_over(ctx, dots, axis, Cut::same, {});
    *sums = {std::move(d_out), std::move(dots)};
  });
  return out;
}

/// Columns of a chunk on this rank.
struct ColumnRange {
  std::int64_t begin = 0, count = 0;
};

/// This rank's columns of run `index`, see slice_columns().
ColumnRange range_of_run(const Context& ctx, const Chunk& inp,
                         const std::vector<std::int64_t>& widths, std::size_t index) {
  const int ways = column_ways(ctx, inp);
  for (std::int64_t width : widths)
    AXONN_CHECK(width > 0 && width % ways == 0, "slice_columns: a run of ", width,
                " columns cannot be cut over ", ways, " ranks");
  const auto first = widths.begin(), run = first + static_cast<std::ptrdiff_t>(index);
  const std::int64_t all = std::accumulate(first, widths.end(), std::int64_t{0});
  AXONN_CHECK(all == inp.value.cols() * ways, "slice_columns: runs of ", all,
              " columns together, wanted the ", inp.value.cols() * ways, " of the value");
  return {std::accumulate(first, run, std::int64_t{0}) / ways, *run / ways};
}

Chunk concat_chunks(const Context& ctx, const std::vector<Chunk>& chunks) {
  const Chunk& first = chunks.front();
  std::int64_t cols = 0;
  for (const Chunk& chunk : chunks) {
    AXONN_CHECK(chunk.placement == first.placement && chunk.value.rows() == first.value.rows(),
                "concat_columns: ", first.value.raw_view(), " and ", chunk.value.raw_view(),
                " differ in rows or in placement on the grid");
    cols += chunk.value.cols();
  }
  const Tensor value = ctx.empty(first.value.rows(), cols, first.value.dtype());
  Chunk out = make_chunk(ctx, first, value, first.placement);
  std::vector<std::pair<ColumnRange, std::shared_ptr<Gradient>>> parts;
  std::int64_t begin = 0;
  for (const Chunk& chunk : chunks) {
    const ColumnRange at{begin, chunk.value.cols()};
    ctx.backend.run(ops::Cast{value.view().col_range(at.begin, at.count), chunk.value.view()});
    if (chunk.gradient) need_gradient(ctx, out), parts.emplace_back(at, chunk.gradient);
    begin += at.count;
  }
  return with_backward(ctx, out, [ctx, parts](const Tensor& d_out) {
    for (const auto& [at, to] : parts) {
      Tensor d = ctx.empty(d_out.rows(), at.count, d_out.dtype());
      ctx.backend.run(ops::Cast{d.view(), d_out.view().col_range(at.begin, at.count)});
      to->add(ctx, std::move(d));
    }
  });
}

}  // namespace

Var relu(const Context& ctx, const Var& inp) {
  return activation(ctx, inp, ops::ActivationKind::relu);
}

Var squared_relu(const Context& ctx, const Var& inp) {
  return activation(ctx, inp, ops::ActivationKind::relu2);
}

Var silu(const Context& ctx, const Var& inp) {
  return activation(ctx, inp, ops::ActivationKind::silu);
}

Var sigmoid(const Context& ctx, const Var& inp) {
  return activation(ctx, inp, ops::ActivationKind::sigmoid);
}

Var tanh(const Context& ctx, const Var& inp) {
  return activation(ctx, inp, ops::ActivationKind::tanh);
}

namespace {

/// A sum may be made again if that frees memory: if one of its terms is made again.
void remake_sum(const Context& ctx, Chunk& out, const Chunk& left, const Chunk& right) {
  const std::string_view block = ctx.scheduling().scope.label;
  if (!left.again.made_in(block) && !right.again.made_in(block)) return;
  const auto make = [ctx, a = saved(ctx, left), b = saved(ctx, right)] {
    Tensor value = ctx.like(a.get());
    ctx.backend.run(ops::Add{value.view(), a.get().view(), b.get().view()});
    return value;
  };
  let_remake(ctx, out, Remade::residual, make);
}

}  // namespace

Var add(const Context& context, const Var& a, const Var& b) {
  return each_of(context, "add", {a, b}, [](const Context& ctx, const std::vector<Chunk>& terms) {
    const Chunk &left = terms[0], &right = terms[1];
    check_alike("add", left, right);
    Tensor value = ctx.like(left.value), moments = ctx.empty(value.rows(), 2, DType::f32);
    ctx.backend.run(
        ops::AddMoments{value.view(), moments.view(), left.value.view(), right.value.view()});
    Chunk out = make_chunk(ctx, left, value, left.placement);
    if (right.gradient) need_gradient(ctx, out);
    out.moments = moments;
    remake_sum(ctx, out, left, right);
    return with_backward(ctx, out,
                         [ctx, to_a = left.gradient, to_b = right.gradient](const Tensor& d_out) {
                           for (const auto& to : {to_a, to_b})
                             if (to) to->add(ctx, d_out);
                         });
  });
}

Var multiply(const Context& context, const Var& a, const Var& b) {
  const auto forward = [](const Context& ctx, const std::vector<Chunk>& factors) {
    const Chunk &left = factors[0], &right = factors[1];
    check_alike("multiply", left, right);
    Tensor value = ctx.like(left.value);
    ctx.backend.run(ops::Multiply{value.view(), left.value.view(), right.value.view()});
    Chunk out = make_chunk(ctx, left, std::move(value), left.placement);
    if (right.gradient) need_gradient(ctx, out);
    // Each factor whose gradient is wanted, and the other one.
    std::vector<std::pair<std::shared_ptr<Gradient>, Tensor>> terms;
    if (left.gradient) terms.emplace_back(left.gradient, right.value);
    if (right.gradient) terms.emplace_back(right.gradient, left.value);
    return with_backward(ctx, out, [ctx, terms](const Tensor& d_out) {
      for (const auto& [to, other] : terms) {
        Tensor d = ctx.like(d_out);
        ctx.backend.run(ops::Multiply{d.view(), d_out.view(), other.view()});
        to->add(ctx, std::move(d));
      }
    });
  };
  return each_of(context, "multiply", {a, b}, forward);
}

Var scale_by_constant(const Context& context, const Var& inp, const Parameter& number) {
  const auto forward = [&number](const Context& ctx, const Chunk& in) {
    Tensor value = ctx.like(in.value);
    ctx.backend.run(ops::ScaleByNumber{value.view(), in.value.view(), number.weight()});
    const Chunk out = make_chunk(ctx, in, std::move(value), in.placement);
    return with_backward(ctx, out, [ctx, &number, to = in.gradient](const Tensor& d_out) {
      Tensor d_inp = d_out.unique() ? d_out : ctx.like(d_out);
      ctx.backend.run(ops::ScaleByNumber{d_inp.view(), d_out.view(), number.weight()});
      to->add(ctx, std::move(d_inp));
    });
  };
  return each_later(context, inp, forward, {.reads_parameters = true});
}

Var scale(const Context& context, const Var& inp, float factor) {
  return each_later(context, inp, [factor](const Context& ctx, const Chunk& in) {
    Tensor value = ctx.like(in.value);
    ctx.backend.run(ops::Scale{value.view(), in.value.view(), factor});
    const Chunk out = make_chunk(ctx, in, std::move(value), in.placement);
    return with_backward(ctx, out, [ctx, factor, to = in.gradient](const Tensor& d_out) {
      Tensor d_inp = d_out.unique() ? d_out : ctx.like(d_out);
      ctx.backend.run(ops::Scale{d_inp.view(), d_out.view(), factor});
      to->add(ctx, std::move(d_inp));
    });
  });
}

Var softmax(const Context& context, const Var& inp) {
  // As in a norm, with two chunks neither can start early.
  const bool cut = context.grid.extent(Axis::x) > 1 || context.grid.extent(Axis::y) > 1;
  return each_later(context, inp, {.ahead = cut && inp.size() > 2}, gather_softmax_stats,
                    finish_softmax);
}

Var slice_columns(const Context& context, const Var& inp, const std::vector<std::int64_t>& widths,
                  std::size_t index) {
  AXONN_CHECK(index < widths.size(), "slice_columns: run ", index, " of ", widths.size(),
              ", counted from 0");
  return each_later(context, inp, [widths, index](const Context& ctx, const Chunk& in) {
    const auto [begin, count] = range_of_run(ctx, in, widths, index);
    const Tensor value = ctx.empty(in.value.rows(), count, in.value.dtype(), in.value.use());
    ctx.backend.run(ops::Cast{value.view(), in.value.view().col_range(begin, count)});
    const auto backward = [ctx, at = begin, cols = in.value.cols(), to = in.gradient](
                              const Tensor& d_out) { to->add_columns(ctx, cols, at, d_out); };
    return with_backward(ctx, make_chunk(ctx, in, value, in.placement), backward);
  });
}

Var concat_columns(const Context& ctx, const std::vector<Var>& values) {
  AXONN_CHECK(!values.empty(), "concat_columns: no values");
  return each_of(ctx, "concat_columns", values, concat_chunks);
}

}  // namespace axonn
