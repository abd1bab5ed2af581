#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "axonn/comm/grid.h"
#include "axonn/ops/backend.h"
#include "axonn/tensor/arena.h"
#include "axonn/tensor/tape.h"

namespace axonn {

/// Which collectives run under later work; one that does not is waited for where it starts. No
/// choice changes a bit of any result.
struct Overlap {
  bool input_gradients = true;   ///< OAR: the all-reduce of d_inp under the product of d_weight;
                                 ///< and the loss's collectives under other rows of it
  bool weight_gradients = true;  ///< ORS: reduce-scatters of a block under the next one's backward
  bool weights = true;           ///< OAG: the next block's all-gather under this block
  bool data = true;  ///< a block's sum over data under the blocks before it in backward, and the
                     ///< gather of its new weights under those before it in the next forward
};

class KeyValueCache;
class ParameterGroup;
class Prefetcher;

inline Buffer buffer_of(const View& view) { return {view.data, view.count(), view.dtype}; }

/// Where a forward pass first produced NaN or infinity, by block, on this rank.
struct Diagnosis {
  std::string block;  ///< empty: nowhere
};

/// What an operation of a model needs besides its inputs. Copied freely; it owns nothing.
struct Context {
  Backend& backend;
  Arena& arena;
  const Grid& grid;
  DType dtype = DType::f32;         ///< of activations and of the parameters' compute copies
  DType reduce_dtype = DType::f32;  ///< in which weight gradients travel
  Overlap overlap = {};
  /// Between products, rows are cut over the axis (x or y) on which values would be the same.
  bool sequence_parallel = true;
  int chunks = 1;               ///< pieces of a micro-batch's rows that overlap one another
  Tape* tape = nullptr;         ///< null: nothing is recorded, as in evaluation
  std::string_view label = {};  ///< the layer at work, for the watchdog's and NaN's messages
  bool recompute = false;       ///< blocks keep only their input and run forward again in backward
  bool runs_again = false;      ///< this pass keeps nothing and will run again, with a tape
  bool second_run = false;      ///< this is that second run
  bool last_micro_batch = false;  ///< of the step: gradients are complete after its backward
  /// Parameters stay gathered from forward to backward: backward follows at once.
  bool hold_parameters = false;
  /// What has to be done while the parameters of the block at work are at hand.
  std::vector<std::function<void()>>* before_release = nullptr;
  std::uint64_t seed = 0;            ///< of what is drawn while training, such as dropout
  Prefetcher* prefetcher = nullptr;  ///< gathers the next block's parameters early
  Diagnosis* diagnosis = nullptr;    ///< where set, every block's output is looked at (slow)
  /// Where set, attention keeps keys and values there, and sees those of earlier passes.
  KeyValueCache* cache = nullptr;
  /// The group whose gradients are on their way: at most one block's are, which bounds memory.
  ParameterGroup** reducing = nullptr;

  Tensor empty(std::int64_t rows, std::int64_t cols, DType type,
               MemoryUse use = MemoryUse::activations) const {
    return {arena, rows, cols, type, use};
  }
  /// A tensor of the size, type and use of another.
  Tensor like(const Tensor& other) const {
    return empty(other.rows(), other.cols(), other.dtype(), other.use());
  }
  Tensor zeros(std::int64_t rows, std::int64_t cols, DType type,
               MemoryUse use = MemoryUse::activations) const {
    Tensor tensor = empty(rows, cols, type, use);
    arena.device().fill_zero(tensor.raw_view().data, tensor.bytes());
    return tensor;
  }
};

}  // namespace axonn
