#pragma once

#include <cstddef>
#include <memory>
#include <vector>

#include "axonn/ops/backend.h"

namespace axonn {

// The device that tests of operations run on; on_cpu.cpp or on_cuda.cpp implements it.

/// A new backend on the device of this test program; on the CPU with one thread. Its operations are
/// complete when they return.
std::unique_ptr<Backend> test_backend();

/// Memory that both the host and that backend read and write. Aligned to 16 bytes.
void* allocate_operand(std::size_t bytes);
void release_operand(void* memory) noexcept;

template <typename T>
struct OperandAllocator {
  using value_type = T;

  OperandAllocator() = default;
  template <typename U>
  OperandAllocator(const OperandAllocator<U>&) {}  // NOLINT: as allocators convert

  T* allocate(std::size_t count) { return static_cast<T*>(allocate_operand(count * sizeof(T))); }
  void deallocate(T* memory, std::size_t) noexcept { release_operand(memory); }
  bool operator==(const OperandAllocator&) const = default;
};

using OperandMemory = std::vector<double, OperandAllocator<double>>;

}  // namespace axonn
