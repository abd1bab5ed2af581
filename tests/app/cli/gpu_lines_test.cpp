#include <gmock/gmock.h>

#include "axonn/app/cli/info.h"

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

TEST(NetworkLines, SayWhatAppliesOnOneHostAndOnSeveral) {
  const NetworkFacts alps = {
      .gpu = "NVIDIA GH200 120GB",
      .collectives = "NCCL",
      .version = "2.28.3",
      .slingshot = true,
      .variable = [](const char* name) -> const char* {
        const std::string_view set = name;
        return set == "NCCL_PROTO" ? "LL128" : set == "NCCL_LAUNCH_ORDER_IMPLICIT" ? "0" : nullptr;
      }};
  EXPECT_THAT(
      network_lines(alps, {{"eth0", "Ethernet", 0}, {"hsn0", "Slingshot", 25e9}}),
      ElementsAre(Pair("network", "eth0: Ethernet, speed unknown"),
                  Pair("network", "hsn0: Slingshot, 25 GB/s"),
                  Pair("", testing::StartsWith("NCCL_LAUNCH_ORDER_IMPLICIT is \"0\"")),
                  Pair("", testing::StartsWith("on several hosts: refused: NCCL_PROTO is \"LL")),
                  Pair("", testing::StartsWith("on several hosts: NCCL_NET is not set"))));
  EXPECT_THAT(network_lines({.slingshot = true}, {}), testing::IsEmpty()) << "no GPU";
}
