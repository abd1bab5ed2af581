#include <new>

#include "tests/ops/operand_memory.h"

namespace axonn {

std::unique_ptr<Backend> test_backend() { return make_cpu_backend(1); }

void* allocate_operand(std::size_t bytes) { return ::operator new(bytes); }

void release_operand(void* memory) noexcept { ::operator delete(memory); }

}  // namespace axonn
