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

/// Which collectives overlap with later work. If one does not, its caller waits for it at once. No
/// choice changes a bit of any result.
struct Overlap {
  bool input_gradients = true;   ///< OAR: the all-reduce of d_inp with the product of d_weight;
                                 ///< and the loss's collectives with the loss of later rows
  bool weight_gradients = true;  ///< ORS: a block's reduce-scatter with the next block's backward
  bool weights = true;           ///< OAG: the next block's all-gather with this block
  bool data = true;  ///< a block's sum over data with the backward of earlier blocks, and the
                     ///< gather of its new weights with earlier blocks of the next forward
};

class KeyValueCache;
class ParameterGroup;
class Prefetcher;

inline Buffer buffer_of(const View& view) { return {view.data, view.count(), view.dtype}; }

/// The first block whose forward pass produced NaN or infinity on this rank.
struct Diagnosis {
  std::string block;  ///< empty: none
};

/// The devices, settings and state of a pass that a model's operations need besides their inputs.
/// Cheap to copy: holds references only.
struct Context {
  Backend& backend;
  Arena& arena;
  const Grid& grid;
  DType dtype = DType::f32;         ///< of activations and of the parameters' compute copies
  DType reduce_dtype = DType::f32;  ///< in which weight gradients are sent
  Overlap overlap = {};
  /// Between products, cut rows over the axis (x or y) on which values would be replicated.
  bool sequence_parallel = true;
  int chunks = 1;        ///< of a micro-batch's rows; one's collectives overlap another's compute
  Tape* tape = nullptr;  ///< null: nothing is recorded, as in evaluation
  std::string_view label = {};    ///< names the block in collectives, for the watchdog and traces
  bool recompute = false;         ///< blocks keep only their input; backward runs forward again
  bool runs_again = false;        ///< this pass keeps nothing and will run again, with a tape
  bool second_run = false;        ///< this is that second run
  bool last_micro_batch = false;  ///< of the step: gradients are complete after its backward
  /// Parameters stay gathered from forward to backward: backward follows at once.
  bool hold_parameters = false;
  /// To be called at the end of the current block, before its parameters are released.
  std::vector<std::function<void()>>* before_release = nullptr;
  std::uint64_t seed = 0;            ///< of random numbers in training, such as dropout
  Prefetcher* prefetcher = nullptr;  ///< gathers the next block's parameters early
  Diagnosis* diagnosis = nullptr;    ///< if set, every block's output is checked (slow)
  /// If set, attention stores keys and values here, and reads those of earlier passes.
  KeyValueCache* cache = nullptr;
  /// The group whose reduce-scatter is in flight: at most one at a time, so memory stays bounded.
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
