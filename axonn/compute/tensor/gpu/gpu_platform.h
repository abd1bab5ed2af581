#pragma once

#include <string>
#include <string_view>

namespace axonn {

/// A GPU platform that a build can support. The names are for messages.
struct GpuPlatform {
  std::string_view device;        ///< value of parallelism.device that selects these GPUs
  std::string_view name;          ///< "CUDA"
  std::string_view maker;         ///< "NVIDIA"
  std::string_view units;         ///< a GPU's processors: "multiprocessors"
  std::string_view collectives;   ///< library of collectives: "NCCL"
  std::string_view visible_gpus;  ///< environment variables that can hide GPUs
  std::string_view option;        ///< CMake option that builds for these GPUs
  std::string_view needs;         ///< software that the option requires
  /// An environment variable with the number of a GPU's queues, and the number to set. Streams that
  /// share a queue wait for each other.
  const char *queues, *queue_count;
};

inline constexpr GpuPlatform kCuda = {.device = "cuda",
                                      .name = "CUDA",
                                      .maker = "NVIDIA",
                                      .units = "multiprocessors",
                                      .collectives = "NCCL",
                                      .visible_gpus = "CUDA_VISIBLE_DEVICES",
                                      .option = "AXONN_CUDA",
                                      .needs = "nvcc, cuBLASLt and NCCL",
                                      // as many as it has
                                      .queues = "CUDA_DEVICE_MAX_CONNECTIONS",
                                      .queue_count = "32"};
inline constexpr GpuPlatform kHip = {.device = "hip",
                                     .name = "HIP",
                                     .maker = "AMD",
                                     .units = "compute units",
                                     .collectives = "RCCL",
                                     .visible_gpus =
                                         "ROCR_VISIBLE_DEVICES or "
                                         "HIP_VISIBLE_DEVICES",
                                     .option = "AXONN_HIP",
                                     .needs = "ROCm with hipBLASLt and RCCL",
                                     // of each priority; a rank has up to 7 groups
                                     .queues = "GPU_MAX_HW_QUEUES",
                                     .queue_count = "8"};

/// This build's platform; null in a build without GPU support.
const GpuPlatform* gpu_platform();

/// The platform's name of a function of CUDA or cuBLASLt: with HIP "hipMalloc" for "cudaMalloc".
/// Returns other names as they are.
std::string function_name(const GpuPlatform& platform, std::string_view cuda);

/// The driver's answer when it finds no GPU.
struct NoGpu {
  std::string built_with;  ///< toolkit version of this build: "13.0"
  std::string driver;      ///< newest version that the driver supports: "12.4"; "": no driver
  std::string error;       ///< of cudaGetDeviceCount
  bool too_old = false;    ///< whether the driver is too old for this build
};

/// Explains why no GPU is available, with the remedy.
std::string trouble_of(const GpuPlatform& platform, const NoGpu& answer);

/// Explains why a build for `built` (null: no GPU support) cannot use the GPUs of `wanted`, with
/// the remedy. Empty if it can.
std::string trouble_of_build(const GpuPlatform& wanted, const GpuPlatform* built);

}  // namespace axonn
