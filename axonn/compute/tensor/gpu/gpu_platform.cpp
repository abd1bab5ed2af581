#include "axonn/compute/tensor/gpu/gpu_platform.h"

#include <utility>

#include "axonn/foundation/base/check.h"

namespace axonn {

std::string function_name(const GpuPlatform& platform, std::string_view cuda) {
  if (platform.device == kHip.device)
    for (const auto& [prefix, replaced] : {std::pair{"cuda", 4}, {"cublas", 2}})
      if (cuda.starts_with(prefix)) return concat("hip", cuda.substr(replaced));
  return std::string(cuda);
}

std::string trouble_of(const GpuPlatform& platform, const NoGpu& answer) {
  const std::string go_on = "; set parallelism.device = \"cpu\", or run on a machine that has one";
  if (answer.driver.empty()) return concat("there is no ", platform.maker, " driver", go_on);
  if (answer.too_old)
    return concat("the driver supports ", platform.name, " up to ", answer.driver,
                  ", but this build uses ", answer.built_with, "; build with a supported ",
                  platform.name, ", or install a newer driver");
  return concat("the driver finds no GPU (", function_name(platform, "cudaGetDeviceCount"), ": ",
                answer.error, "; ", platform.visible_gpus, " may hide it)", go_on);
}

std::string trouble_of_build(const GpuPlatform& wanted, const GpuPlatform* built) {
  if (built && built->device == wanted.device) return {};
  const std::string other = built ? concat("; it supports ", built->maker, " GPUs: set device = \"",
                                           built->device, "\" for those, or")
                                  : concat(":");
  return concat("this build has no ", wanted.name, " backend", other, " configure with -D",
                wanted.option, "=ON on a machine with ", wanted.needs, " (docs/gpus.md)");
}

}  // namespace axonn
