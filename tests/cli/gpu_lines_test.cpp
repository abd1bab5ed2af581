#include <gmock/gmock.h>

#include "axonn/cli/info.h"

using namespace axonn;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::Pair;

namespace {

std::string works(const CudaGpu&) { return ""; }

}  // namespace

TEST(GpuLines, UseTheTermsOfTheGpusVendor) {
  const CudaGpu mi250x = {.index = 1,
                          .name = "AMD Instinct MI250X",
                          .architecture = "gfx90a",
                          .multiprocessors = 110,
                          .memory_bytes = std::int64_t{64} << 30};
  const CudaStatus status = {.built_with = "6.2", .driver = "6.2", .gpus = {mi250x}};
  const std::string gpu =
      "GPU 1: AMD Instinct MI250X, gfx90a, 110 compute units, 64.00GiB of memory; ";
  EXPECT_THAT(gpu_lines(&kHip, status, works),
              ElementsAre(Pair("hip", "the driver supports HIP up to 6.2"),
                          Pair("hip", gpu + "passes the self-test")));
  const auto fails = [](const CudaGpu&) { return "it is on fire"; };
  EXPECT_THAT(gpu_lines(&kHip, status, fails),
              ElementsAre(testing::_, Pair("hip", gpu + "does NOT work: it is on fire")));
}

TEST(GpuLines, SayThatThereIsNoGpuOrNoGpuSupportInTheBuild) {
  EXPECT_THAT(gpu_lines(&kHip, {.built_with = "6.2", .trouble = "there is no AMD driver"}, works),
              ElementsAre(Pair("hip", "no GPU: there is no AMD driver")));
  EXPECT_THAT(gpu_lines(nullptr, {.trouble = "this build has none"}, works),
              ElementsAre(Pair("GPUs", HasSubstr("this build has none"))));
}
