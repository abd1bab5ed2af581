#pragma once

#include <cmath>

namespace axonn {

/// 1 / (1 + e^-u), without overflow.
inline double logistic(double u) {
  return u < 0 ? std::exp(u) / (1 + std::exp(u)) : 1 / (1 + std::exp(-u));
}

}  // namespace axonn
