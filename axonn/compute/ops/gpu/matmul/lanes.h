#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "axonn/compute/ops/gpu/matmul/epilogues.h"
#include "axonn/compute/tensor/arena.h"
#include "axonn/compute/tensor/device.h"
#include "axonn/compute/tensor/scratch.h"

namespace axonn::cuda {

/// cuBLASLt's workspace: the size that its manual recommends, and cuBLAS itself uses, on Hopper.
constexpr std::int64_t kWorkspaceBytes = std::int64_t{32} << 20;
/// Memory of a product, and of each product that runs at the same time.
constexpr std::int64_t kLaneBytes = kWorkspaceBytes + kSumBytes;

/// How many of so many independent products run at the same time. Products of few rows, such as
/// those of experts, each occupy a part of a GPU.
constexpr std::int64_t lanes_for(std::size_t products) {
  return std::clamp<std::int64_t>(static_cast<std::int64_t>(products), 1, 4);
}

/// A stream on which products run one after another, with memory of its own: products of other
/// lanes run at the same time.
struct Lane {
  Stream& stream;
  char* workspace;  ///< kWorkspaceBytes
  void* sums;       ///< kSumBytes: cuBLASLt's bias gradient, before it is added to ours
};

/// The lanes of a device: its compute stream, and streams beside it, which it keeps.
class ProductLanes {
 public:
  explicit ProductLanes(Device& device) : device_(device) {}

  /// Lanes for so many products, with memory of `scratch`. The first is the compute stream, the
  /// others follow the work that is on it now.
  std::vector<Lane> fork(std::size_t products, Scratch& scratch);
  /// Makes the compute stream wait for these lanes.
  void join(std::span<const Lane> lanes);

 private:
  Device& device_;
  std::vector<std::unique_ptr<Stream>> beside_;
};

}  // namespace axonn::cuda
