#include "axonn/ops/matmul_shape.h"

#include <sstream>

#include "axonn/base/check.h"
#include "axonn/ops/backend.h"

namespace axonn {

namespace {

std::optional<DType> compute_type(std::string_view name) {
  for (const DType type : {DType::f32, DType::bf16})
    if (name_of(type) == name) return type;
  return std::nullopt;
}

}  // namespace

MatmulShape shape_of(const Matmul& args) {
  return {.M = args.out.rows,
          .N = args.out.cols,
          .K = args.a_transposed ? args.a.rows : args.a.cols,
          .a_transposed = args.a_transposed,
          .b_transposed = args.b_transposed,
          .bias = args.bias.data != nullptr,
          .accumulate = args.accumulate,
          .type = args.a.dtype,
          .out_type = args.out.dtype,
          .gelu = args.gelu,
          .gelu_input = args.gelu_input.data != nullptr,
          .gelu_derivative = args.gelu_derivative_at.data != nullptr,
          .bias_gradient = args.bias_gradient.data != nullptr};
}

std::string mode_of(const MatmulShape& shape) {
  return {shape.a_transposed ? 'T' : 'N', shape.b_transposed ? 'T' : 'N'};
}

std::string to_string(const MatmulShape& s) {
  std::string text = concat(name_of(s.type), ' ', mode_of(s), ' ', s.M, 'x', s.N, 'x', s.K);
  if (s.out_type != s.type) text += concat(" to ", name_of(s.out_type));
  if (s.bias) text += " + bias";
  if (s.accumulate) text += " +=";
  if (s.gelu) text += s.gelu_input ? " gelu kept" : " gelu";
  if (s.gelu_derivative) text += " d_gelu";
  if (s.bias_gradient) text += " d_bias";
  return text;
}

std::optional<MatmulShape> parse_matmul_shape(std::string_view text) {
  std::istringstream words{std::string(text)};
  std::string type, mode, word;
  MatmulShape shape;
  char first = 0, second = 0;
  if (!(words >> type >> mode >> shape.M >> first >> shape.N >> second >> shape.K)) return {};
  const auto known = compute_type(type);
  if (!known) return {};
  shape.type = shape.out_type = *known;
  shape.a_transposed = mode == "TN" || mode == "TT";
  shape.b_transposed = mode == "NT" || mode == "TT";
  while (words >> word) {
    if (word == "to" && words >> word)
      shape.out_type = compute_type(word).value_or(shape.type);
    else if (word == "bias")
      shape.bias = true;
    else if (word == "+=")
      shape.accumulate = true;
    else if (word == "gelu")
      shape.gelu = true;
    else if (word == "kept")
      shape.gelu_input = true;
    else if (word == "d_gelu")
      shape.gelu_derivative = true;
    else if (word == "d_bias")
      shape.bias_gradient = true;
  }
  if (to_string(shape) != text) return {};  // rejects whatever the loop skipped
  return shape;
}

}  // namespace axonn
