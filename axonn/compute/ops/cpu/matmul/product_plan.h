#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "axonn/compute/ops/backend.h"

namespace axonn::cpu {

/// Below this many flops, waking threads costs more than they save (some ten microseconds).
inline constexpr double kSmallFlops = 2e6;

/// An extent cut into `parts` of `size`; the last one may be shorter.
struct PanelCut {
  std::int64_t extent, size, parts;

  /// Parts of `size`, rounded up to a multiple of 32, which is whole vectors for every kernel.
  static PanelCut of(std::int64_t extent, std::int64_t size) {
    size = (std::min(size, extent) + 31) / 32 * 32;
    return {extent, size, (extent + size - 1) / size};
  }
  static PanelCut into(std::int64_t extent, std::int64_t parts) {
    return of(extent, (extent + parts - 1) / parts);
  }
  /// Parts of about `wanted` each.
  static PanelCut about(std::int64_t extent, std::int64_t wanted) {
    return into(extent, std::max<std::int64_t>(1, (extent + wanted / 2) / wanted));
  }
  std::int64_t begin(std::int64_t part) const { return part * size; }
  std::int64_t count(std::int64_t part) const { return std::min(size, extent - part * size); }
};

/// How a product is computed: the panels into which the result is cut, and whether a panel's part
/// of an operand is first copied into the layout that the library prefers (pack), or both parts are
/// converted from bf16 or f16 to f32 (FloatOperands in products.cpp), and whether oneDNN or a BLAS
/// library multiplies them (blas.h). The bits of the result depend on the plan alone, not on the
/// number of threads. Or all panels are computed by tiled_matmul(): then the bits depend on nothing
/// but the operands.
struct ProductPlan {
  PanelCut rows, cols;
  bool pack_a = false, pack_b = false, as_floats = false, by_blas = false, tiled = false;

  std::int64_t panels() const { return rows.parts * cols.parts; }
};

/// The default plan, tuned on the products of GPT-2 in both types, on one core with 1 MiB of L2
/// cache. `bf16_products`: the library multiplies bf16 by instructions of the processor; if not,
/// bf16 operands are converted. f16 operands always are.
ProductPlan default_plan(const MatmulShape& shape, bool bf16_products);

/// All plans worth timing for this shape, the default first; no two are the same.
std::vector<ProductPlan> plans_of(const MatmulShape& shape, bool bf16_products);

/// "256x768", "512x192 pack b", "512x768 as floats", "512x768 by BLAS": rows and columns of a
/// panel, which operand is packed or that both are converted, and the library if it is not oneDNN.
std::string to_string(const ProductPlan& plan);
/// The plan for which to_string() gives this text. Nothing for any other text, or if the plan does
/// not work for this type on this processor.
std::optional<ProductPlan> parse_plan(const MatmulShape& shape, std::string_view text,
                                      bool bf16_products);

}  // namespace axonn::cpu
