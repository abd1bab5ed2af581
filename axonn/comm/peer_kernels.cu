#include <algorithm>
#include <vector>

#include "axonn/comm/peer_kernels.h"
#include "axonn/tensor/cuda/runtime.cuh"

namespace axonn {

namespace {

constexpr int kThreads = 512;
/// Blocks of a launch: each has 16 bytes of every peer on their way a thread, and there are enough
/// multiprocessors left for what is computed meanwhile.
constexpr std::int64_t kMostBlocks = 32;

template <typename Kernel>
__global__ void __launch_bounds__(kThreads) run_peer(const Kernel kernel) {
  const std::int64_t threads = static_cast<std::int64_t>(gridDim.x) * blockDim.x;
  kernel(static_cast<std::int64_t>(blockIdx.x) * blockDim.x + threadIdx.x, threads);
}

class CudaPeerKernels final : public PeerKernels {
 public:
  explicit CudaPeerKernels(int device) : device_(device) {}

  void on_device(const std::function<void()>& f) override {
    struct Current {
      int before = 0;
      explicit Current(int device) {
        cuda::check(cudaGetDevice(&before));
        cuda::check(cudaSetDevice(device));
      }
      ~Current() { cudaSetDevice(before); }
    };
    const Current current(device_);
    f();
  }

  void enqueue(Stream& stream, const PeerWork& work) override {
    peer::with_kernel_of(work, [&](const auto& kernel, std::int64_t items) {
      const auto blocks =
          std::clamp<std::int64_t>((items + kThreads - 1) / kThreads, 1, kMostBlocks);
      run_peer<<<static_cast<unsigned>(blocks), kThreads, 0, cuda::handle_of(stream)>>>(kernel);
      cuda::check(cudaGetLastError());
    });
  }

 private:
  int device_;
};

/// Lets this rank's card read and write the memory of another's; false where it cannot.
bool reach(int mine, int other) {
  if (mine == other) return true;
  int can = 0;
  cuda::check(cudaDeviceCanAccessPeer(&can, mine, other));
  if (can == 0) return false;
  const cudaError_t status = cudaDeviceEnablePeerAccess(other, 0);
  if (status == cudaErrorPeerAccessAlreadyEnabled)
    cudaGetLastError();  // by another rank on this card
  else
    cuda::check(status);
  return true;
}

}  // namespace

std::shared_ptr<PeerKernels> make_peer_kernels(Communicator& host, Device& device) {
  constexpr std::int32_t kNoCard = -1;
  std::int32_t mine = kNoCard, all_reached = host.size() <= kMostPeers ? 1 : 0;
  if (dynamic_cast<cuda::CudaStream*>(&device.compute())) cuda::check(cudaGetDevice(&mine));
  std::vector<std::int32_t> cards(host.size());
  host.all_gather(buffer(std::span(cards)), buffer(std::span(&mine, 1)), "cards").wait();
  if (std::ranges::count(cards, kNoCard) > 0) return nullptr;
  for (const std::int32_t other : cards)
    if (!reach(mine, other)) all_reached = 0;
  host.all_reduce(buffer(std::span(&all_reached, 1)), "cards", ReduceOp::min).wait();
  if (all_reached == 0) return nullptr;
  return std::make_shared<CudaPeerKernels>(mine);
}

}  // namespace axonn
