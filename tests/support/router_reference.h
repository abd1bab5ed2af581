#pragma once

#include <cstdint>
#include <vector>

#include "axonn/network/nn/options.h"

#include "tests/support/reference.h"

namespace axonn::reference {

/// The rows over which the losses of routers take means.
struct RouterRows {
  std::int64_t positions = 0;      ///< of a sequence
  std::vector<bool> counted = {};  ///< of each row: whether it is not padding; empty: all
};
/// The balance loss without its weight, with L' layers, E experts, k chosen per row, and the rows
/// of a scope: f_i = (choices of i) / (k · rows), P_i = mean of (score of i) / (sum of a row's
/// scores).
///
///   sequence      mean over layers, and over sequences weighted by their rows, of E · sum f_i P_i
///   batch         the same with all rows as one sequence
///   hugging_face  k · E · sum f_i P_i, with f_i and P_i means over layers too
double balance_loss(const std::vector<Routing>& routings, BalanceScope scope,
                    const RouterRows& rows);
/// The mean over layers and rows of the squared log-sum of exp of the logits.
double z_loss(const std::vector<Routing>& routings, const RouterRows& rows);

}  // namespace axonn::reference
