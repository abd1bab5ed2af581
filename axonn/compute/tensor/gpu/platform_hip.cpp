#include <unistd.h>

#include "axonn/compute/tensor/gpu/runtime.cuh"

namespace axonn {

namespace cuda {

namespace {

/// Formats 60200000 as "6.2".
std::string version_text(int version) {
  return concat(version / 10'000'000, '.', version / 100'000 % 100);
}

/// Whether the attributes are of GPU memory. The field is `type` since HIP 6, `memoryType` before.
template <typename Attributes>
bool is_of_gpu(const Attributes& attributes) {
  if constexpr (requires { attributes.type; })
    return attributes.type == hipMemoryTypeDevice;
  else
    return attributes.memoryType == hipMemoryTypeDevice;
}

}  // namespace

std::string toolkit_version() { return version_text(HIP_VERSION); }

std::string driver_version() {
  if (::access("/dev/kfd", F_OK) != 0)
    return {};  // the runtime reports a version even without a driver
  int version = 0;
  return hipDriverGetVersion(&version) == hipSuccess && version > 0 ? version_text(version) : "";
}

CudaGpu gpu_of(int index) {
  hipDeviceProp_t properties{};
  check("hipGetDeviceProperties", hipGetDeviceProperties(&properties, index));
  hipUUID uuid{};
  check("hipDeviceGetUuid", hipDeviceGetUuid(&uuid, index));
  char bus[16] = "";  // "0000:c1:00.0"
  check("hipDeviceGetPCIBusId", hipDeviceGetPCIBusId(bus, sizeof bus, index));
  const std::string full = properties.gcnArchName,  // "gfx90a:sramecc+:xnack-"
      architecture = full.substr(0, full.find(':')), name = properties.name;
  return {.index = index,
          .name = name.empty() ? concat("AMD GPU ", architecture) : name,
          // Both parts: the two halves of a GPU may share one UUID, and buses repeat on every host.
          .uuid = concat(uuid_text(uuid.bytes), '-', bus),
          .architecture = architecture,
          .build_for = concat("AXONN_HIP_ARCH=", architecture),
          .multiprocessors = properties.multiProcessorCount,
          .memory_bytes = static_cast<std::int64_t>(properties.totalGlobalMem)};
}

bool is_on_gpu(const void* memory) {
  hipPointerAttribute_t attributes{};
  const hipError_t status = hipPointerGetAttributes(&attributes, memory);
  if (status == hipErrorInvalidValue) {  // host memory that is unknown to HIP
    cudaGetLastError();
    return false;
  }
  check("hipPointerGetAttributes", status);
  return is_of_gpu(attributes);
}

}  // namespace cuda

const GpuPlatform* gpu_platform() { return &kHip; }

}  // namespace axonn
