// Stands in for cuda/ where the library is built without CUDA and HIP.
#include "axonn/base/check.h"
#include "axonn/tensor/card_platform.h"
#include "axonn/tensor/cuda_device.h"

namespace axonn {

const CardPlatform* card_platform() { return nullptr; }

CudaStatus cuda_status() {
  return {.trouble = concat("this build has no backend for cards: configure with -D", kCuda.option,
                            "=ON where ", kCuda.needs, " are, or with -D", kHip.option,
                            "=ON where ", kHip.needs, " are (docs/gpus.md)")};
}

std::unique_ptr<Device> make_cuda_device(int) { refuse(cuda_status().trouble); }

}  // namespace axonn
