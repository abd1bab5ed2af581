#include "axonn/tensor/tensor.h"

#include "axonn/base/check.h"

namespace axonn {

View View::row_range(std::int64_t begin, std::int64_t n) const {
  AXONN_CHECK(begin >= 0 && n >= 0 && begin + n <= rows, "invalid rows [", begin, ',', begin + n,
              ") of ", *this);
  View part = *this;
  part.rows = n;
  part.data = static_cast<char*>(data) + begin * stride * bytes_of(dtype);
  return part;
}

View View::col_range(std::int64_t begin, std::int64_t n) const {
  AXONN_CHECK(begin >= 0 && n >= 0 && begin + n <= cols, "invalid columns [", begin, ',', begin + n,
              ") of ", *this);
  View part = *this;
  part.cols = n;
  part.data = static_cast<char*>(data) + begin * bytes_of(dtype);
  return part;
}

std::ostream& operator<<(std::ostream& out, const View& view) {
  return out << '(' << view.rows << ',' << view.cols << ") " << name_of(view.dtype);
}

struct Tensor::Storage {
  Arena& arena;
  void* memory;
  std::int64_t bytes;
  MemoryUse use;
  Work pending;

  Storage(Arena& from, std::int64_t size, MemoryUse what)
      : arena(from), memory(from.allocate(size, what)), bytes(size), use(what) {}
  Storage(const Storage&) = delete;
  Storage& operator=(const Storage&) = delete;
  ~Storage() {
    pending = Work();  // waits, so that no collective writes memory after its release
    arena.release(memory, bytes, use);
  }
};

Tensor::Tensor(Arena& arena, std::int64_t rows, std::int64_t cols, DType dtype, MemoryUse use)
    : storage_(std::make_shared<Storage>(arena, rows * cols * bytes_of(dtype), use)),
      view_{storage_->memory, dtype, rows, cols, cols} {}

MemoryUse Tensor::use() const {
  AXONN_CHECK(storage_, "use: the tensor is empty");
  return storage_->use;
}

Tensor Tensor::reshape(std::int64_t rows, std::int64_t cols) const {
  AXONN_CHECK(rows * cols == count() && view_.contiguous(),
              "reshape needs a contiguous tensor and an equal count; got ", view_, " to (", rows,
              ',', cols, ')');
  return {storage_, {view_.data, view_.dtype, rows, cols, cols}};
}

void Tensor::set_pending(Work work) { storage_->pending = std::move(work); }

void Tensor::wait() const {
  if (storage_) storage_->pending.wait();
}

}  // namespace axonn
