#include "axonn/network/nn/adapters/magnitudes.h"

#include <algorithm>
#include <limits>
#include <utility>

namespace axonn {

namespace {

/// A row (1, n) as a column (n, 1).
View as_column(View row) {
  row.rows = row.cols;
  row.cols = row.stride = 1;
  return row;
}

/// (n, 2) f32: 0, and 1 / sqrt(second + eps) of sums (n, 2), whose first column is 0.
Tensor inverse_roots(const Context& ctx, const Tensor& sums, float eps) {
  Tensor out = ctx.like(sums);
  ctx.backend.run(
      ops::CombineMoments{.out = out.view(), .moments = sums.view(), .count = 1, .eps = eps});
  return out;
}

/// The statistics of R rows of mean 0 and deviation 1: with these, a norm's last step multiplies
/// columns by its weight and adds its bias.
Tensor unit_stats(const Context& ctx, std::int64_t rows) {
  return inverse_roots(ctx, ctx.zeros(rows, 2, DType::f32), 1);
}

}  // namespace

std::shared_ptr<Magnitudes> Magnitudes::of(const Context& ctx, std::span<const Adapter> adapters,
                                           const Parameter& weight) {
  if (std::ranges::none_of(adapters, [](const Adapter& one) { return one.magnitude(); })) return {};
  auto made = std::make_shared<Magnitudes>();
  made->adapters_ = adapters;
  made->squares_ = ctx.zeros(weight.local_rows(), 2, DType::f32);
  const View norms = made->squares_.view().col_range(1, 1);
  for (const Adapter& adapter : adapters)
    if (adapter.magnitude())
      adapter.squared_norms(ctx, adapter.rows_of(norms), adapter.rows_of(weight.weight()));
  sum_over(ctx, made->squares_, *weight.spec().layout.col_axis, Cut::same, {});
  return made;
}

/// Divides the adapter's columns of a row (1, C) f32 by its norms; returns these columns.
View Magnitudes::divided_by_norms(const Context& ctx, const Adapter& adapter,
                                  const View& row) const {
  const View own = adapter.part_of(row), column = as_column(own);
  ctx.backend.run(ops::Multiply{column, column, adapter.rows_of(inverse_.view().col_range(1, 1))});
  return own;
}

/// Rows of padding have no norm, and magnitudes of 0.
void Magnitudes::find_factors(const Context& ctx) {
  inverse_ = inverse_roots(ctx, squares_, std::numeric_limits<float>::min());
  squares_ = {};
  factors_ = ctx.zeros(1, inverse_.rows(), DType::f32);
  ctx.backend.run(ops::AddNumber{factors_.view(), factors_.view(), 1});
  for (const Adapter& adapter : adapters_) {
    if (!adapter.magnitude()) continue;
    ctx.backend.run(ops::Cast{adapter.part_of(factors_.view()), adapter.magnitude()->weight()});
    divided_by_norms(ctx, adapter, factors_.view());
  }
}

Tensor Magnitudes::scale(const Context& ctx, Tensor product, const View& bias) {
  find_factors(ctx);
  Tensor out = ctx.tape ? ctx.like(product) : product, bias_f32;
  if (bias.data) {
    bias_f32 = ctx.empty(1, bias.cols, DType::f32);
    ctx.backend.run(ops::Cast{bias_f32.view(), bias});
  }
  ctx.backend.run(ops::LayerNorm{.out = out.view(),
                                 .inp = product.view(),
                                 .weight = factors_.view(),
                                 .bias = bias.data ? bias_f32.view() : View{},
                                 .stats = unit_stats(ctx, out.rows()).view()});
  if (ctx.tape) product_ = std::move(product);
  return out;
}

Tensor Magnitudes::backward(const Context& ctx, const Tensor& d_out) const {
  const Tensor stats = unit_stats(ctx, d_out.rows()),
               d_factors = ctx.zeros(1, factors_.cols(), DType::f32);
  ctx.backend.run(ops::LayerNormWeightBackward{.d_weight = d_factors.view(),
                                               .d_bias = {},
                                               .d_out = d_out.view(),
                                               .inp = product_.view(),
                                               .stats = stats.view()});
  for (const Adapter& adapter : adapters_) {
    if (!adapter.magnitude()) continue;
    const View sum = adapter.magnitude()->gradient(ctx);
    ctx.backend.run(ops::Add{sum, sum, divided_by_norms(ctx, adapter, d_factors.view())});
  }
  Tensor d_product = ctx.like(d_out);
  ctx.backend.run(ops::LayerNorm{.out = d_product.view(),
                                 .inp = d_out.view(),
                                 .weight = factors_.view(),
                                 .stats = stats.view()});
  return d_product;
}

}  // namespace axonn
