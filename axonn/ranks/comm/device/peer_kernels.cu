#include <algorithm>
#include <vector>

#include "axonn/compute/tensor/gpu/kernel.cuh"
#include "axonn/ranks/comm/device/peer_kernels.h"

namespace axonn {

namespace {

constexpr int kThreads = 512;
/// Maximum blocks of a launch. Each thread has 16 bytes of several peers in flight, and enough
/// multiprocessors remain for the compute that overlaps with it.
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
    int before = 0;
    cuda::check("cudaGetDevice", cudaGetDevice(&before));
    cuda::check("cudaSetDevice", cudaSetDevice(device_));
    try {
      f();
    } catch (...) {
      cudaSetDevice(before);
      throw;
    }
    cuda::check("cudaSetDevice", cudaSetDevice(before));
  }

  void enqueue(Stream& stream, const PeerWork& work) override {
    peer::with_kernel_of(work, [&]<typename Kernel>(const Kernel& kernel, std::int64_t items) {
      const auto blocks =
          std::clamp<std::int64_t>((items + kThreads - 1) / kThreads, 1, kMostBlocks);
      cuda::launch_kernel(cuda::handle_of(stream), static_cast<unsigned>(blocks), kThreads,
                          run_peer<Kernel>, kernel);
    });
  }

 private:
  int device_;
};

/// Gives this rank's GPU access to the memory of another. Returns false if that is not possible.
bool reach(int mine, int other) {
  if (mine == other) return true;
  int can = 0;
  cuda::check("cudaDeviceCanAccessPeer", cudaDeviceCanAccessPeer(&can, mine, other));
  if (can == 0) return false;
  const cudaError_t status = cudaDeviceEnablePeerAccess(other, 0);
  if (status == cudaErrorPeerAccessAlreadyEnabled)
    cudaGetLastError();  // another rank on this GPU has enabled it; clears the error
  else
    cuda::check("cudaDeviceEnablePeerAccess", status);
  return true;
}

}  // namespace

std::shared_ptr<PeerKernels> make_peer_kernels(Communicator& host, Device& device) {
  constexpr std::int32_t kNoGpu = -1;
  std::int32_t mine = kNoGpu, all_reached = host.size() <= kMostPeers ? 1 : 0;
  if (dynamic_cast<cuda::CudaStream*>(&device.compute()))
    cuda::check("cudaGetDevice", cudaGetDevice(&mine));
  std::vector<std::int32_t> gpus(host.size());
  host.all_gather(buffer(std::span(gpus)), buffer(std::span(&mine, 1)), "GPUs").wait();
  if (std::ranges::count(gpus, kNoGpu) > 0) return nullptr;
  for (const std::int32_t other : gpus)
    if (!reach(mine, other)) all_reached = 0;
  host.all_reduce(buffer(std::span(&all_reached, 1)), "peer access", ReduceOp::min).wait();
  if (all_reached == 0) return nullptr;
  return std::make_shared<CudaPeerKernels>(mine);
}

}  // namespace axonn
