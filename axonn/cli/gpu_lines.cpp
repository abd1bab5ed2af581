#include "axonn/cli/gpu_lines.h"

#include <fmt/core.h>

#include "axonn/base/log.h"

namespace axonn {

std::vector<std::pair<std::string_view, std::string>> gpu_lines(const GpuPlatform* platform,
                                                                const CudaStatus& status) {
  if (!platform) return {{"GPUs", "none: " + status.trouble}};
  std::vector<std::pair<std::string_view, std::string>> lines;
  const auto say = [&](std::string text) { lines.emplace_back(platform->device, std::move(text)); };
  if (!status.driver.empty())
    say(fmt::format("the driver supports {} up to {}", platform->name, status.driver));
  if (!status.trouble.empty()) say("no GPU: " + status.trouble);
  for (const CudaGpu& gpu : status.gpus)
    say(fmt::format("GPU {}: {}, {}, {} {}, {} of memory", gpu.index, gpu.name, gpu.architecture,
                    gpu.multiprocessors, platform->units, format_bytes(gpu.memory_bytes)));
  return lines;
}

}  // namespace axonn
