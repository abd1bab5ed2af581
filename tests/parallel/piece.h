#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "axonn/parallel/block.h"
#include "axonn/parallel/embedding.h"
#include "axonn/parallel/parameters.h"

namespace axonn::testing_support {

/// What the layers under test are given.
struct PieceInput {
  Var x;          ///< (R, width), columns over y
  Tokens tokens;  ///< of the same rows
  Tensor total;   ///< (1, 1) f64, for losses
};

/// Some layers of a model. The result's loss is the sum of its elements times fixed weights, or,
/// where the result is empty, what was added to total.
using Piece = std::function<Var(const Context&, const PieceInput&)>;

struct PieceRun {
  GridShape grid;
  std::int64_t sequences = 24, positions = 3, width = 24, vocab = 11;
  DType dtype = DType::f32;
  int chunks = 1;
  bool sequence_parallel = true;
  bool packed = false;  ///< sequences hold two documents each, see PackedRows
  /// Each rank's; none: the processor's, one thread.
  std::function<std::unique_ptr<Backend>()> make_backend = {};
  /// Declares the layers' parameters; called once a rank.
  std::function<Piece(ParameterGroup&)> make;
  /// Parameters do not start at their initial values, which are zero and one for some, but random
  /// ones (0.3 normal) are added; and to one of them `shift` times its direction().
  std::string shifted = {};
  double shift = 0;
  bool loss_follows = false;  ///< backward begins within the piece: it has the loss
};

/// A global matrix put together from what the ranks hold; row-major.
struct Gathered {
  std::int64_t rows = 0, cols = 0;
  std::vector<float> values;
};

/// "out", "d_inp", "total" where there are such, and parameters' gradients by name. Elements that
/// several ranks hold were the same to the bit: otherwise the run throws.
using PieceResult = std::map<std::string, Gathered>;

/// Forward and backward of one micro-batch, on threads.
PieceResult run_piece(const PieceRun& run);

/// The direction in which a shift moves element `index` of the parameter.
double direction(const std::string& parameter, std::int64_t index);

/// The loss: of a piece that has none, the sum of its result times fixed weights.
double loss_of(const PieceResult& result);

/// "" or the first place where they differ by more than the tolerance: `terms` is the length of the
/// longest sum, which another order changes by at most terms · eps of its summands' magnitudes.
std::string difference(const PieceResult& want, const PieceResult& got, std::int64_t terms);

}  // namespace axonn::testing_support
