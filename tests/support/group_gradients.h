#pragma once

#include "axonn/ranks/parallel/parameters.h"

namespace axonn::testing_support {

/// Takes a group through the backward pass of a step without a model: compute(parameter) makes each
/// parameter's gradient, and the sums over ranks follow.
void compute_gradients(const Context& ctx, ParameterGroup& group, const auto& compute) {
  group.begin_step(ctx);
  group.expect_reduce();
  group.begin_backward(ctx);
  for (const auto& parameter : group.parameters()) compute(*parameter);
  group.reduce(ctx);
  ParameterGroup* const all[] = {&group};
  finish_gradients(ctx, all);
}

}  // namespace axonn::testing_support
