// Which epilogues cuBLASLt may be asked for. That is decided without a GPU.
#include <gtest/gtest.h>

#include "axonn/compute/ops/gpu/matmul/epilogues.h"

using namespace axonn;
using cuda::may_fuse;

namespace {

constexpr auto kF32 = DType::f32, kBf16 = DType::bf16;

/// A matrix at this address, whose memory is never read.
View at(std::uintptr_t address, std::int64_t rows, std::int64_t cols, DType type = kBf16,
        std::int64_t stride = 0) {
  return {reinterpret_cast<void*>(address), type, rows, cols, stride > 0 ? stride : cols};
}

Matmul gelu(const View& input = {}) {
  return {.out = at(256, 6, 24),
          .a = at(512, 6, 16),
          .b = at(768, 16, 24),
          .gelu = true,
          .gelu_input = input};
}

Matmul derivative(const View& where) {
  Matmul product = gelu();
  product.gelu = false;
  product.gelu_derivative_at = where;
  return product;
}

}  // namespace

TEST(CudaFusion, FusesGeluInBf16IfTheAuxiliaryMatrixIsAligned) {
  EXPECT_TRUE(may_fuse(gelu()));
  EXPECT_TRUE(may_fuse(gelu(at(1024, 6, 24))));
  EXPECT_TRUE(may_fuse(gelu(at(1024 + 16, 6, 24, kBf16, 32))));
  EXPECT_FALSE(may_fuse(gelu(at(1024, 6, 24, kBf16, 28)))) << "rows 28 elements apart";
  EXPECT_FALSE(may_fuse(gelu(at(1024 + 8, 6, 24)))) << "not aligned to vectors";
  EXPECT_TRUE(may_fuse(derivative(at(1024, 6, 24))));
  EXPECT_FALSE(may_fuse(derivative(at(1024, 6, 24, kBf16, 25))));
  EXPECT_FALSE(may_fuse(derivative(at(1024 + 2, 6, 24))));
}

TEST(CudaFusion, DoesNotFuseGeluOfF32OrOfEmptyOperands) {
  Matmul product = gelu();
  product.out.dtype = kF32;
  EXPECT_FALSE(may_fuse(product));
  product = gelu();
  product.a.cols = product.b.rows = 0;
  EXPECT_FALSE(may_fuse(product));
  product = gelu();
  product.out.rows = product.a.rows = 0;
  EXPECT_FALSE(may_fuse(product));
}

TEST(CudaFusion, FusesABiasOnlyIfItIsAligned) {
  Matmul product = gelu(at(1024, 6, 24));
  product.bias = at(2048, 1, 24);
  EXPECT_TRUE(may_fuse(product));
  product.bias = at(2048 + 8, 1, 24);
  EXPECT_FALSE(may_fuse(product));
}

TEST(CudaFusion, FusesABiasGradientOnlyIfTheResultIsF32) {
  Matmul product{.out = at(256, 24, 16, kF32),
                 .a = at(512, 6, 24),
                 .b = at(768, 6, 16),
                 .a_transposed = true,
                 .bias_gradient = at(1024 + 4, 1, 24, kF32)};
  EXPECT_TRUE(may_fuse(product)) << "the sums are added to it, so its alignment does not matter";
  product.accumulate = true;
  EXPECT_TRUE(may_fuse(product));
  product.out.dtype = kBf16;
  EXPECT_FALSE(may_fuse(product)) << "would be rounded to bf16";
}
