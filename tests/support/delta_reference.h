#pragma once

#include <cstdint>

#include "axonn/network/model/config.h"

#include "tests/support/family_reference.h"

namespace axonn::reference {

/// The gated delta net of a layer, head by head and row by row, in sequences of `positions` rows.
Matrix delta_net(const Matrix& x, const ModelConfig& m, const Weights& weights, std::int64_t layer,
                 std::int64_t positions);

}  // namespace axonn::reference
