#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <type_traits>

#include "axonn/compute/ops/rowwise/launch.h"
#include "axonn/compute/ops/rowwise/math.h"
#include "axonn/compute/tensor/address.h"

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

/// As AdamWRule, with a second mean of gradients, slow += (1 - b3) · (g - slow), which has no bias
/// correction: master -= lr · ((first / c1 + alpha · slow) / (sqrt(second / c2) + eps) + decay ·
/// master). In this form, the decay rate of `slow` has all digits of 1 - b3.
///
/// Bound by memory: 36 + sizeof(Out) bytes per element.
/// Source: Pagliardini et al., "The AdEMAMix Optimizer: Better, Faster, Older", 2024.
struct AdEMAMixRule {
  AdamWRule adamw;
  float* slow;
  float rest3, alpha;  ///< 1 - beta3; the weight of the slow mean

  AXONN_DEVICE void step(const auto& team, const auto& of, Tile at, float decay) const {
    const float factor = of.scale ? *of.scale : 1, shrink = of.lr * decay;
    team.update(
        of.out + at.begin, at.count,
        [=, b1 = adamw.beta1, b2 = adamw.beta2, c1 = adamw.correction1 * of.lr,
         c2 = adamw.correction2, tiny = adamw.eps, r3 = rest3,
         a = alpha * of.lr](auto& w, auto& m, auto& v, auto& s, auto gradient_value) {
          const auto g = gradient_value * factor;
          m = b1 * m + (1 - b1) * g;
          v = b2 * v + (1 - b2) * g * g;
          s = s + r3 * (g - s);
          w = w - (quotient(c1 * m + a * s, square_root(v * c2) + tiny) + shrink * w);
          return w;
        },
        of.master + at.begin, adamw.first + at.begin, adamw.second + at.begin, slow + at.begin,
        of.gradient + at.begin);
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

/// g += decay · master; momentum = beta · momentum + added · g; master -= lr · momentum, or with
/// Nesterov lr · (g + beta · momentum); out = master.
/// Bound by memory: 20 + sizeof(Out) bytes per element.
/// Source: Sutskever et al., "On the importance of initialization and momentum in deep learning",
/// 2013, in the form of PyTorch's SGD.
struct MomentumRule {
  float* momentum;
  float beta, added;
  bool nesterov;

  AXONN_DEVICE void step(const auto& team, const auto& of, Tile at, float decay) const {
    const float factor = of.scale ? *of.scale : 1, of_gradient = nesterov ? of.lr : 0,
                of_momentum = nesterov ? of.lr * beta : of.lr;
    team.update(
        of.out + at.begin, at.count,
        [=, b = beta, a = added](auto& w, auto& m, auto gradient_value) {
          const auto g = gradient_value * factor + decay * w;
          m = b * m + a * g;
          w = w - (of_gradient * g + of_momentum * m);
          return w;
        },
        of.master + at.begin, momentum + at.begin, of.gradient + at.begin);
  }
};

/// master -= lr · (sign(b1 · mean + (1 - b1) · g) + decay · master); out = master; mean = b2 · mean
/// + (1 - b2) · g. The sign of 0 is 0.
/// Bound by memory: 20 + sizeof(Out) bytes per element.
/// Source: Chen et al., "Symbolic Discovery of Optimization Algorithms", 2023, arXiv:2302.06675.
struct LionRule {
  float* mean;
  float beta1, beta2;

  AXONN_DEVICE void step(const auto& team, const auto& of, Tile at, float decay) const {
    const float factor = of.scale ? *of.scale : 1, shrink = of.lr * decay;
    team.update(
        of.out + at.begin, at.count,
        [=, b1 = beta1, b2 = beta2, lr = of.lr](auto& w, auto& m, auto gradient_value) {
          using V = std::remove_cvref_t<decltype(w)>;
          const V g = gradient_value * factor, direction = b1 * m + (1 - b1) * g, zero = 0.0f;
          const V sign =
              select_less(zero, direction, V(1.0f), select_less(direction, zero, V(-1.0f), zero));
          m = b2 * m + (1 - b2) * g;
          w = w - (lr * sign + shrink * w);
          return w;
        },
        of.master + at.begin, mean + at.begin, of.gradient + at.begin);
  }
};

/// second = b2 · second + (1 - b2) · g²; z -= lr · (g / (sqrt(second / c2) + eps) + decay · y);
/// x += share · (z - x); y = z + b1 · (x - z); out = y, the master weights. In the first step, keep
/// is 0, and z and x begin at y; later it is 1.
///
/// Bound by memory: 36 + sizeof(Out) bytes per element.
/// Source: Defazio et al., "The Road Less Scheduled", 2024, arXiv:2405.15682, algorithm 1.
struct ScheduleFreeRule {
  float *z, *average, *second;
  float beta1, beta2, eps, correction2, share, keep;

  AXONN_DEVICE void step(const auto& team, const auto& of, Tile at, float decay) const {
    const float factor = of.scale ? *of.scale : 1;
    team.update(
        of.out + at.begin, at.count,
        [=, lr = of.lr, b1 = beta1, b2 = beta2, tiny = eps, c2 = correction2, c = share, k = keep](
            auto& y, auto& z_value, auto& x, auto& v, auto gradient_value) {
          const auto g = gradient_value * factor;
          const auto begin = (1 - k) * y;
          v = b2 * v + (1 - b2) * g * g;
          z_value =
              (k * z_value + begin) - lr * (quotient(g, square_root(v * c2) + tiny) + decay * y);
          x = k * x + begin;
          x = x + c * (z_value - x);
          y = z_value + b1 * (x - z_value);
          return y;
        },
        of.master + at.begin, z + at.begin, average + at.begin, second + at.begin,
        of.gradient + at.begin);
  }
};

/// values = min(max(values, -limit), limit), elementwise. One team per tile.
/// Bound by memory: the bytes of the argument, twice.
template <typename T>
struct ClampKernel {
  Matrix<T> values;
  float limit;

  AXONN_DEVICE void operator()(const auto& team, Tile tile) const {
    team.map(
        values.at(tile), tile.count,
        [most = limit](auto x) { return least(greatest(x, -most), most); }, values.at(tile));
  }
};

/// momentum = beta · momentum + g; out = momentum, or g + beta · momentum. One team per tile.
/// Bound by memory: 16 bytes per element.
struct MomentumKernel {
  float *out, *momentum;
  const float *gradient, *scale;  ///< scale: the gradient's factor, or null for 1
  float beta;
  bool nesterov;

  AXONN_DEVICE void operator()(const auto& team, Tile at) const {
    const float factor = scale ? *scale : 1, of_gradient = nesterov ? factor : 0,
                of_momentum = nesterov ? beta : 1;
    team.update(
        out + at.begin, at.count,
        [=, b = beta](auto& m, auto g) {
          m = b * m + factor * g;
          return of_gradient * g + of_momentum * m;
        },
        momentum + at.begin, gradient + at.begin);
  }
};

/// out = inp / (sqrt(squared_norm) + eps), elementwise. One team per tile.
/// Bound by memory: the bytes of the arguments.
template <typename Out, typename In>
struct DivideByNormKernel {
  Matrix<Out> out;
  Matrix<const In> inp;
  const double* squared_norm;
  float eps;

  AXONN_DEVICE void operator()(const auto& team, Tile tile) const {
    const auto factor = static_cast<float>(1 / (std::sqrt(*squared_norm) + double{eps}));
    team.map(
        out.at(tile), tile.count, [=](auto x) { return x * factor; }, inp.at(tile));
  }
};

/// out = alpha · a + beta · b, elementwise. One team per tile.
/// Bound by memory: the bytes of the arguments.
template <typename T>
struct WeightedSumKernel {
  Matrix<T> out;
  Matrix<const T> a, b;
  float alpha, beta;

  AXONN_DEVICE void operator()(const auto& team, Tile tile) const {
    team.map(
        out.at(tile), tile.count,
        [=, f = alpha, g = beta](auto x, auto y) { return f * x + g * y; }, a.at(tile), b.at(tile));
  }
};

/// average += rate · (values - average). In this form, the decay rate has all digits of `rate`. One
/// team per tile. Bound by memory: 12 bytes per element.
struct MovingAverageKernel {
  float* average;
  const float* values;
  float rate;

  AXONN_DEVICE void operator()(const auto& team, Tile at) const {
    team.map(
        average + at.begin, at.count,
        [=, r = rate](auto mean, auto value) { return mean + r * (value - mean); },
        average + at.begin, values + at.begin);
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

/// What makes up for a mean that began at 0, in step `step`, counted from 1.
inline float bias_correction(const Checker& check, float beta, std::int64_t step) {
  AXONN_CHECK(step >= 1, check.operation, ": step ", step, ", want 1 or more");
  return static_cast<float>(1 / (1 - std::pow(double{beta}, static_cast<double>(step))));
}

void AdamW::run(auto launch, const Checker& check) const {
  check.f32("first", first, 1, master.cols);
  check.f32("second", second, 1, master.cols);
  const auto correction = [&](float beta) { return bias_correction(check, beta, step); };
  const rowwise::AdamWRule rule{address<float>(first), address<float>(second), beta1, beta2, eps,
                                correction(beta1),     correction(beta2)};
  if (!slow.data) return run_update(launch, check, *this, rule);
  check.f32("slow", slow, 1, master.cols);
  run_update(
      launch, check, *this,
      rowwise::AdEMAMixRule{rule, address<float>(slow), static_cast<float>(1 - beta3), alpha});
}

void Sgd::run(auto launch, const Checker& check) const {
  if (!momentum.data) return run_update(launch, check, *this, rowwise::SgdRule{});
  check.f32("momentum", momentum, 1, master.cols);
  run_update(launch, check, *this,
             rowwise::MomentumRule{address<float>(momentum), beta, added, nesterov});
}

void Lion::run(auto launch, const Checker& check) const {
  check.f32("mean", mean, 1, master.cols);
  run_update(launch, check, *this, rowwise::LionRule{address<float>(mean), beta1, beta2});
}

void ScheduleFreeAdamW::run(auto launch, const Checker& check) const {
  check.f32("z", z, 1, master.cols);
  check.f32("average", average, 1, master.cols);
  check.f32("second", second, 1, master.cols);
  run_update(launch, check, *this,
             rowwise::ScheduleFreeRule{
                 address<float>(z), address<float>(average), address<float>(second), beta1, beta2,
                 eps, bias_correction(check, beta2, step), share, step == 1 ? 0.0f : 1.0f});
}

void Clamp::run(auto launch, const Checker& check) const {
  check.values("values", values);
  View all = values;
  flatten(all);
  with_type(all.dtype, [&]<typename T>(T) {
    launch.tiles(all.rows, all.cols, rowwise::ClampKernel<T>{all, limit});
  });
}

void Momentum::run(auto launch, const Checker& check) const {
  const std::int64_t count = momentum.cols;
  check.f32("momentum", momentum, 1, count);
  check.f32("gradient", gradient, 1, count);
  check.f32("out", out, 1, count);
  if (scale.data) check.f32("scale", scale, 1, 1);
  launch.tiles(1, count,
               rowwise::MomentumKernel{address<float>(out), address<float>(momentum),
                                       address<const float>(gradient),
                                       static_cast<const float*>(scale.data), beta, nesterov});
}

void DivideByNorm::run(auto launch, const Checker& check) const {
  check.values("out", out);
  check.values("inp", inp, out.rows, out.cols);
  check.typed("squared_norm", squared_norm, DType::f64, 1, 1);
  View to = out, from = inp;
  flatten(to, from);
  with_types(out.dtype, inp.dtype, [&]<typename Out, typename In>(Out, In) {
    launch.tiles(
        to.rows, to.cols,
        rowwise::DivideByNormKernel<Out, In>{to, from, address<const double>(squared_norm), eps});
  });
}

void WeightedSum::run(auto launch, const Checker& check) const {
  check.values("out", out);
  check.like("a", a, out);
  check.like("b", b, out);
  View to = out, left = a, right = b;
  flatten(to, left, right);
  with_type(out.dtype, [&]<typename T>(T) {
    launch.tiles(to.rows, to.cols, rowwise::WeightedSumKernel<T>{to, left, right, alpha, beta});
  });
}

void MovingAverage::run(auto launch, const Checker& check) const {
  const std::int64_t count = average.cols;
  check.f32("average", average, 1, count);
  check.f32("values", values, 1, count);
  launch.tiles(
      1, count,
      rowwise::MovingAverageKernel{address<float>(average), address<const float>(values), rate});
}

}  // namespace axonn::ops
