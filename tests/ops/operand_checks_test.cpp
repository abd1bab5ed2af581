// The messages of operations for operands that do not fit. They are the same on every device.
#include <functional>

#include <gmock/gmock.h>

#include "axonn/base/check.h"
#include "axonn/ops/backend.h"

#include "tests/ops/harness.h"

using namespace axonn;

namespace {

constexpr auto kF32 = DType::f32, kBf16 = DType::bf16;

/// Operands with 4 rows of 6 columns and others that fit them, and some that fit nothing.
struct Operands {
  Operand x{4, 6, kF32}, y{4, 6, kF32}, half{4, 6, kBf16}, row{1, 6, kF32}, stats{4, 2, kF32},
      column{4, 1, kF32}, thirds{4, 3, kF32}, one{1, 1, kF32}, ids{std::vector<std::int32_t>(4)},
      few{std::vector<std::int32_t>(3)};
};

using Call = std::function<void(Backend&, const Operands&)>;

void expect_refusal(const char* words, const Call& call) {
  const auto backend = test_backend();
  const Operands operands;
  EXPECT_THAT([&] { call(*backend, operands); },
              testing::ThrowsMessage<Error>(testing::HasSubstr(words)));
}

}  // namespace

TEST(OperandChecks, OfNormsNameOperationAndOperand) {
  expect_refusal("row_moments: out is (4,3) f32, want (4,2)",
                 [](Backend& b, const Operands& o) { b.row_moments(o.thirds, o.x); });
  expect_refusal("combine_moments: out is (4,3) f32, want (4,2)",
                 [](Backend& b, const Operands& o) { b.combine_moments(o.thirds, o.stats, 6, 0); });
  expect_refusal("layer_norm: bias is (4,6) f32, want (1,6)", [](Backend& b, const Operands& o) {
    b.layer_norm(o.x, o.y, o.row, o.x, o.stats);
  });
  expect_refusal("layer_norm_sums: d_out is (4,6) bf16, want f32",
                 [](Backend& b, const Operands& o) {
                   b.layer_norm_sums(o.stats, o.half, o.x, o.row, o.stats);
                 });
  expect_refusal("layer_norm_weight_backward: d_out is (4,6) bf16, want f32",
                 [](Backend& b, const Operands& o) {
                   b.layer_norm_weight_backward(o.row, {}, o.half, o.x, o.stats);
                 });
  expect_refusal("moments_about_zero: moments is (4,3) f32, want (4,2)",
                 [](Backend& b, const Operands& o) { b.moments_about_zero(o.stats, o.thirds, 6); });
  expect_refusal(
      "rms_norm_sums: stats is (4,3) f32, want (4,2)",
      [](Backend& b, const Operands& o) { b.rms_norm_sums(o.stats, o.x, o.x, o.row, o.thirds); });
  expect_refusal("head_norm: out is (4,3) f32, want (4,6)", [](Backend& b, const Operands& o) {
    b.head_norm({.out = o.thirds, .inp = o.x, .weight = o.row, .rstd = o.column});
  });
  expect_refusal(
      "head_norm_backward: rstd is (4,2) f32, want (4,1)", [](Backend& b, const Operands& o) {
        b.head_norm_backward({.forward = {.out = {}, .inp = o.x, .weight = o.row, .rstd = o.stats},
                              .d_out = o.x,
                              .d_inp = o.y,
                              .d_weight = {}});
      });
}

TEST(OperandChecks, OfElementsNameOperationAndOperand) {
  expect_refusal("gelu_backward: d_out is (4,3) f32, want (4,6)",
                 [](Backend& b, const Operands& o) { b.gelu_backward(o.x, o.thirds, o.y); });
  expect_refusal("column_sum: out is (1,1) f32, want (1,6)",
                 [](Backend& b, const Operands& o) { b.column_sum(o.one, o.x); });
  expect_refusal("swiglu_backward: d_out is (4,6) f32, want (4,3)",
                 [](Backend& b, const Operands& o) { b.swiglu_backward(o.x, o.x, o.y); });
  expect_refusal("dropout: out is (4,6) bf16, want f32",
                 [](Backend& b, const Operands& o) { b.dropout({.out = o.half, .inp = o.x}); });
  expect_refusal("rotary_embedding: positions is (1,3) i32, want (1,4)",
                 [](Backend& b, const Operands& o) {
                   b.rotary_embedding({.out = o.x, .inp = o.y, .table = o.row, .positions = o.few});
                 });
  expect_refusal("sum: out is (1,1) f32, want f64",
                 [](Backend& b, const Operands& o) { b.sum(o.one, o.x); });
  expect_refusal("clip_factor: squared_norm is (1,1) f32, want f64",
                 [](Backend& b, const Operands& o) { b.clip_factor(o.one, o.one, 1); });
}

TEST(OperandChecks, OfTokensAndTheLossNameOperationAndOperand) {
  expect_refusal("embedding: table is (4,3) f32, want (4,6)", [](Backend& b, const Operands& o) {
    b.embedding({.out = o.x, .ids = o.ids, .table = o.thirds});
  });
  expect_refusal("embedding_backward: ids is (1,3) i32, want (1,4)",
                 [](Backend& b, const Operands& o) { b.embedding_backward(o.x, o.y, o.few, 0); });
  expect_refusal("positions_backward: d_positions is (4,3) f32, want (4,6)",
                 [](Backend& b, const Operands& o) { b.positions_backward(o.thirds, o.y); });
  expect_refusal("softmax_stats: targets is (1,3) i32, want (1,4)",
                 [](Backend& b, const Operands& o) {
                   b.softmax_stats(o.thirds, o.x, o.few, {.first = 0, .valid = 6});
                 });
  expect_refusal(
      "combine_softmax: lse is (4,2) f32, want (4,1)",
      [](Backend& b, const Operands& o) { b.combine_softmax(o.column, o.stats, o.thirds, o.ids); });
  expect_refusal("greedy_targets: stats is (4,2) f32, want (4,3)",
                 [](Backend& b, const Operands& o) { b.greedy_targets(o.column, o.stats, o.ids); });
  expect_refusal("cross_entropy_backward: lse is (4,2) f32, want (4,1)",
                 [](Backend& b, const Operands& o) {
                   b.cross_entropy_backward({.d_logits = o.x,
                                             .logits = o.y,
                                             .lse = o.stats,
                                             .targets = o.ids,
                                             .piece = {.first = 0, .valid = 6}});
                 });
}

TEST(OperandChecks, OfOptimizersNameOperationAndOperand) {
  expect_refusal("adamw: first is (1,1) f32, want (1,6)", [](Backend& b, const Operands& o) {
    b.adamw({.master = o.row,
             .first = o.one,
             .second = o.row,
             .gradient = o.row,
             .out = o.row,
             .scale = {}});
  });
  expect_refusal("sgd: gradient is (1,1) f32, want (1,6)", [](Backend& b, const Operands& o) {
    b.sgd({.master = o.row, .gradient = o.one, .out = o.row, .scale = {}});
  });
}
