// Products whose epilogue cuBLASLt refuses although its heuristic knew an algorithm, and the number
// of products of attention.
#include <cmath>
#include <functional>
#include <string>
#include <vector>

#include <gmock/gmock.h>

#include "axonn/compute/ops/backend.h"
#include "axonn/compute/ops/forwarding_backend.h"
#include "axonn/compute/ops/matmul_tuner.h"
#include "axonn/foundation/base/check.h"

#include "tests/emulated_gpu/setting.h"
#include "tests/emulated_gpu/values_on_gpu.h"

using namespace axonn;
using emulated_gpu::Setting;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

namespace {

constexpr auto kF32 = DType::f32, kBf16 = DType::bf16;

/// A backend with the operands of three products, each with an epilogue.
class Epilogues : public ValuesOnGpu {
 public:
  std::vector<Matmul> products() {
    return {{.out = filled(16, 24, kBf16),
             .a = filled(16, 32, kBf16),
             .b = filled(32, 24, kBf16),
             .bias = filled(1, 24, kBf16),
             .gelu = true,
             .gelu_input = filled(16, 24, kBf16)},
            {.out = filled(16, 24, kBf16),
             .a = filled(16, 32, kBf16),
             .b = filled(32, 24, kBf16),
             .gelu_derivative_at = filled(16, 24, kBf16)},
            {.out = filled(16, 24, kF32),
             .a = filled(32, 16, kBf16),
             .b = filled(32, 24, kBf16),
             .a_transposed = true,
             .accumulate = true,
             .bias_gradient = filled(1, 16, kF32)}};
  }

  /// The results of all products, and their epilogues'.
  std::vector<float> run() {
    std::vector<float> all;
    for (const Matmul& product : products()) {
      backend->matmul(product);
      for (const View& view : {product.out, product.gelu_input, product.bias_gradient})
        for (const float value : get(view)) all.push_back(value);
    }
    return all;
  }
};

/// Notes whether a product was ever fused with its epilogue.
class Watched final : public ForwardingBackend {
 public:
  using ForwardingBackend::ForwardingBackend;
  bool fuses(const Matmul& args) override {
    const bool does = ForwardingBackend::fuses(args);
    fused_ |= does;
    return does;
  }
  void watch() { fused_ = false; }
  bool fused() const { return fused_; }

 private:
  bool fused_ = false;
};

}  // namespace

TEST(RefusedEpilogue, FollowsTheProductFromThenOn) {
  Epilogues fused;
  const std::vector<float> want = fused.run();
  EXPECT_THAT(fused.backend->take_remarks(), IsEmpty());
  for (const Matmul& product : fused.products()) EXPECT_TRUE(fused.backend->fuses(product));

  const Setting refused("AXONN_EMULATED_EPILOGUES", "refused");
  Epilogues parts;
  for (const Matmul& product : parts.products()) EXPECT_TRUE(parts.backend->fuses(product));
  const std::vector<float> got = parts.run();
  ASSERT_EQ(got.size(), want.size());
  for (std::size_t i = 0; i < got.size(); ++i)  // each rounded to bf16 twice
    EXPECT_NEAR(got[i], want[i], 1e-4 + std::abs(want[i]) / 64) << i;
  EXPECT_THAT(parts.backend->take_remarks(),
              ElementsAre(HasSubstr("cuBLASLt refuses bf16 NN 16x24x32 + bias gelu kept (the "),
                          HasSubstr("bf16 NN 16x24x32 d_gelu ("), HasSubstr("+= d_bias (")));
  for (const Matmul& product : parts.products()) {
    EXPECT_FALSE(parts.backend->fuses(product));
    EXPECT_TRUE(parts.backend->set_matmul_way(shape_of(product), "default")) << "tuning may try";
    EXPECT_FALSE(parts.backend->fuses(product));
  }
  EXPECT_EQ(parts.run(), got);
  EXPECT_THAT(parts.backend->take_remarks(), IsEmpty());
}

TEST(RefusedEpilogue, FollowsTheProductInACapturedStepToo) {
  Epilogues fused;
  const Matmul product = fused.products().front();
  fused.backend->matmul(product);
  const std::vector<float> want = fused.get(product.out);

  const Setting refused("AXONN_EMULATED_EPILOGUES", "refused");
  Epilogues parts;
  const Matmul captured = parts.products().front();
  const auto graph = parts.backend->device().capture([&] { parts.backend->matmul(captured); });
  ASSERT_TRUE(graph);
  graph->launch();
  const std::vector<float> got = parts.get(captured.out);
  for (std::size_t i = 0; i < got.size(); ++i) EXPECT_NEAR(got[i], want[i], 0.02) << i;
}

TEST(RefusedEpilogue, AProductWithoutOneThatIsRefusedIsAnError) {
  Epilogues one;
  Matmul product = one.products().back();
  product.bias_gradient = {};
  emulated_gpu::fail_call("cublasLtMatmul", 1);
  EXPECT_THAT([&] { one.backend->matmul(product); },
              testing::ThrowsMessage<Error>(HasSubstr("cublasLtMatmul refused bf16 TN 16x24x32")));
  one.backend->matmul(product);
}

TEST(RefusedBias, IsAddedAfterTheProductAndTunedWithoutIt) {
  Epilogues one;
  Matmul product = one.products().front();
  product.gelu = false;
  product.gelu_input = {};
  one.backend->matmul(product);
  const std::vector<float> want = one.get(product.out);
  for (const char* const how : {"unknown", "refused"}) {
    const Setting bias("AXONN_EMULATED_BIAS", how);
    Epilogues other;
    Matmul same = other.products().front();
    same.gelu = false;
    same.gelu_input = {};
    for (int n = 0; n < 2; ++n) {
      other.backend->matmul(same);
      const std::vector<float> got = other.get(same.out);
      for (std::size_t i = 0; i < got.size(); ++i)  // rounded to bf16 twice
        EXPECT_NEAR(got[i], want[i], 1e-4 + std::abs(want[i]) / 64) << i;
    }
    EXPECT_EQ(other.backend->take_remarks().size(), how == std::string("refused") ? 1 : 0);
    const MatmulShape shape = shape_of(same);
    EXPECT_EQ(other.backend->matmul_ways(shape).front(), "default");
    EXPECT_TRUE(other.backend->set_matmul_way(shape, other.backend->matmul_ways(shape).back()));
    other.backend->matmul(same);
  }
}

TEST(FusedEpilogue, IsTimedAlsoForColumnsThatAreNoMultipleOfEight) {
  Watched backend(make_cuda_backend(0, {.attention = CudaAttention::own}));
  MatmulShape shape{.M = 16, .N = 20, .K = 32, .type = kBf16, .out_type = kBf16};
  for (const bool kept : {true, false}) {
    shape.gelu = shape.gelu_input = kept;
    shape.gelu_derivative = !kept;
    ASSERT_TRUE(backend.set_matmul_way(shape, "default"));
    backend.watch();
    EXPECT_THAT(tune_matmul(backend, shape).default_way, "default");
    EXPECT_TRUE(backend.fused()) << to_string(shape);
  }
}

TEST(AttentionPieces, AreFewIfTheyMayBeLarge) {
  const auto products = [](std::int64_t bytes) {
    const auto backend =
        make_cuda_backend(0, {.attention = CudaAttention::own, .attention_bytes = bytes});
    Device& device = backend->device();
    constexpr std::int64_t kRows = 256, kCols = 16, kHeads = 2;
    constexpr std::int64_t kBytes = 4 * kRows * (4 * kCols + kHeads);
    auto* const memory = static_cast<float*>(device.allocate(kBytes));
    device.fill_zero(memory, kBytes);
    const auto part = [&](int i) {
      return View{memory + i * kRows * kCols, kF32, kRows, kCols, kCols};
    };
    const std::int64_t before = emulated_gpu::calls()["cublasLtMatmul"];
    backend->attention({.q = part(0),
                        .k = part(1),
                        .v = part(2),
                        .out = part(3),
                        .stats = {memory + 4 * kRows * kCols, kF32, kRows, kHeads, kHeads},
                        .positions = kRows,
                        .heads = kHeads,
                        .head_dim = kCols / kHeads,
                        .group = 1,
                        .scale = 1});
    device.compute().synchronize();
    device.release(memory, kBytes);
    return emulated_gpu::calls()["cublasLtMatmul"] - before;
  };
  // A row of both heads has 2,048 bytes of scores. At most half of the queries are one piece.
  EXPECT_EQ(products(32 * 2048), 2 * 8);
  EXPECT_EQ(products(std::int64_t{1} << 30), 2 * 2);
  EXPECT_EQ(products(kAttentionBytes), 2 * 2);
}
