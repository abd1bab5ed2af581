// Replaces gpu/ in a build without CUDA and HIP.
#include "axonn/compute/tensor/gpu/cuda_device.h"
#include "axonn/compute/tensor/gpu/gpu_platform.h"
#include "axonn/foundation/base/check.h"

namespace axonn {

const GpuPlatform* gpu_platform() { return nullptr; }

CudaStatus cuda_status() {
  return {.trouble = concat("this build has no GPU backend: configure with -D", kCuda.option,
                            "=ON on a machine with ", kCuda.needs, ", or with -D", kHip.option,
                            "=ON on a machine with ", kHip.needs, " (docs/gpus.md)")};
}

std::unique_ptr<Device> make_cuda_device(int) { refuse(cuda_status().trouble); }

}  // namespace axonn
