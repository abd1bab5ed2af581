// Whether cuDNN's fused kernels take the graphs of attention: plans for a card that is not here,
// from its properties, with a driver that runs nothing (no_driver.cpp).
#include "axonn/ops/cuda/cudnn_plan.cuh"

#include <gmock/gmock.h>

#include "axonn/ops/cuda/cudnn_attention.h"

using namespace axonn;
using cuda::CudnnPlan;

namespace {

/// An H100 SXM, as cuDNN writes down a card.
constexpr const char* kHopper = R"({
  "deviceName": "NVIDIA H100 80GB HBM3", "deviceVer": 900, "driverVer": 13000, "cudaDeviceId": 0,
  "multiProcessorCount": 132, "warpSize": 32, "maxCtasPerSM": 32, "regsPerBlock": 65536,
  "maxRegistersPerSM": 65536, "maxThreadsPerBlock": 1024, "maxThreadsPerSM": 2048,
  "maxGridSize": [2147483647, 65535, 65535], "maxBlockSize": [1024, 1024, 64],
  "maxSharedMemoryPerBlock": 49152, "maxSharedMemoryPerBlockOptin": 232448,
  "reservedSharedMemoryPerBlock": 1024, "totalGlobalMem": 85045018624, "l2CacheSize": 52428800,
  "smClockRateKHz": 1980000, "memClockRateKHz": 2619000, "pciDeviceId": 0, "isTccDriver": 0,
  "supportCoopLaunch": 1})";

struct Model {
  const char* name;
  std::int64_t sequences, positions, heads, kv_heads, head_dim;
};
constexpr Model kGpt2Small{"GPT-2 124M", 32, 1024, 12, 12, 64};
constexpr Model kGpt2Large{"GPT-2 1.5B", 16, 1024, 25, 25, 64};
constexpr Model kLlama{"Llama 8B", 2, 4096, 32, 8, 128};

/// Queries, keys and values as columns of one matrix, as models have them.
AttentionGraphShape shape_of(const Model& m) {
  const std::int64_t all = (m.heads + 2 * m.kv_heads) * m.head_dim, q = m.heads * m.head_dim;
  return {.sequences = m.sequences,
          .positions = m.positions,
          .heads = m.heads,
          .kv_heads = m.kv_heads,
          .head_dim = m.head_dim,
          .q_stride = all,
          .k_stride = all,
          .v_stride = all,
          .out_stride = q,
          .stats_stride = m.heads,
          .d_out_stride = q,
          .d_q_stride = all,
          .d_k_stride = all,
          .d_v_stride = all};
}

/// Forward; backward with sums as blocks come; backward in order, in pieces.
std::vector<AttentionGraphShape> passes(AttentionGraphShape shape) {
  std::vector<AttentionGraphShape> all = {shape};
  shape.backward = true;
  all.push_back(shape);
  shape.ordered = true;
  all.push_back(graph_piece(shape, cuda::CudnnAttention::kPieceBytes));
  return all;
}

class CudnnPlanTest : public testing::Test {
 protected:
  std::optional<CudnnPlan> build(const AttentionGraphShape& shape) {
    return CudnnPlan::build(attention_graph(shape), {.properties = &hopper_}, true, &why_);
  }
  void expect_plans(const AttentionGraphShape& shape) {
    for (const AttentionGraphShape& pass : passes(shape)) {
      const auto plan = build(pass);
      EXPECT_TRUE(plan) << (pass.backward ? "backward" : "forward") << (pass.ordered ? ", " : "")
                        << (pass.ordered ? "ordered" : "") << ": " << why_;
    }
  }

  cuda::CudnnDescriptor hopper_ = cuda::cudnn_card(kHopper);
  std::string why_;
};

}  // namespace

TEST_F(CudnnPlanTest, IsFoundOnHopperForTheShapesOfModelsForwardAndBackward) {
  for (const Model& model : {kGpt2Small, kGpt2Large, kLlama}) {
    SCOPED_TRACE(model.name);
    expect_plans(shape_of(model));
  }
}

TEST_F(CudnnPlanTest, IsFoundOnHopperForDocumentsInSequences) {
  for (const Model& model : {kGpt2Small, kGpt2Large, kLlama}) {
    SCOPED_TRACE(model.name);
    AttentionGraphShape shape = shape_of(model);
    shape.documents = true;
    expect_plans(shape);
  }
}

TEST_F(CudnnPlanTest, IsFoundOnHopperForWindowsAndForLengthsThatNoTileDivides) {
  AttentionGraphShape shape = shape_of(kLlama);
  shape.window = 1000;
  shape.documents = true;
  expect_plans(shape);
  AttentionGraphShape odd = shape_of({"odd", 3, 150, 6, 2, 64});
  expect_plans(odd);
}

TEST_F(CudnnPlanTest, InOrderNeedsTheMemoryOfAPieceAlone) {
  const AttentionGraphShape pass = passes(shape_of(kLlama)).back();
  const auto plan = build(pass);
  ASSERT_TRUE(plan) << why_;
  // The gradients of scores in bf16, and those of all query heads' keys and values.
  const std::int64_t scores = 2 * pass.sequences * pass.heads * pass.positions * pass.positions,
                     heads = 2 * 2 * pass.sequences * pass.heads * pass.positions * pass.head_dim;
  EXPECT_GE(plan->workspace_bytes(), scores);
  EXPECT_LE(plan->workspace_bytes(), scores + heads + (1 << 20));
}

TEST_F(CudnnPlanTest, IsNotFoundForHeadsThatAreNotAlignedAndSaysWhy) {
  EXPECT_FALSE(build(shape_of({"narrow", 1, 1024, 2, 2, 12})));
  EXPECT_THAT(why_, testing::StartsWith("no engine takes the graph: "));
  EXPECT_THAT(why_, testing::HasSubstr("not a multiple of 8"));
}

TEST(CudnnCard, WithoutAPropertyIsRefusedWithItsName) {
  EXPECT_THAT([] { cuda::cudnn_card(R"({"warpSize": 32})"); },
              testing::ThrowsMessage<Error>(testing::HasSubstr("maxGridSize")));
}
