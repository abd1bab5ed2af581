#pragma once

#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "axonn/compute/ops/backend.h"

namespace axonn {

// The device that tests of operations run on; on_cpu.cpp or on_cuda.cpp implements it.

/// A new backend on the device of this test program; on the CPU with this many threads. Its
/// operations are complete when they return.
std::unique_ptr<Backend> test_backend(int threads = 1);

/// Memory of that backend's device, which the host need not be able to read, aligned to 16 bytes.
void* allocate_operand(std::int64_t bytes);
void release_operand(void* memory, std::int64_t bytes) noexcept;
void write_operand(void* to, const void* host, std::int64_t bytes);
void read_operand(void* host, const void* from, std::int64_t bytes);
/// Who can access that memory.
Memory memory_of_operands();

/// Bytes in that memory.
class OperandMemory {
 public:
  explicit OperandMemory(const std::vector<char>& values)
      : bytes_(std::ssize(values)), memory_(allocate_operand(bytes_)) {
    write_operand(memory_, values.data(), bytes_);
  }
  OperandMemory(OperandMemory&& from) noexcept
      : bytes_(from.bytes_), memory_(std::exchange(from.memory_, nullptr)) {}
  OperandMemory& operator=(OperandMemory&&) = delete;
  ~OperandMemory() {
    if (memory_) release_operand(memory_, bytes_);
  }

  void* data() const { return memory_; }
  /// A copy of the bytes as they are now.
  std::vector<char> values() const {
    std::vector<char> host(bytes_);
    read_operand(host.data(), memory_, bytes_);
    return host;
  }

 private:
  std::int64_t bytes_;
  void* memory_;
};

}  // namespace axonn
