#include "axonn/compute/tensor/gpu/gpu_platform.h"

#include <algorithm>
#include <cstdlib>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <unistd.h>

#include "axonn/compute/tensor/gpu/cuda_device.h"

using namespace axonn;
using testing::AllOf;
using testing::HasSubstr;
using testing::StartsWith;

TEST(GpuPlatform, ExplainsAMissingGpuInTheTermsOfItsMaker) {
  EXPECT_EQ(trouble_of(kCuda, {.built_with = "13.0"}),
            "there is no NVIDIA driver; set parallelism.device = \"cpu\", or run on a machine that "
            "has one");
  EXPECT_THAT(trouble_of(kHip, {.built_with = "6.2"}), StartsWith("there is no AMD driver; set"));
  EXPECT_THAT(trouble_of(kHip, {.built_with = "6.2", .driver = "6.2", .error = "no device"}),
              AllOf(HasSubstr("(hipGetDeviceCount: no device;"), HasSubstr("ROCR_VISIBLE_DEVICES"),
                    HasSubstr("HIP_VISIBLE_DEVICES"), HasSubstr("parallelism.device = \"cpu\"")));
  EXPECT_THAT(
      trouble_of(kCuda, {.built_with = "13.0", .driver = "12.2", .too_old = true}),
      AllOf(HasSubstr("CUDA up to 12.2"), HasSubstr("uses 13.0"), HasSubstr("newer driver")));
}

TEST(GpuPlatform, HasItsOwnNamesOfFunctions) {
  EXPECT_EQ(function_name(kCuda, "cudaMalloc"), "cudaMalloc");
  EXPECT_EQ(function_name(kHip, "cudaMalloc"), "hipMalloc");
  EXPECT_EQ(function_name(kHip, "cublasLtMatmul"), "hipblasLtMatmul");
  EXPECT_EQ(function_name(kHip, "hipDeviceGetUuid"), "hipDeviceGetUuid");
}

TEST(GpuPlatform, ABuildForOtherGpusSaysWhatItSupportsAndHowToBuildForTheWantedOnes) {
  EXPECT_EQ(trouble_of_build(kHip, &kHip), "");
  EXPECT_EQ(trouble_of_build(kCuda, &kCuda), "");
  EXPECT_THAT(trouble_of_build(kCuda, &kHip),
              AllOf(StartsWith("this build has no CUDA backend"), HasSubstr("device = \"hip\""),
                    HasSubstr("-DAXONN_CUDA=ON on a machine with nvcc, cuBLASLt and NCCL")));
  EXPECT_THAT(trouble_of_build(kHip, &kCuda),
              AllOf(HasSubstr("NVIDIA GPUs: set device = \"cuda\""),
                    HasSubstr("-DAXONN_HIP=ON on a machine with ROCm with hipBLASLt and RCCL")));
  EXPECT_EQ(
      trouble_of_build(kHip, nullptr),
      "this build has no HIP backend: configure with -DAXONN_HIP=ON on a machine with ROCm with "
      "hipBLASLt and RCCL (docs/gpus.md)");
}

TEST(GpuPlatform, HasAQueueForEachStreamOfARank) {
  // Compute, three lanes of products and the default stream; world, x, y, z, data, context and
  // experts, whose streams have another priority.
  EXPECT_GE(std::atoi(kCuda.queue_count), 5 + 7);
  EXPECT_GE(std::atoi(kHip.queue_count), std::max(5, 7)) << "of each priority";
}

TEST(GpuPlatform, LookingForGpusLeavesTheEnvironmentAlone) {
  const auto variables = [] {
    std::vector<std::string> all;
    for (char** variable = environ; *variable; ++variable) all.emplace_back(*variable);
    return all;
  };
  const std::vector<std::string> before = variables();
  const CudaStatus ignored = cuda_status();
  // A thread that reads the environment while another one's lookup changed it would crash.
  EXPECT_EQ(variables(), before);
  if (gpu_platform()) {
    EXPECT_NE(std::getenv(gpu_platform()->queues), nullptr);
    EXPECT_NE(std::getenv("NCCL_LAUNCH_ORDER_IMPLICIT"), nullptr);
  }
}
