#include "axonn/ops/cpu/matmul/float_operands.h"

#include <algorithm>

#include "axonn/ops/cpu/matmul/product_plan.h"
#include "axonn/ops/cpu/team.h"
#include "axonn/ops/dispatch.h"

namespace axonn::cpu {

namespace {

/// K of a step: so deep that sums are seldom loaded and stored, and so shallow that the operands of
/// a default panel, a few MiB in f32, stay in the caches.
constexpr std::int64_t kDepth = 1024;

PanelCut depth_of(const Matmul& panel) {
  const std::int64_t K = panel.a_transposed ? panel.a.rows : panel.a.cols;
  return PanelCut::into(K, (K + kDepth - 1) / kDepth);
}

/// Whether steps write to out directly; otherwise they write to sums in this thread's memory.
bool writes_out(const Matmul& panel) { return panel.out.dtype == DType::f32 && !panel.bias.data; }

/// The part of an operand for one step: columns, or rows if k runs down the rows.
View part_of(const View& operand, bool k_down, std::int64_t begin, std::int64_t count) {
  return k_down ? operand.row_range(begin, count) : operand.col_range(begin, count);
}

/// An f32 matrix of the shape of `like`, without memory. The padded stride keeps a column's
/// elements from falling into a few cache sets, as they would with a power of two.
View floats_like(const View& like) {
  const std::int64_t stride = (like.cols + 15) / 16 * 16 + 16;
  return {nullptr, DType::f32, like.rows, like.cols, stride};
}

float* take(Scratch& memory, const View& view) {
  return memory.take<float>(view.rows * view.stride);
}

void convert(const View& to, const View& from) {
  const Team team{.far = true};
  for (std::int64_t r = 0; r < from.rows; ++r)
    team.map(
        to.row<float>(r), static_cast<int>(from.cols), [](auto x) { return x; },
        from.row<const bf16>(r));
}

}  // namespace

std::int64_t FloatOperands::steps(const Matmul& panel) { return depth_of(panel).parts; }

Matmul FloatOperands::step(const Matmul& panel, std::int64_t index) {
  const PanelCut depth = depth_of(panel);
  const std::int64_t begin = depth.begin(index), count = depth.count(index);
  const bool direct = writes_out(panel);
  return {.out = direct ? panel.out : floats_like(panel.out),
          .a = floats_like(part_of(panel.a, panel.a_transposed, begin, count)),
          .b = floats_like(part_of(panel.b, !panel.b_transposed, begin, count)),
          .a_transposed = panel.a_transposed,
          .b_transposed = panel.b_transposed,
          .bias = {},
          .accumulate = index > 0 || (direct && panel.accumulate)};
}

Matmul FloatOperands::load(const Matmul& panel, std::int64_t index) {
  const PanelCut depth = depth_of(panel);
  const std::int64_t begin = depth.begin(index), count = depth.count(index);
  Matmul product = step(panel, index);
  if (!writes_out(panel)) product.out.data = take(sums_, product.out);
  product.a.data = take(a_, product.a);
  product.b.data = take(b_, product.b);
  convert(product.a, part_of(panel.a, panel.a_transposed, begin, count));
  const View b = part_of(panel.b, !panel.b_transposed, begin, count);
  if (b.data != loaded_b_) convert(product.b, b);
  loaded_b_ = b.data;
  return product;
}

void FloatOperands::finish(const Matmul& panel) {
  if (writes_out(panel)) return;
  View sums = floats_like(panel.out);
  sums.data = take(sums_, sums);
  const Team team;
  const int n = static_cast<int>(panel.out.cols);
  with_type(panel.out.dtype, [&]<typename Out>(Out) {
    for (std::int64_t r = 0; r < panel.out.rows; ++r) {
      Out* const out = panel.out.row<Out>(r);
      float* const sum = sums.row<float>(r);
      const auto add = [](auto x, auto y) { return x + y; };
      if (panel.accumulate) team.map(sum, n, add, sum, out);
      if (panel.bias.data)
        team.map(out, n, add, sum, panel.bias.as<const bf16>());
      else
        team.map(
            out, n, [](auto x) { return x; }, sum);
    }
  });
}

}  // namespace axonn::cpu
