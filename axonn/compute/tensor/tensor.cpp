#include "axonn/compute/tensor/tensor.h"

#include <string>
#include <string_view>

#include "axonn/foundation/base/check.h"

namespace axonn {

namespace {

/// "layer_scale.cpp:31".
std::string line_of(Where where) {
  const std::string_view path = where.file;
  return concat(path.substr(path.rfind('/') + 1), ':', where.line);
}

}  // namespace

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

void View::refuse_access(DType wanted, Where where) const {
  const std::string line = line_of(where);
  if (dtype != wanted)
    throw AccessError(concat(line, ": elements of a view ", *this, " are not ", name_of(wanted),
                             "; read and write ", name_of(dtype),
                             is_half(dtype) ? " by get() and put()" : "",
                             ", or convert the values with ops::Cast"));
  if (memory == Memory::host) throw AccessError(concat(line, ": a view ", *this, " has no memory"));
  throw AccessError(
      concat(line, ": the values of a view ", *this,
             memory == Memory::gpu
                 ? " are in a GPU's memory, which code of the host cannot access"
                 : " do not exist: dry runs, plans and benchmarks of other grids run steps without "
                   "values",
             "; compute them with operations of the backend or in Backend::on_host(), or ask "
             "Device::memory() first (docs/library.md)"));
}

void View::refuse_row(std::int64_t r, Where where) const {
  throw AccessError(concat(line_of(where), ": a view ", *this, " has no row ", r));
}

std::ostream& operator<<(std::ostream& out, const View& view) {
  return out << '(' << view.rows << ',' << view.cols << ") " << name_of(view.dtype);
}

struct Tensor::Storage {
  Arena& arena;
  void* memory;
  std::int64_t bytes;
  MemoryUse use;
  bool in_file;
  int users = 0;             // InMemory that hold a part of it
  bool changed = false;      // by one of them, as a whole
  std::int64_t counted = 0;  // bytes of the largest part
  Work pending;

  Storage(Arena& from, std::int64_t size, MemoryUse what, bool file = false)
      : arena(from),
        memory(file ? from.allocate_in_file(size) : from.allocate(size, what)),
        bytes(size),
        use(what),
        in_file(file) {}
  Storage(const Storage&) = delete;
  Storage& operator=(const Storage&) = delete;
  ~Storage() {
    pending = Work();  // waits, so that no collective writes memory after its release
    if (in_file)
      arena.release_in_file(memory, bytes);
    else
      arena.release(memory, bytes, use);
  }
};

namespace {

std::int64_t bytes_of_matrix(std::int64_t rows, std::int64_t cols, DType dtype) {
  AXONN_CHECK(rows >= 0 && cols >= 0, "a tensor cannot have ", rows, " x ", cols, " elements");
  std::int64_t bytes = 0;
  if (__builtin_mul_overflow(rows, cols, &bytes) ||
      __builtin_mul_overflow(bytes, bytes_of(dtype), &bytes))
    throw OutOfMemory(concat("a tensor of ", rows, " x ", cols, ' ', name_of(dtype),
                             " has more than 2^63 bytes"));
  return bytes;
}

}  // namespace

Tensor::Tensor(Arena& arena, std::int64_t rows, std::int64_t cols, DType dtype, MemoryUse use)
    : storage_(std::make_shared<Storage>(arena, bytes_of_matrix(rows, cols, dtype), use)),
      view_{storage_->memory, dtype, rows, cols, cols, arena.device().memory()} {}

Tensor Tensor::long_lived(Arena& arena, std::int64_t rows, std::int64_t cols, DType dtype,
                          MemoryUse use) {
  const std::int64_t bytes = bytes_of_matrix(rows, cols, dtype);
  const bool in_file = arena.offloads(use);
  const auto storage = std::make_shared<Storage>(arena, bytes, use, in_file);
  if (!in_file) arena.device().fill_zero(storage->memory, bytes);  // a file begins with zeros
  return {storage, View{storage->memory, dtype, rows, cols, cols, arena.device().memory()}};
}

bool Tensor::in_file() const { return storage_ && storage_->in_file; }

void Tensor::put_away(FileAccess access) const {
  if (!in_file()) return;
  Device& device = storage_->arena.device();
  device.transfer(FileTransfer::read, bytes()).wait();
  if (access == FileAccess::changed) device.transfer(FileTransfer::write, bytes());
  storage_->arena.put_away(view_.data, bytes());
}

InMemory::InMemory(const std::vector<Tensor>& tensors, FileAccess access) {
  for (const Tensor& tensor : tensors) {
    if (!tensor.in_file()) continue;
    Tensor::Storage& storage = *tensors_.emplace_back(tensor).storage_;
    Device& device = storage.arena.device();
    if (storage.users == 0 && access != FileAccess::parts && !device.keeps_values())
      storage.pending = device.transfer(FileTransfer::read, tensor.bytes());
    ++storage.users;
    storage.changed = storage.changed || access == FileAccess::changed;
    if (tensor.bytes() > storage.counted) {
      storage.arena.count_in_file(tensor.bytes() - storage.counted, storage.use);
      storage.counted = tensor.bytes();
    }
    storage.arena.read_ahead(tensor.view_.data, tensor.bytes());
  }
}

InMemory::~InMemory() {
  for (const Tensor& tensor : tensors_) {
    Tensor::Storage& storage = *tensor.storage_;
    if (--storage.users > 0) continue;
    if (std::exchange(storage.changed, false))
      storage.arena.device().transfer(FileTransfer::write, storage.counted);
    storage.arena.count_in_file(-std::exchange(storage.counted, 0), storage.use);
    storage.arena.put_away(storage.memory, storage.bytes);
  }
}

MemoryUse Tensor::use() const {
  AXONN_CHECK(storage_, "use: the tensor is empty");
  return storage_->use;
}

Tensor Tensor::reshape(std::int64_t rows, std::int64_t cols) const {
  AXONN_CHECK(rows * cols == count() && view_.contiguous(),
              "reshape needs a contiguous tensor and an equal count; got ", view_, " to (", rows,
              ',', cols, ')');
  return {storage_, {view_.data, view_.dtype, rows, cols, cols, view_.memory}};
}

void Tensor::set_pending(Work work) {
  AXONN_CHECK(storage_, "set_pending: the tensor is empty");
  storage_->pending = std::move(work);
}

void Tensor::wait() const {
  if (storage_) storage_->pending.wait();
}

}  // namespace axonn
