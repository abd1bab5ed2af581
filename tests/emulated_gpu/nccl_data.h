#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <vector>

#include <nccl.h>

namespace emulated_gpu {

enum class Operation { all_reduce, all_gather, reduce_scatter, broadcast, pair };

/// One rank's call of a collective, or a sender's or receiver's of a message (pair).
struct NcclCall {
  Operation operation = Operation::pair;
  ncclDataType_t type = ncclFloat32;
  std::size_t count = 0;
  const void* inp = nullptr;  ///< null for a receiver
  void* out = nullptr;        ///< null for a sender
  ncclRedOp_t op = ncclSum;
  int peer = -1;   ///< the root, or the other rank of a message
  int device = 0;  ///< of the rank

  std::size_t inp_bytes(int ranks) const;
  std::size_t out_bytes(int ranks) const;
  /// Whether another rank's call may be part of the same collective.
  bool agrees(const NcclCall& other) const;
  std::string text() const;
};

/// The bytes of an element; 0 for a type that is not emulated.
std::size_t bytes_of(ncclDataType_t type);

/// The rule of NCCL that the call's buffers break by overlapping; empty if there is none.
std::string overlap_trouble(const NcclCall& call, int rank, int ranks);

/// Carries out a collective: reads all ranks' inputs, and writes all their outputs. `calls` is in
/// rank order, or is a sender's and a receiver's. Sums follow a ring, as NCCL's: part i of the
/// ranks' parts begins with rank order[i], and is rounded to the type after each addition. Called
/// while an Unseen lives.
void move_data(std::span<const NcclCall> calls, std::span<const int> order);

}  // namespace emulated_gpu
