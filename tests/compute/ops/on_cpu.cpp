#include <cstring>
#include <new>

#include "tests/compute/ops/operand_memory.h"

namespace axonn {

std::unique_ptr<Backend> test_backend(int threads) { return make_cpu_backend(threads); }

Memory memory_of_operands() { return Memory::host; }

void* allocate_operand(std::int64_t bytes) { return ::operator new(bytes); }

void release_operand(void* memory, std::int64_t) noexcept { ::operator delete(memory); }

void write_operand(void* to, const void* host, std::int64_t bytes) { std::memcpy(to, host, bytes); }

void read_operand(void* host, const void* from, std::int64_t bytes) {
  std::memcpy(host, from, bytes);
}

}  // namespace axonn
