#include "axonn/tensor/card_platform.h"

#include <gmock/gmock.h>

using namespace axonn;
using testing::AllOf;
using testing::HasSubstr;
using testing::StartsWith;

TEST(CardPlatform, SaysOfAMachineWithoutACardWhyInItsMakersWords) {
  EXPECT_EQ(trouble_of(kCuda, {.built_with = "13.0"}),
            "there is no NVIDIA driver; take parallelism.device = \"cpu\", or start it where there "
            "is one");
  EXPECT_THAT(trouble_of(kHip, {.built_with = "6.2"}), StartsWith("there is no AMD driver; take"));
  EXPECT_THAT(trouble_of(kHip, {.built_with = "6.2", .driver = "6.2", .error = "no device"}),
              AllOf(HasSubstr("no device"), HasSubstr("ROCR_VISIBLE_DEVICES"),
                    HasSubstr("HIP_VISIBLE_DEVICES"), HasSubstr("parallelism.device = \"cpu\"")));
  EXPECT_THAT(trouble_of(kCuda, {.built_with = "13.0", .driver = "12.2", .too_old = true}),
              AllOf(HasSubstr("CUDA up to 12.2"), HasSubstr("of 13.0"), HasSubstr("newer driver")));
}

TEST(CardPlatform, ABuildForOtherCardsSaysWhatItTakesAndHowToBuildWhatWasAskedFor) {
  EXPECT_EQ(trouble_of_build(kHip, &kHip), "");
  EXPECT_EQ(trouble_of_build(kCuda, &kCuda), "");
  EXPECT_THAT(trouble_of_build(kCuda, &kHip),
              AllOf(StartsWith("this build has no CUDA backend"), HasSubstr("device = \"hip\""),
                    HasSubstr("-DAXONN_CUDA=ON where nvcc, cuBLASLt and NCCL are")));
  EXPECT_THAT(trouble_of_build(kHip, &kCuda),
              AllOf(HasSubstr("NVIDIA cards: take device = \"cuda\""),
                    HasSubstr("-DAXONN_HIP=ON where ROCm with hipBLASLt and RCCL")));
  EXPECT_EQ(
      trouble_of_build(kHip, nullptr),
      "this build has no HIP backend: configure with -DAXONN_HIP=ON where ROCm with hipBLASLt "
      "and RCCL are (docs/gpus.md)");
}
