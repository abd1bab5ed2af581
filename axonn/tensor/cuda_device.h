#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "axonn/tensor/device.h"

namespace axonn {

// "Cuda" is said of the cards of either maker: of NVIDIA's through CUDA, of AMD's through HIP.

/// A card that this process may use.
struct CudaCard {
  int index = 0;             ///< the runtime's, from 0, of those that the environment leaves
  std::string name;          ///< "NVIDIA H200"
  std::string uuid;          ///< the same card has the same in every process
  int major = 0, minor = 0;  ///< compute capability
  std::string architecture;  ///< "compute capability 9.0", "gfx90a"
  std::string build_for;     ///< what CMake is told to build for it: "AXONN_HIP_ARCH=gfx90a"
  int multiprocessors = 0;
  std::int64_t memory_bytes = 0;
};

/// What this build and this machine have of CUDA, or of HIP.
struct CudaStatus {
  std::string built_with;       ///< "13.0": the toolkit; "": built without
  std::string driver;           ///< "13.0": the newest that the driver runs; "": no driver
  std::vector<CudaCard> cards;  ///< in the order of their indices
  std::string trouble;          ///< why there is no card, and what to do; "": there is one
};

/// Starts the driver if there is one. Never throws.
CudaStatus cuda_status();

/// The card of that index in cuda_status().cards, with a compute stream of its own: several ranks
/// may share a card. It is used, and destroyed, by the thread that makes it, whose current device
/// the card becomes.
///
/// Copies to the host wait until all that was enqueued before is done; copies from it are enqueued,
/// from pinned memory of the device's own, so that the source may be overwritten at once.
///
/// Errors: UsageError where there is no such card, with what to do.
std::unique_ptr<Device> make_cuda_device(int index);

}  // namespace axonn
