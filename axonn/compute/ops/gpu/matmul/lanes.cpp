#include "axonn/compute/ops/gpu/matmul/lanes.h"

namespace axonn::cuda {

std::vector<Lane> ProductLanes::fork(std::size_t products, Scratch& scratch) {
  const std::int64_t wanted = lanes_for(products);
  char* memory = scratch.take<char>(wanted * kLaneBytes);
  std::vector<Lane> lanes;
  const auto add = [&](Stream& stream) {
    lanes.push_back({stream, memory, memory + kWorkspaceBytes});
    memory += kLaneBytes;
  };
  add(device_.compute());
  if (wanted == 1) return lanes;
  while (std::ssize(beside_) + 1 < wanted)
    beside_.push_back(device_.make_stream(StreamPriority::normal));
  const auto before = device_.compute().record();
  for (std::int64_t i = 1; i < wanted; ++i) {
    beside_[i - 1]->wait(*before);
    add(*beside_[i - 1]);
  }
  return lanes;
}

void ProductLanes::join(std::span<const Lane> lanes) {
  for (const Lane& lane : lanes.subspan(1)) device_.compute().wait(*lane.stream.record());
}

}  // namespace axonn::cuda
