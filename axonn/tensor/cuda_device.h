#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "axonn/tensor/device.h"

namespace axonn {

/// An NVIDIA card that this process may use.
struct CudaCard {
  int index = 0;             ///< CUDA's, from 0, of those that CUDA_VISIBLE_DEVICES leaves
  std::string name;          ///< "NVIDIA H200"
  std::string uuid;          ///< the same card has the same in every process
  int major = 0, minor = 0;  ///< compute capability
  int multiprocessors = 0;
  std::int64_t memory_bytes = 0;
};

/// What this build and this machine have of CUDA.
struct CudaStatus {
  std::string built_with;       ///< "13.0": the toolkit; "": built without CUDA
  std::string driver;           ///< "13.0": the newest CUDA that the driver runs; "": no driver
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
