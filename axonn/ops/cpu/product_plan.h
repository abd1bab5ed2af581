#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "axonn/ops/matmul_shape.h"

namespace axonn::cpu {

/// One extent cut into `parts` of `size`, the last one shorter.
struct Cut {
  std::int64_t extent, size, parts;

  /// Pieces of `size`, rounded up to multiples of 32, which divide into the vectors of every
  /// kernel.
  static Cut of(std::int64_t extent, std::int64_t size) {
    size = (std::min(size, extent) + 31) / 32 * 32;
    return {extent, size, (extent + size - 1) / size};
  }
  static Cut into(std::int64_t extent, std::int64_t parts) {
    return of(extent, (extent + parts - 1) / parts);
  }
  /// About `wanted` each.
  static Cut about(std::int64_t extent, std::int64_t wanted) {
    return into(extent, std::max<std::int64_t>(1, (extent + wanted / 2) / wanted));
  }
  std::int64_t begin(std::int64_t part) const { return part * size; }
  std::int64_t count(std::int64_t part) const { return std::min(size, extent - part * size); }
};

/// How a product is computed: the panels into which the result is cut, and whether a panel's part
/// of an operand is first copied into the layout that the library likes best, or converted from
/// bf16 to f32 and multiplied so (float_operands.h). What it computes depends on these alone, not
/// on the number of threads.
struct ProductPlan {
  Cut rows, cols;
  bool pack_a = false, pack_b = false, as_floats = false;

  std::int64_t panels() const { return rows.parts * cols.parts; }
};

/// Measured on the products of GPT-2 in both types, on one core with 1 MiB of second cache.
/// `bf16_products`: the library multiplies bf16 with instructions of the processor; without them
/// bf16 operands are converted.
ProductPlan default_plan(const MatmulShape& shape, bool bf16_products);

/// Plans that may be faster on some machine and shape, the default first; no two are the same.
std::vector<ProductPlan> plans_of(const MatmulShape& shape, bool bf16_products);

/// "256x768", "512x192 pack b", "512x768 as floats": rows and columns of a panel, which operand is
/// packed, or whether both are converted.
std::string to_string(const ProductPlan& plan);
/// The plan that to_string() wrote so. Nothing for any other text, and for a plan that the
/// processor cannot follow.
std::optional<ProductPlan> parse_plan(const MatmulShape& shape, std::string_view text,
                                      bool bf16_products);

}  // namespace axonn::cpu
