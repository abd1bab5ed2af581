#include "axonn/compute/tensor/gpu/runtime.cuh"

namespace axonn {

namespace cuda {

namespace {

/// Formats 13000 as "13.0".
std::string version_text(int version) { return concat(version / 1000, '.', version % 1000 / 10); }

}  // namespace

std::string toolkit_version() { return version_text(CUDART_VERSION); }

std::string driver_version() {
  int driver = 0;
  return cudaDriverGetVersion(&driver) == cudaSuccess && driver > 0 ? version_text(driver) : "";
}

CudaGpu gpu_of(int index) {
  cudaDeviceProp properties{};
  check("cudaGetDeviceProperties", cudaGetDeviceProperties(&properties, index));
  return {.index = index,
          .name = properties.name,
          .uuid = uuid_text(properties.uuid.bytes),
          .architecture = concat("compute capability ", properties.major, '.', properties.minor),
          .build_for = concat("AXONN_CUDA_ARCH=", properties.major, properties.minor, "-real"),
          .capability = 10 * properties.major + properties.minor,
          .multiprocessors = properties.multiProcessorCount,
          .memory_bytes = static_cast<std::int64_t>(properties.totalGlobalMem),
          .emulated = std::string_view(properties.name) == "Emulated GPU"};
}

bool is_on_gpu(const void* memory) {
  cudaPointerAttributes attributes{};
  check("cudaPointerGetAttributes", cudaPointerGetAttributes(&attributes, memory));
  return attributes.type == cudaMemoryTypeDevice;
}

}  // namespace cuda

const GpuPlatform* gpu_platform() { return &kCuda; }

}  // namespace axonn
