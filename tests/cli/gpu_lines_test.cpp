#include <gmock/gmock.h>

#include "axonn/cli/info.h"

using namespace axonn;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::Pair;

TEST(GpuLines, UseTheTermsOfTheGpusVendor) {
  const CudaGpu mi250x = {.index = 1,
                          .name = "AMD Instinct MI250X",
                          .architecture = "gfx90a",
                          .multiprocessors = 110,
                          .memory_bytes = std::int64_t{64} << 30};
  EXPECT_THAT(gpu_lines(&kHip, {.built_with = "6.2", .driver = "6.2", .gpus = {mi250x}}),
              ElementsAre(Pair("hip", "the driver supports HIP up to 6.2"),
                          Pair("hip",
                               "GPU 1: AMD Instinct MI250X, gfx90a, 110 compute units, "
                               "64.00GiB of memory")));
}

TEST(GpuLines, SayThatThereIsNoGpuOrNoGpuSupportInTheBuild) {
  EXPECT_THAT(gpu_lines(&kHip, {.built_with = "6.2", .trouble = "there is no AMD driver"}),
              ElementsAre(Pair("hip", "no GPU: there is no AMD driver")));
  EXPECT_THAT(gpu_lines(nullptr, {.trouble = "this build has none"}),
              ElementsAre(Pair("GPUs", HasSubstr("this build has none"))));
}
