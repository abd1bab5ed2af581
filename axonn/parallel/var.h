#pragma once

#include <memory>
#include <utility>
#include <vector>

#include "axonn/parallel/context.h"

namespace axonn {

/// How a value lies on the grid: its rows are cut over `rows`, its columns over `cols`; on every
/// other axis it is the same. Cut over x and y, columns are heads: x's part is cut again over y.
struct Placement {
  AxisSet rows;
  AxisSet cols;
  bool operator==(const Placement&) const = default;
};

/// What the rows of a (z, data) coordinate mean: `sequences` one after another, of `positions`
/// tokens each. Where they are cut over x or y as well, a rank holds a run of them.
struct Rows {
  std::int64_t sequences = 0, positions = 0;
  std::int64_t count() const { return sequences * positions; }
};

/// Where the gradient of a value is summed until its own backward step takes it.
class Gradient {
 public:
  /// The first is kept as it is, later ones are added in the order of the calls.
  void add(const Context& ctx, Tensor d);
  /// Moves the sum out. Errors: nobody gave a gradient.
  Tensor take();
  /// The sum so far, moved out, or an empty tensor: for kernels that add it themselves.
  Tensor take_if_any() { return std::exchange(sum_, Tensor()); }

 private:
  Tensor sum_;
};

/// Some rows of a value: one tensor, where it lies, and its gradient if one is needed.
struct Chunk {
  Tensor value;
  Placement placement;
  Rows rows;
  std::shared_ptr<Gradient> gradient;
  /// (R, 2) f32: mean and sum of squared deviations of each row of the value here, where a residual
  /// sum made them for the norm that comes next; or empty.
  Tensor moments = {};
};

/// A value of a model: activations, in one or several chunks of their rows. Operations run chunk
/// by chunk, so one chunk's collective is under way while the next one computes; model code does
/// not see it.
using Var = std::vector<Chunk>;

/// The chunk that an operation returns: same rows, gradient if its input or a parameter needs one.
Chunk make_chunk(const Context& ctx, const Chunk& from, Tensor value, Placement placement);

}  // namespace axonn
