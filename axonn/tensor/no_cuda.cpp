// Stands in for cuda/ where the library is built without CUDA.
#include "axonn/base/check.h"
#include "axonn/tensor/cuda_device.h"

namespace axonn {

CudaStatus cuda_status() {
  return {.trouble =
              "this build has no CUDA backend: configure with -DAXONN_CUDA=ON where nvcc, cuBLASLt "
              "and NCCL are (docs/gpus.md)"};
}

std::unique_ptr<Device> make_cuda_device(int) { refuse("cuda: ", cuda_status().trouble); }

}  // namespace axonn
