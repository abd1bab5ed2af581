#pragma once

#include <cstdint>
#include <string>
#include <variant>
#include <vector>

#include "axonn/tensor/dtype.h"

namespace axonn {

/// What one rank does, in the order of its program, with sizes and without times: what a dry run of
/// a step notes, and what a simulator of one can play on a machine's figures. Plain data.
struct Schedule {
  struct Matrix {
    std::int64_t rows = 0, cols = 0;
    DType dtype = DType::f32;

    std::int64_t bytes() const { return rows * cols * bytes_of(dtype); }
  };

  /// An operation on the compute stream.
  struct Compute {
    std::string operation;         ///< Backend's function, or Device's
    std::string layer;             ///< as Backend::mark() named it
    std::vector<Matrix> operands;  ///< those that were given, in the order of the arguments
    double flops = 0;              ///< of products and attention (its causal half); else 0
    bool a_transposed = false, b_transposed = false;  ///< of a product

    /// Of all operands: what an operation that is bound by memory moves, at least.
    std::int64_t bytes() const {
      std::int64_t sum = 0;
      for (const Matrix& operand : operands) sum += operand.bytes();
      return sum;
    }
  };

  /// A collective is started. It may run from here to its Wait.
  struct Start {
    std::string group;       ///< "x", "y", "z", "data" or "world"
    int ranks = 1;           ///< of the group; never 1
    std::string operation;   ///< "all_gather"
    std::string label;       ///< the layer
    std::int64_t bytes = 0;  ///< of the larger buffer: size · n for gathers and scatters
  };

  /// The compute stream waits for a collective.
  struct Wait {
    /// Its Start among the events. One that comes later stands for that of the step before: updated
    /// weights travel under the next step's forward pass.
    std::size_t started = 0;
  };

  using Event = std::variant<Compute, Start, Wait>;
  std::vector<Event> events;
};

}  // namespace axonn
