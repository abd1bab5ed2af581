#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>

#include "axonn/ops/rowwise/launch.h"
#include "axonn/ops/rowwise/math.h"
#include "axonn/ops/rowwise/matrix.h"

namespace axonn::rowwise {

/// first = b1 · first + (1 - b1) · g; second = b2 · second + (1 - b2) · g²;
/// master -= lr · ((first / c1) / (sqrt(second / c2) + eps) + decay · master); out = master.
///
/// One team per tile, one pass. Bound by memory: 28 + sizeof(Out) bytes per element.
/// Source: Loshchilov and Hutter, "Decoupled Weight Decay Regularization", 2019.
template <typename Out>
struct AdamWKernel {
  Out* out;
  float *master, *first, *second;
  const float* gradient;
  const float* scale;  ///< the gradient's factor, or null for 1
  float lr, beta1, beta2, eps, weight_decay;
  float correction1, correction2;  ///< 1 / (1 - beta^step)
  std::int64_t decayed;

  template <typename Team>
  AXONN_DEVICE void operator()(const Team& team, Tile tile) const {
    const std::int64_t rest = std::clamp<std::int64_t>(decayed - tile.begin, 0, tile.count);
    const int head = static_cast<int>(rest);
    step(team, tile.begin, head, weight_decay);
    step(team, tile.begin + head, tile.count - head, 0);
  }

 private:
  template <typename Team>
  AXONN_DEVICE void step(const Team& team, std::int64_t begin, int count, float decay) const {
    const float factor = scale ? *scale : 1, shrink = lr * decay;
    team.update(
        out + begin, count,
        [=, b1 = beta1, b2 = beta2, c1 = correction1 * lr, c2 = correction2, tiny = eps](
            auto& w, auto& m, auto& v, auto gradient_value) {
          const auto g = gradient_value * factor;
          m = b1 * m + (1 - b1) * g;
          v = b2 * v + (1 - b2) * g * g;
          w = w - (c1 * m / (square_root(v * c2) + tiny) + shrink * w);
          return w;
        },
        master + begin, first + begin, second + begin, gradient + begin);
  }
};

/// master -= lr · (g + decay · master); out = master.
/// Bound by memory: 12 + sizeof(Out) bytes per element.
template <typename Out>
struct SgdKernel {
  Out* out;
  float* master;
  const float *gradient, *scale;
  float lr, weight_decay;
  std::int64_t decayed;

  template <typename Team>
  AXONN_DEVICE void operator()(const Team& team, Tile tile) const {
    const std::int64_t rest = std::clamp<std::int64_t>(decayed - tile.begin, 0, tile.count);
    const int head = static_cast<int>(rest);
    step(team, tile.begin, head, weight_decay);
    step(team, tile.begin + head, tile.count - head, 0);
  }

 private:
  template <typename Team>
  AXONN_DEVICE void step(const Team& team, std::int64_t begin, int count, float decay) const {
    const float rate = lr * (scale ? *scale : 1), shrink = lr * decay;
    team.update(
        out + begin, count, [=](auto& w, auto g) { return w = w - (rate * g + shrink * w); },
        master + begin, gradient + begin);
  }
};

}  // namespace axonn::rowwise

namespace axonn::ops {

/// Checks the operands that AdamW and SGD share.
void check_update(const Checker& check, const auto& update) {
  const std::int64_t count = update.master.cols;
  check.f32("master", update.master, 1, count);
  check.f32("gradient", update.gradient, 1, count);
  check.values("out", update.out, 1, count);
  if (update.scale.data) check.f32("scale", update.scale, 1, 1);
  AXONN_CHECK(update.decayed >= 0 && update.decayed <= count, check.operation, ": ", update.decayed,
              " decayed elements of ", count);
}

void AdamW::run(auto launch) const {
  const Checker check{kName};
  check_update(check, *this);
  check.f32("first", first, 1, master.cols);
  check.f32("second", second, 1, master.cols);
  AXONN_CHECK(step >= 1, "adamw: step ", step, ", want 1 or more");
  const auto correction = [&](float beta) {
    return static_cast<float>(1 / (1 - std::pow(double{beta}, static_cast<double>(step))));
  };
  with_type(out.dtype, [&]<typename Out>(Out) {
    launch.tiles(1, master.cols,
                 rowwise::AdamWKernel<Out>{
                     .out = out.as<Out>(),
                     .master = master.as<float>(),
                     .first = first.as<float>(),
                     .second = second.as<float>(),
                     .gradient = gradient.as<const float>(),
                     .scale = scale.as<const float>(),
                     .lr = lr,
                     .beta1 = beta1,
                     .beta2 = beta2,
                     .eps = eps,
                     .weight_decay = weight_decay,
                     .correction1 = correction(beta1),
                     .correction2 = correction(beta2),
                     .decayed = decayed,
                 });
  });
}

void Sgd::run(auto launch) const {
  check_update({kName}, *this);
  with_type(out.dtype, [&]<typename Out>(Out) {
    launch.tiles(1, master.cols,
                 rowwise::SgdKernel<Out>{
                     .out = out.as<Out>(),
                     .master = master.as<float>(),
                     .gradient = gradient.as<const float>(),
                     .scale = scale.as<const float>(),
                     .lr = lr,
                     .weight_decay = weight_decay,
                     .decayed = decayed,
                 });
  });
}

}  // namespace axonn::ops
