#pragma once

#include <array>
#include <cstdint>
#include <string_view>

#include "axonn/compute/tensor/device.h"
#include "axonn/compute/tensor/tensor.h"

// The row-wise operations of optimizers, a part of the table of operations.h.
namespace axonn {

struct Checker;

namespace ops {

/// One step of AdamW (Loshchilov and Hutter, 2019) on a flat piece of parameters; with a slow
/// moment, of AdEMAMix (Pagliardini et al., 2024).
struct AdamW {
  View master;         ///< (1, n) f32
  View first, second;  ///< (1, n) f32, the moments
  View gradient;       ///< (1, n) f32
  View out;            ///< (1, n) the compute copy, f32, bf16 or f16
  View scale = {};     ///< (1, 1) f32 on the device: the gradient's factor (clipping); or empty
  float lr = 0, beta1 = 0.9f, beta2 = 0.95f, eps = 1e-8f, weight_decay = 0;
  std::int64_t step = 1;     ///< counted from 1, for the bias correction
  std::int64_t decayed = 0;  ///< weight decay applies to the first `decayed` elements only
  View slow = {};            ///< (1, n) f32, the slow mean of gradients; or empty
  double beta3 = 0;          ///< its decay rate: 1 - beta3 is too small to be rounded before
  float alpha = 0;           ///< its weight beside that of `first`

  static constexpr std::string_view kName = "adamw";
  static constexpr auto kKind = OperationKind::update;
  auto operands() const { return std::array{out, master, first, second, gradient, scale, slow}; }
  void run(auto launch, const Checker& check) const;
};

/// One step of gradient descent on a flat piece of parameters. Without momentum, weight decay is
/// decoupled; with momentum, the gradient and its weight decay enter the momentum.
struct Sgd {
  View master, gradient, out, scale = {};  ///< as in AdamW
  float lr = 0, weight_decay = 0;
  std::int64_t decayed = 0;
  View momentum = {};     ///< (1, n) f32; or empty
  float beta = 0;         ///< share of the momentum that a step keeps
  float added = 1;        ///< share of the gradient that it adds: 1 - dampening
  bool nesterov = false;  ///< step by the gradient + beta · momentum, not by the momentum

  static constexpr std::string_view kName = "sgd";
  static constexpr auto kKind = OperationKind::update;
  auto operands() const { return std::array{out, master, gradient, scale, momentum}; }
  void run(auto launch, const Checker& check) const;
};

/// One step of Lion on a flat piece of parameters: against the sign of a mean of gradients.
struct Lion {
  View master, mean, gradient, out, scale = {};  ///< as in AdamW; mean (1, n) f32
  float lr = 0, beta1 = 0.9f, beta2 = 0.99f, weight_decay = 0;
  std::int64_t decayed = 0;

  static constexpr std::string_view kName = "lion";
  static constexpr auto kKind = OperationKind::update;
  auto operands() const { return std::array{out, master, mean, gradient, scale}; }
  void run(auto launch, const Checker& check) const;
};

/// One step of schedule-free AdamW (Defazio et al., 2024) on a flat piece of parameters. The first
/// step, of empty buffers, begins z and the average at the weights.
struct ScheduleFreeAdamW {
  View master;              ///< (1, n) f32, y, with which training computes
  View z, average, second;  ///< (1, n) f32: the steps' weights, their average x, the moment
  View gradient;            ///< (1, n) f32, at y
  View out, scale = {};     ///< as in AdamW
  float lr = 0, beta1 = 0.9f, beta2 = 0.95f, eps = 1e-8f, weight_decay = 0;
  float share = 1;           ///< of the new z in the average
  std::int64_t step = 1;     ///< counted from 1
  std::int64_t decayed = 0;  ///< as in AdamW

  static constexpr std::string_view kName = "schedule_free_adamw";
  static constexpr auto kKind = OperationKind::update;
  auto operands() const { return std::array{out, master, z, average, second, gradient, scale}; }
  void run(auto launch, const Checker& check) const;
};

/// values = min(max(values, -limit), limit), (R, C) T.
struct Clamp {
  View values;
  float limit = 0;

  static constexpr std::string_view kName = "clamp";
  static constexpr auto kKind = OperationKind::update;
  auto operands() const { return std::array{values}; }
  auto passes() const { return std::array{2}; }
  void run(auto launch, const Checker& check) const;
};

/// momentum = beta · momentum + g, where g is the scaled gradient; out = momentum, or with Nesterov
/// g + beta · momentum. On a flat piece of parameters.
struct Momentum {
  View momentum, gradient;  ///< (1, n) f32
  View out;                 ///< (1, n) f32
  View scale = {};          ///< (1, 1) f32, as in AdamW
  float beta = 0.95f;
  bool nesterov = true;

  static constexpr std::string_view kName = "momentum";
  static constexpr auto kKind = OperationKind::update;
  auto operands() const { return std::array{out, momentum, gradient, scale}; }
  void run(auto launch, const Checker& check) const;
};

/// out = inp / (sqrt(squared_norm) + eps), (R, C), each f32, bf16 or f16;
/// squared_norm (1, 1) f64.
struct DivideByNorm {
  View out, inp, squared_norm;
  float eps = 1e-7f;

  static constexpr std::string_view kName = "divide_by_norm";
  static constexpr auto kKind = OperationKind::update;
  auto operands() const { return std::array{out, inp, squared_norm}; }
  void run(auto launch, const Checker& check) const;
};

/// out = alpha · a + beta · b, (R, C) T; out may be a or b.
struct WeightedSum {
  View out, a, b;
  float alpha = 1, beta = 1;

  static constexpr std::string_view kName = "weighted_sum";
  static constexpr auto kKind = OperationKind::update;
  auto operands() const { return std::array{out, a, b}; }
  void run(auto launch, const Checker& check) const;
};

/// average += rate · (values - average), on a flat piece of parameters.
struct MovingAverage {
  View average, values;  ///< (1, n) f32
  float rate = 0;        ///< 1 - the decay rate of the average

  static constexpr std::string_view kName = "moving_average";
  static constexpr auto kKind = OperationKind::update;
  auto operands() const { return std::array{average, values}; }
  auto passes() const { return std::array{2, 1}; }
  void run(auto launch, const Checker& check) const;
};

}  // namespace ops
}  // namespace axonn
