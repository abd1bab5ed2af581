#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>

#include "axonn/ops/rowwise/launch.h"
#include "axonn/ops/rowwise/math.h"

namespace axonn::rowwise {

/// Applies a rule to each element in one pass: with weight decay to the first `decayed` elements,
/// without to the rest. One team per tile.
template <typename Out, typename Rule>
struct UpdateKernel {
  Out* out;
  float* master;
  const float* gradient;
  const float* scale;  ///< the gradient's factor, or null for 1
  float lr, weight_decay;
  std::int64_t decayed;
  Rule rule;

  AXONN_DEVICE void operator()(const auto& team, Tile tile) const {
    // Not std::clamp, whose checks in newer libstdc++ call the host.
    const std::int64_t rest =
        std::max<std::int64_t>(0, std::min<std::int64_t>(decayed - tile.begin, tile.count));
    const int head = static_cast<int>(rest);
    rule.step(team, *this, {0, tile.begin, head, 0}, weight_decay);
    rule.step(team, *this, {0, tile.begin + head, tile.count - head, 0}, 0);
  }
};

/// first = b1 · first + (1 - b1) · g; second = b2 · second + (1 - b2) · g²;
/// master -= lr · ((first / c1) / (sqrt(second / c2) + eps) + decay · master); out = master.
///
/// Bound by memory: 28 + sizeof(Out) bytes per element.
/// Source: Loshchilov and Hutter, "Decoupled Weight Decay Regularization", 2019.
struct AdamWRule {
  float *first, *second;
  float beta1, beta2, eps;
  float correction1, correction2;  ///< 1 / (1 - beta^step)

  AXONN_DEVICE void step(const auto& team, const auto& of, Tile at, float decay) const {
    const float factor = of.scale ? *of.scale : 1, shrink = of.lr * decay;
    team.update(
        of.out + at.begin, at.count,
        [=, b1 = beta1, b2 = beta2, c1 = correction1 * of.lr, c2 = correction2, tiny = eps](
            auto& w, auto& m, auto& v, auto gradient_value) {
          const auto g = gradient_value * factor;
          m = b1 * m + (1 - b1) * g;
          v = b2 * v + (1 - b2) * g * g;
          w = w - (quotient(c1 * m, square_root(v * c2) + tiny) + shrink * w);
          return w;
        },
        of.master + at.begin, first + at.begin, second + at.begin, of.gradient + at.begin);
  }
};

/// master -= lr · (g + decay · master); out = master.
/// Bound by memory: 12 + sizeof(Out) bytes per element.
struct SgdRule {
  AXONN_DEVICE void step(const auto& team, const auto& of, Tile at, float decay) const {
    const float rate = of.lr * (of.scale ? *of.scale : 1), shrink = of.lr * decay;
    team.update(
        of.out + at.begin, at.count,
        [=](auto& w, auto g) { return w = w - (rate * g + shrink * w); }, of.master + at.begin,
        of.gradient + at.begin);
  }
};

}  // namespace axonn::rowwise

namespace axonn::ops {

/// Checks the operands that AdamW and SGD share, and applies the rule.
template <typename Rule>
void run_update(auto launch, const Checker& check, const auto& op, const Rule& rule) {
  const std::int64_t count = op.master.cols;
  check.f32("master", op.master, 1, count);
  check.f32("gradient", op.gradient, 1, count);
  check.values("out", op.out, 1, count);
  if (op.scale.data) check.f32("scale", op.scale, 1, 1);
  AXONN_CHECK(op.decayed >= 0 && op.decayed <= count, check.operation, ": ", op.decayed,
              " decayed elements of ", count);
  with_type(op.out.dtype, [&]<typename Out>(Out) {
    launch.tiles(1, count,
                 rowwise::UpdateKernel<Out, Rule>{static_cast<Out*>(op.out.data),
                                                  static_cast<float*>(op.master.data),
                                                  static_cast<const float*>(op.gradient.data),
                                                  static_cast<const float*>(op.scale.data), op.lr,
                                                  op.weight_decay, op.decayed, rule});
  });
}

void AdamW::run(auto launch, const Checker& check) const {
  check.f32("first", first, 1, master.cols);
  check.f32("second", second, 1, master.cols);
  AXONN_CHECK(step >= 1, "adamw: step ", step, ", want 1 or more");
  const auto correction = [&](float beta) {
    return static_cast<float>(1 / (1 - std::pow(double{beta}, static_cast<double>(step))));
  };
  run_update(launch, check, *this,
             rowwise::AdamWRule{first.as<float>(), second.as<float>(), beta1, beta2, eps,
                                correction(beta1), correction(beta2)});
}

void Sgd::run(auto launch, const Checker& check) const {
  run_update(launch, check, *this, rowwise::SgdRule{});
}

}  // namespace axonn::ops
