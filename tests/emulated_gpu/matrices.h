#pragma once

#include <cstdint>
#include <functional>

namespace emulated_gpu {

/// A lane's operands of a matrix instruction, and its sums. The last words are unused if the
/// instruction has fewer.
struct Fragments {
  float c[4];
  std::uint32_t a[4], b[2];
};

using FragmentsOf = std::function<Fragments&(int lane)>;

/// c += a · b, as the instructions that executor.h names compute it for a warp.
void multiply_32(const FragmentsOf& of);
void multiply_64(const FragmentsOf& of);

}  // namespace emulated_gpu
