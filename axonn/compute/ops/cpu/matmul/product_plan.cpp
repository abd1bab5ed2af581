#include "axonn/compute/ops/cpu/matmul/product_plan.h"

#include <sstream>

#include "axonn/compute/ops/cpu/matmul/blas.h"
#include "axonn/foundation/base/check.h"

namespace axonn::cpu {

namespace {

/// Limit on a packed part: it must stay in cache while it is used, and each thread has its own.
constexpr std::int64_t kMostPackedBytes = std::int64_t{4} << 20;

bool may_pack(const MatmulShape& shape, const PanelCut& cut) {
  return cut.size * shape.K * bytes_of(shape.type) <= kMostPackedBytes;
}

/// Whether the library cannot multiply the type, so that operands are converted to f32.
bool must_convert(const MatmulShape& shape, bool bf16_products) {
  return is_half(shape.type) && !(shape.type == DType::bf16 && bf16_products);
}

/// Converting a part pays off if it is used often: large panels, one or more per thread.
ProductPlan plan_as_floats(const MatmulShape& shape) {
  constexpr std::int64_t kRows = 512, kCols = 384;
  if (shape.flops() < kSmallFlops)
    return {
        .rows = PanelCut::into(shape.M, 1), .cols = PanelCut::into(shape.N, 1), .as_floats = true};
  return {.rows = PanelCut::about(shape.M, kRows),
          .cols = PanelCut::about(shape.N, kCols),
          .as_floats = true};
}

}  // namespace

/// b's part of a panel should fit in the L2 cache when the library packs it, so panels are narrow
/// and high. With a transposed, the library packs a as well, and wide, low panels are best. Fewer
/// panels than kPanels would leave cores idle, so rows are cut further, then columns, but not so
/// far that packing costs too much of the arithmetic. A narrow result with b transposed is cut into
/// rows alone: the library then uses a special kernel, 8 to 13 % faster.
ProductPlan default_plan(const MatmulShape& shape, bool bf16_products) {
  if (must_convert(shape, bf16_products)) return plan_as_floats(shape);
  constexpr std::int64_t kPanels = 6, kLeastRows = 256, kLeastCols = 192, kNarrow = 768;
  const std::int64_t M = shape.M, N = shape.N;
  if (shape.flops() < kSmallFlops) return {PanelCut::into(M, 1), PanelCut::into(N, 1)};
  if (!shape.a_transposed && shape.b_transposed && N <= kNarrow) {
    const std::int64_t parts = std::max((M + 511) / 512, std::min<std::int64_t>(4, M / kLeastRows));
    return {PanelCut::into(M, std::max<std::int64_t>(1, parts)), PanelCut::of(N, N)};
  }
  std::int64_t width = shape.a_transposed ? 768 : 384;
  PanelCut cols = PanelCut::about(N, width);
  const std::int64_t most_rows = shape.a_transposed ? 256 : 1024;
  const std::int64_t for_size = (M + most_rows - 1) / most_rows,
                     for_work = std::min((kPanels + cols.parts - 1) / cols.parts, M / kLeastRows);
  const PanelCut rows = PanelCut::into(M, std::max({std::int64_t{1}, for_size, for_work}));
  while (rows.parts * cols.parts < kPanels && width > kLeastCols)
    cols = PanelCut::about(N, width /= 2);
  return {rows, cols};
}

std::vector<ProductPlan> plans_of(const MatmulShape& shape, bool bf16_products) {
  std::vector<ProductPlan> plans{default_plan(shape, bf16_products)};
  if (shape.flops() < kSmallFlops) return plans;
  std::vector<std::string> names{to_string(plans.front())};
  const auto add = [&](const ProductPlan& plan) {
    const std::string name = to_string(plan);
    if (std::ranges::find(names, name) != names.end()) return;
    names.push_back(name);
    plans.push_back(plan);
  };
  const bool converts = plans.front().as_floats, has_blas = !blas::library().empty();
  // A BLAS library packs both operands of every panel itself.
  const auto add_blas = [&](ProductPlan plan) {
    if (!has_blas || (is_half(shape.type) && !plan.as_floats)) return;
    plan.by_blas = true;
    add(plan);
  };
  add_blas(plans.front());
  if (is_half(shape.type)) add(plan_as_floats(shape));  // for CPUs with slow bf16 products
  for (const std::int64_t height : {128, 256, 512, 1024, 4096})
    for (const std::int64_t width : {192, 384, 768, 1536}) {
      const ProductPlan plan{PanelCut::of(shape.M, height), PanelCut::about(shape.N, width)};
      if (plan.panels() < 2) continue;
      if (converts) {
        add({.rows = plan.rows, .cols = plan.cols, .as_floats = true});
        add_blas(plans.back());
        continue;
      }
      add(plan);
      add_blas(plan);
      // The library packs transposed operands anyway; once for many panels is cheaper.
      if (may_pack(shape, plan.cols)) add({plan.rows, plan.cols, false, true});
      if (shape.a_transposed && may_pack(shape, plan.rows))
        add({plan.rows, plan.cols, true, false});
    }
  return plans;
}

std::string to_string(const ProductPlan& plan) {
  return concat(plan.rows.size, 'x', plan.cols.size, plan.pack_a ? " pack a" : "",
                plan.pack_b ? " pack b" : "", plan.as_floats ? " as floats" : "",
                plan.by_blas ? " by BLAS" : "");
}

std::optional<ProductPlan> parse_plan(const MatmulShape& shape, std::string_view text,
                                      bool bf16_products) {
  std::istringstream words{std::string(text)};
  std::int64_t rows = 0, cols = 0;
  char by = 0;
  if (!(words >> rows >> by >> cols) || rows <= 0 || cols <= 0) return {};
  ProductPlan plan{PanelCut::of(shape.M, rows), PanelCut::of(shape.N, cols)};
  plan.pack_a = text.find(" pack a") != text.npos;
  plan.pack_b = text.find(" pack b") != text.npos;
  plan.as_floats = text.find(" as floats") != text.npos;
  plan.by_blas = text.find(" by BLAS") != text.npos;
  if (to_string(plan) != text) return {};  // rejects whatever was skipped above
  if (plan.by_blas && (blas::library().empty() || plan.pack_a || plan.pack_b ||
                       plan.as_floats != is_half(shape.type)))
    return {};
  const bool converts = plan.as_floats && !plan.pack_a && !plan.pack_b;
  if (shape.type == DType::f32
          ? plan.as_floats
          : !converts && (plan.as_floats || must_convert(shape, bf16_products)))
    return {};
  return plan;
}

}  // namespace axonn::cpu
