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
  static constexpr std::uint32_t kAlsoWrites = 0b1001110;
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
  static constexpr std::uint32_t kAlsoWrites = 0b10010;
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
  static constexpr std::uint32_t kAlsoWrites = 0b110;
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
  static constexpr std::uint32_t kAlsoWrites = 0b11110;
  static constexpr auto kKind = OperationKind::update;
  auto operands() const { return std::array{out, master, z, average, second, gradient, scale}; }
  void run(auto launch, const Checker& check) const;
};

/// Adds the shares of a part (R, C) of a matrix in the mean squares of its rows and columns:
///
///   rows[i] += row_share · sum over j of g[i, j]²;  cols[j] += col_share · sum over i of g[i, j]²
struct AddSquares {
  View rows;        ///< (1, R) f32; or empty, for a vector, which has only columns
  View cols;        ///< (1, C) f32
  View gradient;    ///< (R, C) f32
  View scale = {};  ///< (1, 1) f32, as in AdamW
  float row_share = 1, col_share = 1;

  static constexpr std::string_view kName = "add_squares";
  static constexpr std::uint32_t kAlsoWrites = 0b10;
  static constexpr auto kKind = OperationKind::update;
  auto operands() const { return std::array{rows, cols, gradient, scale}; }
  auto passes() const { return std::array{2, 2, rows.data ? 2 : 1, 1}; }
  void run(auto launch, const Checker& check) const;
};

/// Adafactor's second moment of a part (R, C) of a matrix, V[i, j] = rows[i] · cols[j] / mean.
/// `mean` is that of all rows of the matrix. Of a vector, V[j] = cols[j].
struct FactoredMoment {
  View rows;         ///< (1, R) f32, mean squares of rows; or empty, for a vector
  View cols;         ///< (1, C) f32, mean squares of columns
  View sum;          ///< (1, 1) f64, of all rows of the matrix; or empty, for a vector
  float count = 1;   ///< number of all rows
  float added = 0;   ///< to each of rows, cols and mean
  float lowest = 0;  ///< lower bound of mean, and of the square root of V
};

/// out (1, 1) f64 += sum of the squares of g / sqrt(V) over a part (R, C) of a matrix.
struct AdafactorSquares {
  View out;
  View gradient;  ///< (R, C) f32
  FactoredMoment moment;
  View scale = {};  ///< (1, 1) f32, as in AdamW

  static constexpr std::string_view kName = "adafactor_squares";
  static constexpr auto kKind = OperationKind::update;
  auto operands() const {
    return std::array{out, gradient, moment.rows, moment.cols, moment.sum, scale};
  }
  void run(auto launch, const Checker& check) const;
};

/// One step of Adafactor (Shazeer and Stern, 2018) on a part (R, C) of a matrix:
///
///   a = step · max(least_size, RMS of the weights);  u = a · g / sqrt(V) / max(1, RMS / threshold)
///   momentum = beta1 · momentum + (1 - beta1) · u;  u = momentum
///   master -= u + (shrink + a · weight_decay) · master
struct Adafactor {
  View master, gradient;  ///< (R, C) f32
  View out;               ///< (R, C) the compute copy, f32, bf16 or f16
  FactoredMoment moment;
  View scale = {};           ///< (1, 1) f32, as in AdamW
  View step_squares;         ///< (1, 1) f64, sum of the squares of g / sqrt(V) over the matrix
  View weight_squares = {};  ///< (1, 1) f64, of its weights; or empty: a = step
  View momentum = {};        ///< (R, C) f32; or empty: none
  double count = 1;          ///< elements of the matrix
  float step = 0, least_size = 1e-3f, threshold = 1, beta1 = 0;
  float shrink = 0, weight_decay = 0;

  static constexpr std::string_view kName = "adafactor";
  static constexpr std::uint32_t kAlsoWrites = 0b1010;
  static constexpr auto kKind = OperationKind::update;
  auto operands() const {
    return std::array{out,         master,     gradient, momentum,     moment.rows,
                      moment.cols, moment.sum, scale,    step_squares, weight_squares};
  }
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
  static constexpr std::uint32_t kAlsoWrites = 0b10;
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

/// Checksums of runs of inp, the same on every device: out[i] is the sum over the words of 32 bits
/// of bytes [bounds[i], bounds[i + 1]) of word j · word_factor(j) (mend_bit.h), modulo 2^64. Bits
/// that flip in one word always change it, and so do two in different words.
struct WordSums {
  View out;     ///< (1, C) i64
  View inp;     ///< (1, n) of any type; begins at byte bounds[0]
  View bounds;  ///< (1, C + 1) i64, multiples of 4 but the last

  static constexpr std::string_view kName = "word_sums";
  static constexpr auto kKind = OperationKind::update;
  auto operands() const { return std::array{out, inp, bounds}; }
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

/// (1, n) values as codes of 8 bits, in blocks of DynamicMap::kBlock from the first value on.
struct DynamicBlocks {
  View codes;   ///< (1, n) u8
  View absmax;  ///< (1, blocks) f32, the largest size of a value in each block
  View table;   ///< (1, DynamicMap::kTable) f32: DynamicMap::table()
};

/// Makes the codes of inp (1, n) f32, and the absmax of their blocks.
struct EncodeDynamic {
  DynamicBlocks blocks;
  View inp;
  bool is_signed = true;  ///< whether the table is that of the signed map

  static constexpr std::string_view kName = "encode_dynamic";
  static constexpr std::uint32_t kAlsoWrites = 0b10;
  static constexpr auto kKind = OperationKind::update;
  auto operands() const { return std::array{blocks.codes, blocks.absmax, inp, blocks.table}; }
  void run(auto launch, const Checker& check) const;
};

/// out (1, n) f32 = the values of codes.
struct DecodeDynamic {
  View out;
  DynamicBlocks blocks;

  static constexpr std::string_view kName = "decode_dynamic";
  static constexpr auto kKind = OperationKind::update;
  auto operands() const { return std::array{out, blocks.codes, blocks.absmax, blocks.table}; }
  void run(auto launch, const Checker& check) const;
};

/// Rounds a part of a matrix to one of the two nearest bf16, the nearer one more often, so that the
/// mean over many keys is the value. The choice depends only on the key and on the element's index.
struct RoundAtRandom {
  View out;                    ///< (R, C) bf16
  View inp;                    ///< (R, C) f32
  std::uint64_t key = 0;       ///< a different key makes a different choice
  std::int64_t first_row = 0;  ///< of element (0, 0) in the whole matrix
  std::int64_t first_col = 0;

  static constexpr std::string_view kName = "round_at_random";
  static constexpr auto kKind = OperationKind::update;
  auto operands() const { return std::array{out, inp}; }
  void run(auto launch, const Checker& check) const;
};

}  // namespace ops
}  // namespace axonn
