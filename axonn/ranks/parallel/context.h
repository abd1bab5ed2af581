#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <utility>

#include "axonn/compute/ops/backend.h"
#include "axonn/compute/tensor/arena.h"
#include "axonn/compute/tensor/tape.h"
#include "axonn/ranks/comm/grid.h"
#include "axonn/ranks/parallel/attachments.h"

namespace axonn {

struct Scheduling;

/// Operands of an operation, as a HostOperation gets them.
using Views = std::span<const View>;

inline Buffer buffer_of(const View& view) { return {view.data, view.count(), view.dtype}; }

/// The device, the grid and the tape of a pass, which a model's operations need besides their
/// inputs. Cheap to copy.
class Context {
 public:
  /// Without a tape, and scheduled as by default.
  Context(Backend& compute, Arena& memory, const Grid& ranks, DType type = DType::f32);

  Backend& backend;
  const Grid& grid;
  DType dtype;             ///< of activations and of the parameters' compute copies
  std::uint64_t seed = 0;  ///< of random numbers in training, such as dropout
  Tape* tape = nullptr;    ///< null: nothing is recorded, as in evaluation

  Device& device() const { return backend.device(); }

  /// The object of this type that whoever runs the pass attached for layers to find: a
  /// KeyValueCache, a Routing, an OutputZLoss, or one of your own. Null if there is none.
  template <typename T>
  T* find() const {
    return attachments_.find<T>();
  }
  /// For this context and its later copies, which keep the object alive.
  template <typename T>
  void attach(std::shared_ptr<T> object) {
    attachments_.attach(std::move(object));
  }

  /// Whether the pass is for training, so that dropout applies. A pass without a tape is if
  /// checkpoint() repeats it with one.
  bool training() const;

  Tensor empty(std::int64_t rows, std::int64_t cols, DType type,
               MemoryUse use = MemoryUse::activations) const {
    return {arena_, rows, cols, type, use};
  }
  /// A tensor of the size, type and use of another.
  Tensor like(const Tensor& other) const {
    return empty(other.rows(), other.cols(), other.dtype(), other.use());
  }
  Tensor zeros(std::int64_t rows, std::int64_t cols, DType type,
               MemoryUse use = MemoryUse::activations) const {
    Tensor tensor = empty(rows, cols, type, use);
    device().fill_zero(tensor.raw_view().data, tensor.bytes());
    return tensor;
  }

  /// Zeros that live as long as a model (Tensor::long_lived).
  Tensor long_lived(std::int64_t rows, std::int64_t cols, DType type, MemoryUse use) const {
    return Tensor::long_lived(arena_, rows, cols, type, use);
  }

  /// Copies values to a tensor (1, n); an empty one if there are none.
  Tensor on_device(std::span<const std::int32_t> host) const;

  /// Models need none of these: the memory behind empty(), and how the pass is scheduled, see
  /// parallel/scheduling.h.
  Arena& arena() const { return arena_; }
  const Scheduling& scheduling() const { return *scheduling_; }
  /// To be changed for this context and its later copies. The copies made so far keep theirs.
  Scheduling& own_scheduling();

 private:
  Arena& arena_;
  std::shared_ptr<const Scheduling> scheduling_;
  Attachments attachments_;
};

}  // namespace axonn
