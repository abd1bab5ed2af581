#include <algorithm>
#include <functional>
#include <map>
#include <string>

#include "tests/emulated_gpu/runtime.h"

namespace emulated_gpu {

namespace {

/// "float*, const float*" of the name of an instance of cudaLaunchKernel().
std::string parameters_of(const std::string& name) {
  const std::string before = "Parameters = {";
  const auto begin = name.find(before), end = name.rfind('}');
  if (begin == std::string::npos || end == std::string::npos) return name;
  return '(' + name.substr(begin + before.size(), end - begin - before.size()) + ')';
}

/// The shared memory that a kernel's launch may give, if it was asked for.
std::map<const void*, std::size_t>& permitted() {
  static std::map<const void*, std::size_t> all;
  return all;
}

}  // namespace

cudaError_t permit_shared(const void* kernel, cudaFuncAttribute attribute, int bytes) {
  return call("cudaFuncSetAttribute", [&] {
    if (attribute != cudaFuncAttributeMaxDynamicSharedMemorySize || bytes < 0 ||
        static_cast<std::size_t>(bytes) > kMostSharedBytes)
      return cudaErrorInvalidValue;
    permitted()[kernel] = static_cast<std::size_t>(bytes);
    return cudaSuccess;
  });
}

cudaError_t launch(const KernelName& of, dim3 blocks, dim3 threads, std::function<void()> thread,
                   std::size_t shared_bytes, cudaStream_t stream) {
  return call("cudaLaunchKernel", [&] {
    const auto within = [](dim3 n, unsigned x, unsigned y, unsigned z) {
      return 1 <= n.x && n.x <= x && 1 <= n.y && n.y <= y && 1 <= n.z && n.z <= z;
    };
    if (!within(blocks, 0x7fffffff, 65535, 65535) || !within(threads, 1024, 1024, 64) ||
        threads.x * threads.y * threads.z > kMostThreads)
      return cudaErrorInvalidConfiguration;
    const auto more = permitted().find(of.kernel);
    if (shared_bytes > std::max(kSharedBytes, more == permitted().end() ? 0 : more->second))
      return cudaErrorInvalidValue;
    const std::string kernel = parameters_of(of.name);
    return enqueue(stream, {.what = "kernel " + kernel, .run = [=] {
                              run_kernel(kernel, blocks, {threads, shared_bytes}, thread);
                            }});
  });
}

}  // namespace emulated_gpu
