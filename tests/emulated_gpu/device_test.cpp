// The device of the CUDA backend, on emulated GPUs.
#include <vector>

#include <cuda_runtime_api.h>
#include <gtest/gtest.h>

#include "axonn/base/check.h"
#include "axonn/tensor/cuda/cuda_device.h"

#include "tests/emulated_gpu/platform.h"

using namespace axonn;

TEST(CudaDevice, KeepsPinnedMemoryUntilItsCopiesAreDone) {
  for (int i = 0; i < 20; ++i) {
    auto device = make_cuda_device(0);
    const std::vector<float> values(64, 1);
    void* const memory = device->allocate(256);
    for (int n = 0; n < 3; ++n) device->copy_from_host(memory, values.data(), 256);
    device.reset();
    EXPECT_EQ(cudaFree(memory), cudaSuccess);
  }
}

TEST(CudaDevice, SynchronizingAStreamWaitsForItsWork) {
  const auto device = make_cuda_device(0);
  void* const memory = device->allocate(4);
  for (int i = 0; i < 20; ++i) {
    for (int n = 0; n < 5; ++n) device->fill_zero(memory, 4);
    const auto done = device->compute().record();
    device->compute().synchronize();
    EXPECT_TRUE(done->done());
  }
  device->release(memory, 4);
}

TEST(CudaDevice, ReportsAnErrorThatTheStreamHasWhenItsValuesAreRead) {
  const auto device = make_cuda_device(0);
  void* const memory = device->allocate(4);
  device->fill_zero(memory, 4);
  float value = 1;
  emulated_gpu::fail_call("cudaStreamSynchronize", 1);
  EXPECT_THROW(device->copy_to_host(&value, memory, 4), Error);
  device->copy_to_host(&value, memory, 4);
  EXPECT_EQ(value, 0);
  device->release(memory, 4);
}
