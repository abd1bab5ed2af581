#pragma once

#include <array>
#include <cstdint>
#include <string_view>

#include "axonn/compute/tensor/device.h"
#include "axonn/compute/tensor/tensor.h"

// The row-wise operations of norms and of sums before them, a part of the table of operations.h.
namespace axonn {

struct Checker;

namespace ops {

/// out (R, 2) f32 = mean and sum of squared deviations of each row of inp (R, C) T.
struct RowMoments {
  View out, inp;

  static constexpr std::string_view kName = "row_moments";
  auto operands() const { return std::array{out, inp}; }
  void run(auto launch, const Checker& check) const;
};

/// out (R, C) T = a + b, and moments (R, 2) f32 = RowMoments of out, in one pass: the input of a
/// norm after a residual sum. The bits are those of Add, then RowMoments.
struct AddMoments {
  View out, moments, a, b;

  static constexpr std::string_view kName = "add_moments";
  static constexpr std::uint32_t kAlsoWrites = 0b10;
  auto operands() const { return std::array{out, moments, a, b}; }
  void run(auto launch, const Checker& check) const;
};

/// out (R, 2) f32 = mean and 1 / sqrt(variance + eps), from the stacked moments (pieces · R, 2) of
/// pieces of `count` columns each, by Chan's formula in the order of the pieces.
struct CombineMoments {
  View out, moments;
  std::int64_t count = 0;
  float eps = 0;

  static constexpr std::string_view kName = "combine_moments";
  auto operands() const { return std::array{out, moments}; }
  void run(auto launch, const Checker& check) const;
};

/// RMSNorm is LayerNorm about zero instead of the mean. It needs moments about zero, and
/// RmsNormSums instead of LayerNormSums; the other operations are LayerNorm's.
///
/// out (R, 2) f32 = 0 and the sum of squares, from the moments (R, 2) of `count` elements.
struct MomentsAboutZero {
  View out, moments;
  std::int64_t count = 0;

  static constexpr std::string_view kName = "moments_about_zero";
  auto operands() const { return std::array{out, moments}; }
  void run(auto launch, const Checker& check) const;
};

/// out (R, C) T = (inp - mean) · rstd · weight + bias.
struct LayerNorm {
  View out;        ///< (R, C)
  View inp;        ///< (R, C)
  View weight;     ///< (1, C)
  View bias = {};  ///< (1, C) or empty
  View stats;      ///< (R, 2) f32: mean, 1 / standard deviation

  static constexpr std::string_view kName = "layer_norm";
  auto operands() const { return std::array{out, inp, weight, bias, stats}; }
  void run(auto launch, const Checker& check) const;
};

/// A norm of whole rows, in one pass: what RowMoments, MomentsAboutZero if `about_zero`,
/// CombineMoments and LayerNorm compute, with their bits.
struct NormForward {
  View out;           ///< (R, C)
  View stats;         ///< (R, 2) f32: mean (0 if about zero), 1 / standard deviation
  View inp;           ///< (R, C)
  View moments = {};  ///< (R, 2) f32, the RowMoments of inp; or empty: they are computed
  View weight;        ///< (1, C)
  View bias = {};     ///< (1, C) or empty
  float eps = 0;
  bool about_zero = false;

  static constexpr std::string_view kName = "norm_forward";
  static constexpr std::uint32_t kAlsoWrites = 0b10;
  auto operands() const { return std::array{out, stats, inp, moments, weight, bias}; }
  void run(auto launch, const Checker& check) const;
};

/// out (R, 2) f32 = this piece's sums, see LayerNormBackward::sums.
struct LayerNormSums {
  View out, d_out, inp, weight, stats;

  static constexpr std::string_view kName = "layer_norm_sums";
  auto operands() const { return std::array{out, d_out, inp, weight, stats}; }
  void run(auto launch, const Checker& check) const;
};

/// The gradient of a norm on a piece of each row: C of the row's `width` columns.
struct LayerNormBackward {
  View d_inp;   ///< (R, C)
  View d_out;   ///< (R, C)
  View inp;     ///< (R, C)
  View weight;  ///< (1, C)
  View stats;   ///< (R, 2) f32: mean, 1 / standard deviation
  View sums;    ///< (R, 2) f32: sums over the whole row of g and g · xhat, g = d_out · weight
  View residual = {};  ///< (R, C) added to d_inp, or empty
  std::int64_t width = 0;

  static constexpr std::string_view kName = "layer_norm_backward";
  auto operands() const { return std::array{d_inp, d_out, inp, weight, stats, sums, residual}; }
  void run(auto launch, const Checker& check) const;
};

/// d_weight (1, C) += sum over rows of d_out · xhat; d_bias (1, C) += sum of d_out, or empty.
struct LayerNormWeightBackward {
  View d_weight, d_bias, d_out, inp, stats;

  static constexpr std::string_view kName = "layer_norm_weight_backward";
  static constexpr std::uint32_t kAlsoWrites = 0b10;
  auto operands() const { return std::array{d_weight, d_bias, d_out, inp, stats}; }
  void run(auto launch, const Checker& check) const;
};

/// All gradients of a norm of whole rows: what LayerNormSums (RmsNormSums if `about_zero`),
/// LayerNormBackward and LayerNormWeightBackward compute, on CPUs with their bits. On GPUs one pass
/// over memory.
struct NormBackward {
  View d_inp;          ///< (R, C)
  View d_weight = {};  ///< (1, C) f32, added to; or empty
  View d_bias = {};    ///< likewise; empty if d_weight is
  View d_out;          ///< (R, C)
  View inp;            ///< (R, C)
  View weight;         ///< (1, C)
  View stats;          ///< (R, 2) f32: mean, 1 / standard deviation
  View residual = {};  ///< (R, C) added to d_inp, or empty
  bool about_zero = false;

  static constexpr std::string_view kName = "norm_backward";
  static constexpr std::uint32_t kAlsoWrites = 0b110;
  auto operands() const {
    return std::array{d_inp, d_weight, d_bias, d_out, inp, weight, stats, residual};
  }
  void run(auto launch, const Checker& check) const;
};

/// out (R, 2) f32 = 0 and this piece's sum of g · xhat.
struct RmsNormSums {
  View out, d_out, inp, weight, stats;

  static constexpr std::string_view kName = "rms_norm_sums";
  auto operands() const { return std::array{out, d_out, inp, weight, stats}; }
  void run(auto launch, const Checker& check) const;
};

/// RMSNorm of each head separately, with one weight for all: (R, h·D), h heads of D columns.
struct HeadNorm {
  View out;     ///< (R, h·D)
  View inp;     ///< (R, h·D)
  View weight;  ///< (1, D)
  View rstd;    ///< (R, h) f32: 1 / sqrt(mean of a head's squares + eps), kept for backward
  float eps = 1e-5f;

  static constexpr std::string_view kName = "head_norm";
  static constexpr std::uint32_t kAlsoWrites = 0b1000;
  auto operands() const { return std::array{out, inp, weight, rstd}; }
  void run(auto launch, const Checker& check) const;
};

/// The gradients of HeadNorm; forward.out is not read.
struct HeadNormBackward {
  HeadNorm forward;
  View d_out;          ///< (R, h·D)
  View d_inp;          ///< (R, h·D)
  View d_weight = {};  ///< (1, D) f32, added to; or empty

  static constexpr std::string_view kName = "head_norm_backward";
  static constexpr std::uint32_t kAlsoWrites = 0b100000;
  auto operands() const {
    return std::array{d_inp, d_out, forward.inp, forward.weight, forward.rstd, d_weight};
  }
  void run(auto launch, const Checker& check) const;
};

}  // namespace ops

}  // namespace axonn
