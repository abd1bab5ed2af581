// Replaces nccl.cpp and peer_kernels.cu in a build without CUDA and HIP.
#include "axonn/compute/tensor/gpu/cuda_device.h"
#include "axonn/foundation/base/check.h"
#include "axonn/ranks/comm/device/device_threads.h"
#include "axonn/ranks/comm/device/nccl.h"

namespace axonn {

std::unique_ptr<Communicator> make_nccl(Communicator&, Arena&, double, const std::string&) {
  refuse("nccl: ", cuda_status().trouble);
}

std::string nccl_version() { return {}; }

std::shared_ptr<PeerKernels> make_peer_kernels(Communicator&, Device&) { return nullptr; }

}  // namespace axonn
