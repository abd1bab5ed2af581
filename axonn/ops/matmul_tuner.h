#pragma once

#include <functional>
#include <string>
#include <vector>

#include "axonn/ops/backend.h"

namespace axonn {

/// How a product shall be computed, and what was measured when that was chosen.
struct TunedMatmul {
  MatmulShape shape;
  std::string way;             ///< one of Backend::matmul_ways()
  std::string default_way;     ///< the first of them
  double seconds = 0;          ///< a product in that way takes
  double default_seconds = 0;  ///< and by default, alternated with it
  int calls = 0;               ///< in a step, where that is known

  double gain() const { return default_seconds / seconds; }
};

/// Times every way of computing a product on this backend, on operands of its own, several sets in
/// turn so that large ones come from memory. Takes one other than the default only if it is clearly
/// faster: it must beat it, both run in turn, in a first match against the default and the next
/// best, and again in a second one against the default alone, since the first of many is partly
/// lucky. Leaves the backend's way set to what it took. Errors: Error without memory for it.
///
/// `seconds` replaces the clock in tests: what a product in this way takes.
TunedMatmul tune_matmul(Backend& backend, const MatmulShape& shape,
                        const std::function<double(const std::string& way)>& seconds = {});

}  // namespace axonn
