#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "axonn/network/nn/embedding.h"
#include "axonn/ranks/parallel/block.h"
#include "axonn/ranks/parallel/parameters.h"

namespace axonn::testing_support {

/// The inputs of the layers under test.
struct PieceInput {
  Var x;          ///< (R, width), columns over y
  Tokens tokens;  ///< of the same rows
  Tensor total;   ///< (1, 1) f64, for losses
};

/// Some layers of a model. The loss is the sum of the result's elements times fixed weights; if the
/// result is empty, it is the value added to total.
using Piece = std::function<Var(const Context&, const PieceInput&)>;

struct PieceRun {
  GridShape grid;
  std::int64_t sequences = 24, positions = 3, width = 24, vocab = 11;
  DType dtype = DType::f32;
  int chunks = 1;
  bool sequence_parallel = true;
  bool packed = false;  ///< sequences hold two documents each, see PackedRows
  /// Makes each rank's backend; empty: the CPU's with one thread.
  std::function<std::unique_ptr<Backend>()> make_backend = {};
  /// Declares the layers' parameters; called once a rank.
  std::function<Piece(ParameterGroup&)> make;
  /// Random numbers (0.3 normal) are added to the initial values of parameters, of which some are
  /// all zero or one; and `shift` times its direction() to the parameter of this name.
  std::string shifted = {};
  double shift = 0;
  bool loss_follows = false;  ///< the piece has a loss, which computes gradients in forward
};

/// A global matrix put together from the ranks' blocks; row-major.
struct Gathered {
  std::int64_t rows = 0, cols = 0;
  std::vector<float> values;
};

/// "out" and "d_inp" if the piece has them, "total", and parameters' gradients by name. The run
/// throws if an element that several ranks hold differs by a bit.
using PieceResult = std::map<std::string, Gathered>;

/// Runs forward and backward of one micro-batch, with threads as ranks.
PieceResult run_piece(const PieceRun& run);

/// The direction in which a shift moves element `index` of the parameter.
double direction(const std::string& parameter, std::int64_t index);

/// The loss of a result: its total, or the sum of "out" times fixed weights.
double loss_of(const PieceResult& result);

/// The first place where they differ by more than the tolerance, or "". `terms` is the length of
/// the longest sum; another order of summation changes it by at most terms · eps of its summands.
std::string difference(const PieceResult& want, const PieceResult& got, std::int64_t terms);

}  // namespace axonn::testing_support
