// Computes epilogues by separate operations on devices that do not fuse them with the product.
#include "axonn/ops/backend.h"

#include "axonn/ops/operand_checks.h"

namespace axonn {

namespace {

bool has_epilogue(const Matmul& args) {
  return args.gelu || args.gelu_derivative_at.data || args.bias_gradient.data;
}

Matmul without_epilogue(const Matmul& args) {
  Matmul plain = args;
  plain.gelu = false;
  plain.gelu_input = plain.gelu_derivative_at = plain.bias_gradient = {};
  return plain;
}

}  // namespace

void Backend::matmul(const Matmul& args) {
  if (!has_epilogue(args)) return product(args);
  check_matmul(args);
  if (fuses(args)) return product(args);
  Matmul plain = without_epilogue(args);
  if (args.gelu_input.data) plain.out = args.gelu_input;
  product(plain);
  if (args.gelu) run(ops::Gelu{args.out, plain.out});
  if (args.gelu_derivative_at.data)
    run(ops::GeluBackward{args.out, args.out, args.gelu_derivative_at});
  if (args.bias_gradient.data) run(ops::ColumnSum{args.bias_gradient, args.a});
}

}  // namespace axonn
