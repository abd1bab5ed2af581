#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <ostream>
#include <span>

#include "axonn/tensor/arena.h"
#include "axonn/tensor/dtype.h"
#include "axonn/tensor/work.h"

namespace axonn {

/// A window on a row-major matrix in device memory: what operations read and write. A value; it
/// owns nothing.
struct View {
  void* data = nullptr;
  DType dtype = DType::f32;
  std::int64_t rows = 0, cols = 0;
  std::int64_t stride = 0;  ///< elements from one row to the next

  template <typename T>
  T* as() const {
    return static_cast<T*>(data);
  }
  template <typename T>
  T* row(std::int64_t r) const {
    return static_cast<T*>(data) + r * stride;
  }
  std::int64_t count() const { return rows * cols; }
  bool contiguous() const { return stride == cols || rows <= 1; }
  /// Rows [begin, begin + n) of it.
  View row_range(std::int64_t begin, std::int64_t n) const;
  /// Columns [begin, begin + n) of it.
  View col_range(std::int64_t begin, std::int64_t n) const;
};

/// "(rows,cols) dtype".
std::ostream& operator<<(std::ostream& out, const View& view);

/// A row-major matrix in an arena, shared by its copies. Vectors are (1, n).
///
/// A collective that writes it may still be under way: set_pending() hands it the Work, and the
/// first who reads the elements, through view() or data(), waits for it. Rows are tokens: row
/// b · T + t is position t of sequence b.
class Tensor {
 public:
  Tensor() = default;
  /// Uninitialised (rows, cols).
  Tensor(Arena& arena, std::int64_t rows, std::int64_t cols, DType dtype,
         MemoryUse use = MemoryUse::activations);

  bool empty() const { return !storage_; }
  std::int64_t rows() const { return view_.rows; }
  std::int64_t cols() const { return view_.cols; }
  std::int64_t count() const { return view_.count(); }
  std::int64_t bytes() const { return count() * bytes_of(view_.dtype); }
  DType dtype() const { return view_.dtype; }
  /// What its memory is for. Errors: none is held.
  MemoryUse use() const;

  /// The elements, once whatever still writes them is done.
  View view() const;

  /// The elements as they lie, without waiting: for handing to a collective.
  View raw_view() const { return view_; }

  /// Rows [begin, begin + n), sharing the storage.
  Tensor row_range(std::int64_t begin, std::int64_t n) const;
  /// Columns [begin, begin + n), sharing the storage.
  Tensor col_range(std::int64_t begin, std::int64_t n) const;
  /// The same elements as (rows, cols). Errors: the counts differ.
  Tensor reshape(std::int64_t rows, std::int64_t cols) const;

  void set_pending(Work work);
  /// Waits for what was set_pending.
  void wait() const;

  /// Whether no other Tensor shares this storage, so that it may be overwritten.
  bool unique() const { return storage_.use_count() == 1; }

  /// The storage, to be kept alive by a Work.
  std::shared_ptr<void> owner() const { return storage_; }

 private:
  struct Storage;
  std::shared_ptr<Storage> storage_;
  View view_;
};

}  // namespace axonn
