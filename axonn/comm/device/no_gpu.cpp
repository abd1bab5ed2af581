// Replaces nccl.cpp in a build without CUDA and HIP.
#include "axonn/base/check.h"
#include "axonn/comm/device/nccl.h"
#include "axonn/tensor/cuda/cuda_device.h"

namespace axonn {

std::unique_ptr<Communicator> make_nccl(Communicator&, Device&, double) {
  refuse("nccl: ", cuda_status().trouble);
}

std::string nccl_version() { return {}; }

bool have_own_gpus(Communicator&, const Device&) { return false; }

}  // namespace axonn
