#pragma once

#include <cstdint>
#include <memory>
#include <ostream>
#include <type_traits>
#include <utility>
#include <vector>

#include "axonn/compute/tensor/arena.h"
#include "axonn/compute/tensor/dtype.h"
#include "axonn/foundation/base/check.h"

namespace axonn {

/// Code of the host read or wrote a View that it cannot, or as another type. what() begins with the
/// line that did.
class AccessError : public Error {
 public:
  using Error::Error;
};

/// A view of a row-major matrix in device memory: the operand type of all operations. It does not
/// own the memory.
///
/// Code of the host reads and writes elements through as() and row(), which check the type and that
/// the host can access the memory; check once for a row, not for each element:
///
///   float* const first = view.row<float>(r);
///   for (std::int64_t c = 0; c < view.cols; ++c) first[c] *= 2;
struct View {
  void* data = nullptr;
  DType dtype = DType::f32;
  std::int64_t rows = 0, cols = 0;
  std::int64_t stride = 0;       ///< elements from one row to the next
  Memory memory = Memory::host;  ///< of the device

  /// The first element; null if the view is empty. Throws AccessError, with the caller's line and
  /// the remedy, if elements are not of type T (float for f32, bf16, std::int32_t for i32, ...), or
  /// if they are in a GPU's memory or, on a device that keeps no values, nowhere.
  template <typename T>
  T* as(Where where = Where::here()) const {
    constexpr DType wanted = dtype_of<std::remove_const_t<T>>;
    if (count() > 0 && (dtype != wanted || memory != Memory::host || !data)) [[unlikely]]
      refuse_access(wanted, where);
    return static_cast<T*>(data);
  }
  /// The first element of row r. Throws as as() does, and if there is no row r.
  template <typename T>
  T* row(std::int64_t r, Where where = Where::here()) const {
    if (r < 0 || r >= rows) [[unlikely]]
      refuse_row(r, where);
    return as<T>(where) + r * stride;
  }
  std::int64_t count() const { return rows * cols; }
  bool contiguous() const { return stride == cols || rows <= 1; }
  /// Rows [begin, begin + n).
  View row_range(std::int64_t begin, std::int64_t n) const;
  /// Columns [begin, begin + n).
  View col_range(std::int64_t begin, std::int64_t n) const;

 private:
  [[noreturn]] void refuse_access(DType wanted, Where where) const;
  [[noreturn]] void refuse_row(std::int64_t r, Where where) const;
};

/// Prints "(rows,cols) dtype".
std::ostream& operator<<(std::ostream& out, const View& view);

/// What becomes of values of a file (Arena::offload) while they are in memory. Only predictions of
/// the time that a disk takes depend on it.
enum class FileAccess : std::uint8_t {
  parts,   ///< Tensor::put_away() of each part says it
  read,    ///< they are read
  changed  ///< they are read, and written back
};

/// A row-major matrix in an arena. Copies share the storage. Vectors are (1, n).
///
/// A collective that writes the tensor may be in flight: set_pending() stores its Work, and the
/// next view() of any tensor on this storage waits for it. Rows are tokens: row b · T + t is
/// position t of sequence b.
class Tensor {
 public:
  Tensor() = default;
  /// Allocates an uninitialised (rows, cols) matrix. Throws Error for negative extents.
  Tensor(Arena& arena, std::int64_t rows, std::int64_t cols, DType dtype,
         MemoryUse use = MemoryUse::activations);

  /// The same of zeros that live as long as a model: in a file if the arena offloads this use.
  static Tensor long_lived(Arena& arena, std::int64_t rows, std::int64_t cols, DType dtype,
                           MemoryUse use);
  /// Whether its memory is a file's. Views are valid all the time; see InMemory.
  bool in_file() const;
  /// If so, lets what was accessed of it go to the file. No value changes.
  void put_away(FileAccess access = FileAccess::changed) const;

  bool empty() const { return !storage_; }
  std::int64_t rows() const { return view_.rows; }
  std::int64_t cols() const { return view_.cols; }
  std::int64_t count() const { return view_.count(); }
  std::int64_t bytes() const { return count() * bytes_of(view_.dtype); }
  DType dtype() const { return view_.dtype; }
  /// The purpose of its memory. Throws if the tensor is empty.
  MemoryUse use() const;

  /// The elements; an empty view if the tensor is empty. Waits for the pending collective.
  View view() const {
    wait();
    return view_;
  }

  /// The elements, without waiting: for passing to a collective.
  View raw_view() const { return view_; }

  /// Rows [begin, begin + n), sharing the storage.
  Tensor row_range(std::int64_t begin, std::int64_t n) const {
    return {storage_, view_.row_range(begin, n)};
  }
  /// Columns [begin, begin + n), sharing the storage.
  Tensor col_range(std::int64_t begin, std::int64_t n) const {
    return {storage_, view_.col_range(begin, n)};
  }
  /// Views the elements as (rows, cols). Throws if the counts differ or rows are not contiguous.
  Tensor reshape(std::int64_t rows, std::int64_t cols) const;

  /// Stores a collective that writes the tensor. Waits for the one stored before. Throws if the
  /// tensor is empty.
  void set_pending(Work work);
  /// Waits for the pending collective.
  void wait() const;

  /// Whether no other Tensor shares this storage, so that it may be overwritten.
  bool unique() const { return storage_.use_count() == 1; }

  /// The storage, for Work::keep().
  std::shared_ptr<void> owner() const { return storage_; }

 private:
  friend class InMemory;
  struct Storage;
  Tensor(std::shared_ptr<Storage> storage, const View& view)
      : storage_(std::move(storage)), view_(view) {}

  std::shared_ptr<Storage> storage_;
  View view_;
};

/// While it lives, tensors that are in a file (Tensor::in_file) count as memory; they are read
/// ahead when it begins, and put away when the last one of a storage ends. Of several parts of a
/// storage the largest counts. Has no effect on other tensors.
class InMemory {
 public:
  InMemory() = default;
  InMemory(const std::vector<Tensor>& tensors, FileAccess access);
  InMemory(InMemory&& other) noexcept : tensors_(std::move(other.tensors_)) {
    other.tensors_.clear();
  }
  InMemory& operator=(InMemory&& other) noexcept {
    std::swap(tensors_, other.tensors_);
    return *this;
  }
  ~InMemory();

 private:
  std::vector<Tensor> tensors_;
};

}  // namespace axonn
