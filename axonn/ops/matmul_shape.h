#pragma once

#include <compare>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "axonn/tensor/dtype.h"

namespace axonn {

struct Matmul;

/// A product without its addresses: what the best way to compute it depends on.
struct MatmulShape {
  std::int64_t M = 0, N = 0, K = 0;
  bool a_transposed = false, b_transposed = false, bias = false, accumulate = false;
  DType type = DType::f32, out_type = DType::f32;
  bool gelu = false, gelu_input = false, gelu_derivative = false, bias_gradient = false;

  double flops() const {
    return 2.0 * static_cast<double>(M) * static_cast<double>(N) * static_cast<double>(K);
  }
  auto operator<=>(const MatmulShape&) const = default;
};

MatmulShape shape_of(const Matmul& args);

/// "NT", "TN": whether a and b are transposed, in BLAS notation.
std::string mode_of(const MatmulShape& shape);

/// "bf16 NT 1024x2304x768 + bias", "f32 TN 768x3072x1024 +=", "bf16 NT 256x50304x768 to f32".
/// With an epilogue: "+ bias gelu", "gelu kept" (with gelu_input), "d_gelu", "+= d_bias".
std::string to_string(const MatmulShape& shape);
/// The shape for which to_string() gives this text; nothing for any other text.
std::optional<MatmulShape> parse_matmul_shape(std::string_view text);

}  // namespace axonn
