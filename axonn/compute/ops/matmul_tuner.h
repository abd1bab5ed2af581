#pragma once

#include <functional>
#include <string>
#include <vector>

#include "axonn/compute/ops/backend.h"

namespace axonn {

/// The chosen way to compute a product, and the measurements behind the choice.
struct TunedMatmul {
  MatmulShape shape;
  std::string way;             ///< one of Backend::matmul_ways()
  std::string default_way;     ///< the first of them
  double seconds = 0;          ///< of one product in that way
  double default_seconds = 0;  ///< of one in the default way, run in turn with it
  int calls = 0;               ///< in a step, if known

  double gain() const { return default_seconds / seconds; }
};

/// Times every way of computing a product on this backend and sets the backend to the best one. It
/// uses several sets of operands in turn, so that large ones come from memory. A way replaces the
/// default only if it is clearly faster in two matches, in which the ways run in turn: one of the
/// default and all the best ways, then one against the default alone, because the winner of many is
/// partly lucky. Throws Error if there is no memory for the operands.
///
/// `seconds` replaces the clock in tests: the time that a product takes in this way.
TunedMatmul tune_matmul(Backend& backend, const MatmulShape& shape,
                        const std::function<double(const std::string& way)>& seconds = {});

}  // namespace axonn
