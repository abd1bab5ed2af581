// Whether cuDNN's fused kernels support the attention graphs. Plans are built for a GPU that is not
// present, from its properties, with a driver that runs nothing (no_driver.cpp).
#include "axonn/compute/ops/gpu/attention/cudnn_plan.cuh"

#include <gmock/gmock.h>

#include "axonn/compute/ops/gpu/attention/cudnn_attention.h"

using namespace axonn;
using cuda::CudnnPlan;

namespace {

/// The properties that differ between GPUs; all others are the same.
struct Gpu {
  const char* name;
  int version, multiprocessors, shared_bytes, cache_bytes;
};
constexpr Gpu kHopper{"NVIDIA H100 80GB HBM3", 900, 132, 232448, 52428800};
constexpr Gpu kAmpere{"NVIDIA A100-SXM4-80GB", 800, 108, 166912, 41943040};

/// The properties of a GPU in cuDNN's format.
std::string json_of(const Gpu& gpu) {
  return concat(R"({"deviceName": ")", gpu.name, R"(", "deviceVer": )", gpu.version,
                R"(, "multiProcessorCount": )", gpu.multiprocessors,
                R"(, "maxSharedMemoryPerBlockOptin": )", gpu.shared_bytes, R"(, "l2CacheSize": )",
                gpu.cache_bytes, R"(,
    "driverVer": 13000, "cudaDeviceId": 0, "warpSize": 32, "maxCtasPerSM": 32,
    "regsPerBlock": 65536, "maxRegistersPerSM": 65536, "maxThreadsPerBlock": 1024,
    "maxThreadsPerSM": 2048, "maxGridSize": [2147483647, 65535, 65535],
    "maxBlockSize": [1024, 1024, 64], "maxSharedMemoryPerBlock": 49152,
    "reservedSharedMemoryPerBlock": 1024, "totalGlobalMem": 85045018624,
    "smClockRateKHz": 1410000, "memClockRateKHz": 1593000, "pciDeviceId": 0, "isTccDriver": 0,
    "supportCoopLaunch": 1})");
}

struct Model {
  const char* name;
  std::int64_t sequences, positions, heads, kv_heads, head_dim;
};
constexpr Model kGpt2Small{"GPT-2 124M", 32, 1024, 12, 12, 64};
constexpr Model kGpt2Large{"GPT-2 1.5B", 16, 1024, 25, 25, 64};
constexpr Model kLlama{"Llama 8B", 2, 4096, 32, 8, 128};

/// The shape with queries, keys and values as columns of one matrix, as in models.
AttentionGraphShape shape_of(const Model& m) {
  const std::int64_t all = (m.heads + 2 * m.kv_heads) * m.head_dim, q = m.heads * m.head_dim;
  return {.sequences = m.sequences,
          .positions = m.positions,
          .q_rows = m.positions,
          .queries = m.positions,
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

/// Forward; backward with unordered sums; ordered backward, in pieces.
std::vector<AttentionGraphShape> passes(AttentionGraphShape shape) {
  std::vector<AttentionGraphShape> all = {shape};
  shape.backward = true;
  all.push_back(shape);
  shape.ordered = true;
  all.push_back(graph_piece(shape, kAttentionBytes).value());
  return all;
}

class CudnnPlanTest : public testing::Test {
 protected:
  std::optional<CudnnPlan> build(const AttentionGraphShape& shape) {
    const auto kind =
        shape.backward && !shape.ordered ? cuda::PlanKind::any : cuda::PlanKind::fixed;
    return CudnnPlan::build(attention_graph(shape), {.properties = &gpu_}, kind, &why_);
  }
  /// Expects plans with the workspace that graph_bytes() has for Hopper.
  void expect_plans(const AttentionGraphShape& shape) {
    for (const AttentionGraphShape& pass : passes(shape)) {
      SCOPED_TRACE(pass.ordered ? "backward, ordered" : pass.backward ? "backward" : "forward");
      const auto plan = build(pass);
      ASSERT_TRUE(plan) << why_;
      EXPECT_EQ(plan->workspace_bytes(), graph_bytes(pass).library);
    }
  }

  cuda::CudnnDescriptor gpu_ = cuda::cudnn_gpu(json_of(kHopper));
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

TEST_F(CudnnPlanTest, IsFoundOnHopperForWindowsAndForLengthsThatAreNotWholeTiles) {
  AttentionGraphShape shape = shape_of(kLlama);
  shape.window = 1000;
  shape.documents = true;
  expect_plans(shape);
  for (const Model& odd : {Model{"odd", 3, 150, 6, 2, 64}, Model{"one head", 1, 1030, 4, 1, 128},
                           Model{"narrow", 1, 1000, 4, 4, 32}, Model{"wide", 1, 64, 4, 2, 80},
                           Model{"long", 1, 12288, 4, 1, 128}}) {
    SCOPED_TRACE(odd.name);
    expect_plans(shape_of(odd));
  }
}

TEST_F(CudnnPlanTest, IsFoundOnAmpereExceptForTheGradientsOfDocuments) {
  gpu_ = cuda::cudnn_gpu(json_of(kAmpere));
  AttentionGraphShape shape = shape_of(kLlama);
  for (const AttentionGraphShape& pass : passes(shape)) EXPECT_TRUE(build(pass)) << why_;
  shape.documents = true;
  const std::vector<AttentionGraphShape> all = passes(shape);
  EXPECT_TRUE(build(all[0])) << why_;
  for (const int backward : {1, 2}) {
    EXPECT_FALSE(build(all[backward]));
    EXPECT_THAT(why_, testing::HasSubstr("vectors are supported on SM80"));
  }
}

TEST_F(CudnnPlanTest, IsFoundForRunsOfQueriesInsideOfSequences) {
  for (const std::int64_t window : {0, 700})
    for (const bool documents : {false, true}) {
      AttentionGraphShape shape = shape_of(kLlama);
      shape.window = window;
      shape.documents = documents;
      shape.q_rows = 1024;
      shape.queries = 512;
      shape.first_position = 1536;
      shape.adds_keys = true;
      expect_plans(shape);
    }
}

TEST_F(CudnnPlanTest, WithOrderedSumsNeedsANewerVersionAndSaysSo) {
  if (cuda::CudnnAttention::version() >= 92500) GTEST_SKIP() << "this cuDNN has them";
  const AttentionGraphShape pass = passes(shape_of(kLlama)).at(1);
  EXPECT_FALSE(CudnnPlan::build(attention_graph(pass), {.properties = &gpu_},
                                cuda::PlanKind::ordered, &why_));
  EXPECT_THAT(why_, testing::HasSubstr("ordered sums"));
}

TEST_F(CudnnPlanTest, IsNotFoundForHeadsThatAreNotAlignedAndSaysWhy) {
  EXPECT_FALSE(build(shape_of({"narrow", 1, 1024, 2, 2, 12})));
  EXPECT_THAT(why_, testing::StartsWith("no engine takes the graph: "));
  EXPECT_THAT(why_, testing::HasSubstr("not a multiple of 8"));
}

TEST(CudnnGpu, WithoutAPropertyIsRefusedWithItsName) {
  EXPECT_THAT([] { cuda::cudnn_gpu(R"({"warpSize": 32})"); },
              testing::ThrowsMessage<Error>(testing::HasSubstr("maxGridSize")));
}

TEST(CudnnAttention, WithoutAGpuComputesNothingAndSaysWhy) {
  const auto backend = make_cpu_backend(1);
  cuda::CudnnAttention cudnn(*backend);
  EXPECT_THAT(
      cudnn.run({}, {.way = AttentionWay::cudnn, .pieces = {shape_of(kLlama)}}, kAttentionBytes),
      testing::Not(testing::IsEmpty()));
}
