#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "axonn/compute/tensor/device.h"

namespace axonn {

// Names with "Cuda" stand for GPUs of both makers: NVIDIA's through CUDA and AMD's through HIP.

/// A GPU that this process may use.
struct CudaGpu {
  int index = 0;             ///< the runtime's index, from 0, among the visible GPUs
  std::string name;          ///< "NVIDIA H200"
  std::string uuid;          ///< identifies the GPU; the same in every process
  std::string architecture;  ///< "compute capability 9.0", "gfx90a"
  std::string build_for;     ///< CMake setting that builds for it: "AXONN_HIP_ARCH=gfx90a"
  int capability = 0;        ///< compute capability of an NVIDIA GPU: 90; else 0
  int multiprocessors = 0;
  std::int64_t memory_bytes = 0;
  bool emulated = false;  ///< by a CPU, for tests: used only where a GPU is asked for
};

/// CUDA or HIP support of this build and this machine.
struct CudaStatus {
  std::string built_with;     ///< toolkit version: "13.0"; "": built without GPU support
  std::string driver;         ///< newest version the driver supports: "13.0"; "": no driver
  std::vector<CudaGpu> gpus;  ///< in the order of their indices
  std::string trouble;        ///< why no GPU is available, with the remedy; "": one is
};

/// Starts the driver if there is one. Before main() these variables of the environment are set,
/// unless the user has set them: GpuPlatform::queues and NCCL_LAUNCH_ORDER_IMPLICIT. Never throws.
CudaStatus cuda_status();

/// Makes the device for the GPU with that index in cuda_status().gpus, with its own compute
/// stream. Several ranks may share a GPU. The GPU becomes the current device of the calling thread,
/// which alone must use and destroy the device.
///
/// Copies to the host wait for all work that was enqueued before. Copies from the host are enqueued
/// and read the device's own pinned buffer, so the source may be overwritten as soon as they
/// return.
///
/// Throws UsageError, with the remedy, if there is no such GPU.
std::unique_ptr<Device> make_cuda_device(int index);

}  // namespace axonn
