// The messages of operations for operands that do not fit. They are the same on every device.
#include <map>
#include <string>
#include <vector>

#include <gmock/gmock.h>

#include "axonn/compute/ops/operations.h"

#include "tests/compute/ops/harness.h"

using namespace axonn;

namespace {

constexpr auto kF32 = DType::f32, kBf16 = DType::bf16;

/// Operands with 4 rows of 6 columns and others that fit them, and some that fit nothing.
struct Operands {
  Operand x{4, 6, kF32}, y{4, 6, kF32}, half{4, 6, kBf16}, row{1, 6, kF32}, stats{4, 2, kF32},
      column{4, 1, kF32}, thirds{4, 3, kF32}, quarters{4, 4, kF32}, one{1, 1, kF32},
      experts{4, 2, DType::i32}, copies{8, 6, kF32}, states{2, 15, kF32},
      ids{std::vector<std::int32_t>(4)}, few{std::vector<std::int32_t>(3)};
};

/// Operations of which one operand does not fit, with the message without the operation's name.
using Refused = std::vector<std::pair<const char*, RowwiseOperation>>;

/// Of each operation of norms.
Refused of_norms(const Operands& o) {
  return {
      {"out is (4,3) f32, want (4,2)", ops::RowMoments{o.thirds, o.x}},
      {"b is (4,6) bf16, want f32", ops::AddMoments{o.x, o.stats, o.y, o.half}},
      {"out is (4,3) f32, want (4,2)", ops::CombineMoments{o.thirds, o.stats, 6, 0}},
      {"moments is (4,3) f32, want (4,2)", ops::MomentsAboutZero{o.stats, o.thirds, 6}},
      {"bias is (4,6) f32, want (1,6)", ops::LayerNorm{o.x, o.y, o.row, o.x, o.stats}},
      {"moments is (4,3) f32, want (4,2)",
       ops::NormForward{
           .out = o.x, .stats = o.stats, .inp = o.y, .moments = o.thirds, .weight = o.row}},
      {"d_out is (4,6) bf16, want f32", ops::LayerNormSums{o.stats, o.half, o.x, o.row, o.stats}},
      {"sums is (4,1) f32, want (4,2)", ops::LayerNormBackward{.d_inp = o.x,
                                                               .d_out = o.x,
                                                               .inp = o.y,
                                                               .weight = o.row,
                                                               .stats = o.stats,
                                                               .sums = o.column,
                                                               .width = 6}},
      {"d_out is (4,6) bf16, want f32",
       ops::LayerNormWeightBackward{o.row, {}, o.half, o.x, o.stats}},
      {"stats is (4,3) f32, want (4,2)", ops::RmsNormSums{o.stats, o.x, o.x, o.row, o.thirds}},
      {"residual is (4,6) bf16, want f32", ops::NormBackward{.d_inp = o.x,
                                                             .d_out = o.x,
                                                             .inp = o.y,
                                                             .weight = o.row,
                                                             .stats = o.stats,
                                                             .residual = o.half}},
      {"out is (4,3) f32, want (4,6)",
       ops::HeadNorm{.out = o.thirds, .inp = o.x, .weight = o.row, .rstd = o.column}},
      {"rstd is (4,2) f32, want (4,1)",
       ops::HeadNormBackward{.forward = {.out = {}, .inp = o.x, .weight = o.row, .rstd = o.stats},
                             .d_out = o.x,
                             .d_inp = o.y}}};
}

/// Of one sequence, and two value heads of three columns each with a key head.
ops::DeltaRule delta_rule(const Operands& o, const View& states) {
  return {.out = o.x,
          .states = states,
          .q = o.y,
          .k = o.y,
          .v = o.y,
          .decay = o.stats,
          .beta = o.stats,
          .seen = {.positions = 4},
          .heads = 2,
          .key_heads = 2};
}

/// Of each other row-wise operation on activations alone.
Refused of_activations(const Operands& o) {
  return {
      {"positions is (1,3) i32, want (1,4)",
       ops::RotaryEmbedding{.out = o.x, .inp = o.y, .table = o.row, .positions = o.few}},
      {"inp is (4,6) f32, want (6,4)", ops::Transpose{o.x, o.y}},
      {"weight is (4,3) f32, want (4,6)",
       ops::CausalConvolution{
           .out = o.x, .inp = o.y, .weight = o.thirds, .seen = {.positions = 4}}},
      {"d_weight is (4,3) f32, want (4,6)",
       ops::CausalConvolutionWeights{o.thirds, o.x, o.y, {.positions = 4}}},
      {"beta is (4,2) f32, want (4,6)", ops::DeltaGates{o.x, o.stats, o.y, o.y, o.row, o.row}},
      {"d_b is (4,2) f32, want (4,6)",
       ops::DeltaGatesBackward{.forward = {o.x, o.x, o.y, o.y, o.row, o.row},
                               .d_decay = o.x,
                               .d_beta = o.x,
                               .d_a = o.x,
                               .d_b = o.stats,
                               .of_a_log = o.x,
                               .of_bias = o.x}},
      {"states is (4,6) f32, want (2,15)", delta_rule(o, o.x)},
      {"d_v is (4,2) f32, want (4,6)",
       ops::DeltaRuleBackward{.forward = delta_rule(o, o.states), .d_out = o.x, .d_v = o.stats}},
      {"slots is (1,3) i32, want (1,4)",
       ops::KeepHeads{.kept = o.y, .inp = o.x, .slots = o.few, .positions = o.ids, .entries = 2}},
      {"inp is (4,6) f32, want whole heads of 4 columns",
       ops::RoundHeads{.out = o.x, .inp = o.y, .head_dim = 4}},
      {"positions is (1,3) i32, want (1,4)",
       ops::ChunkStarts{.out = o.ids, .positions = o.few, .chunk = 2, .length = 4}},
      {"out is (4,6) bf16, want f32", ops::CopyHeads{o.half, o.x, 3, 2, 2, 2}},
      {"total is (4,2) f32, want (4,6)", ops::AddSinks{o.x, o.stats, o.stats, o.row}},
      {"terms is (4,2) f32, want (4,6)", ops::SinkTerms{o.stats, o.y, o.x, o.y, o.row}},
      {"inp is (4,6) f32, want 1 sequences of a multiple of 2 x 64",
       ops::OrderBlocks{.out = o.x, .inp = o.y, .slots = o.ids, .sequences = 1, .ways = 2}},
      {"starts is (1,4) i32, want (1,8)",
       ops::BranchCopies{
           .copy_rows = o.experts, .weights = o.stats, .starts = o.ids, .branches = o.few}},
      {"out is (4,6) f32, want (4,3)", ops::Swiglu{o.x, o.y}},
      {"d_out is (4,6) f32, want (4,3)", ops::SwigluBackward{o.x, o.x, o.y}},
      {"out is (4,3) f32, want (4,6)", ops::Xielu{o.thirds, o.x, o.one, o.one}},
      {"d_out is (4,3) f32, want (4,6)",
       ops::XieluBackward{{{}, o.x, o.one, o.one}, o.y, o.thirds}},
      {"out is (4,6) bf16, want f32", ops::Dropout{.out = o.half, .inp = o.x}},
      {"inp is (4,3) f32, want (4,6)", ops::Gelu{o.x, o.thirds}},
      {"d_out is (4,3) f32, want (4,6)", ops::GeluBackward{o.x, o.thirds, o.y}},
      {"b is (1,6) f32, want (4,6)", ops::Add{o.x, o.y, o.row}},
      {"out is (4,6) bf16, want f32", ops::Activation{o.half, o.x}},
      {"d_out is (4,3) f32, want (4,6)", ops::ActivationBackward{o.x, o.thirds, o.y}},
      {"b is (4,6) bf16, want f32", ops::Multiply{o.x, o.y, o.half}},
      {"out is (4,3) f32, want (4,6)", ops::Scale{o.thirds, o.x, 2}},
      {"out is (4,6) bf16, want f32", ops::AddNumber{o.half, o.x, 2}},
      {"number is (1,6) f32, want (1,1)", ops::ScaleByNumber{o.x, o.y, o.row}},
      {"out is (4,6) bf16, want f32", ops::SoftCap{o.half, o.x, 2}},
      {"out is (4,3) f32, want (4,6)", ops::SoftCapBackward{o.x, o.y, o.thirds, 2}},
      {"inp is (1,4) i32, want f32 or bf16 or f16", ops::Cast{o.x, o.ids}},
      {"out is (4,6) f32, want (1,6)", ops::Dequantize{o.x, o.row, {}}},
      {"ids is (1,3) i32, want (1,4)", ops::DequantizeRows{o.x, o.few, o.row, {}}},
      {"out is (1,1) f32, want (1,6)", ops::ColumnSum{o.one, o.x}}};
}

/// Of each operation of experts.
Refused of_experts(const Operands& o) {
  return {
      {"scores is (4,3) f32, want (4,6)", ops::Route{.ids = o.experts,
                                                     .weights = o.stats,
                                                     .scores = o.thirds,
                                                     .log_sums = o.column,
                                                     .logits = o.x}},
      {"d_weights is (4,3) f32, want (4,2)", ops::RouteBackward{.d_logits = o.y,
                                                                .d_weights = o.thirds,
                                                                .forward = {.ids = o.experts,
                                                                            .weights = o.stats,
                                                                            .scores = o.x,
                                                                            .log_sums = o.column,
                                                                            .logits = o.x}}},
      {"out is (4,6) f32, want f64",
       ops::RouteCounts{.out = o.x, .ids = o.experts, .scores = o.x, .log_sums = o.column}},
      {"counts is (4,6) f32, want i32",
       ops::ExpertOrder{.copy_rows = o.experts, .counts = o.x, .ids = o.experts}},
      {"out is (4,3) f32, want (4,2)", ops::ExpertFactors{o.thirds, o.stats, o.experts, o.row}},
      {"inp is (4,3) f32, want (4,2)", ops::ExpertFactorTerms{o.x, o.stats, o.thirds, o.experts}},
      {"copy_rows is (4,2) f32, want i32",
       ops::SpreadRows{.out = o.x, .inp = o.y, .copy_rows = o.stats}},
      {"weights is (4,3) f32, want (4,2)",
       ops::CombineRows{.out = o.x, .inp = o.copies, .copy_rows = o.experts, .weights = o.thirds}},
      {"d_inp is (4,6) f32, want (8,6)", ops::CombineRowsBackward{.d_inp = o.y,
                                                                  .d_weights = o.stats,
                                                                  .d_out = o.x,
                                                                  .inp = o.copies,
                                                                  .copy_rows = o.experts,
                                                                  .weights = o.stats}}};
}

/// Of each operation of embeddings, of the losses of targets and of a teacher.
Refused of_losses(const Operands& o) {
  return {{"table is (4,3) f32, want (4,6)",
           ops::Embedding{.out = o.x, .ids = o.ids, .table = o.thirds}},
          {"ids is (1,3) i32, want (1,4)", ops::EmbeddingBackward{o.x, o.y, o.few, 0}},
          {"d_positions is (4,3) f32, want (4,6)", ops::PositionsBackward{o.thirds, o.y}},
          {"targets is (1,3) i32, want (1,4)",
           ops::SoftmaxStats{o.thirds, o.x, o.few, {.first = 0, .valid = 6}}},
          {"lse is (4,2) f32, want (4,1)", ops::CombineSoftmax{o.column, o.stats, o.thirds, o.ids}},
          {"weights is (4,2) f32, want (4,1)",
           ops::CrossEntropyBackward{.d_logits = o.x,
                                     .logits = o.y,
                                     .lse = o.column,
                                     .targets = o.ids,
                                     .piece = {.first = 0, .valid = 6},
                                     .weights = o.stats}},
          {"lse is (4,2) f32, want (4,1)", ops::CrossEntropy{.loss = o.column,
                                                             .lse = o.stats,
                                                             .d_logits = o.x,
                                                             .logits = o.y,
                                                             .targets = o.ids,
                                                             .valid = 6}},
          {"stats is (4,2) f32, want (4,4)", ops::GreedyTargets{o.column, o.stats, o.ids}},
          {"logits is (4,6) f32, want 13 tokens in 2 pieces of at least 4 rows",
           ops::TokenRecord{o.quarters, o.x, o.ids, 13, 2}},
          {"out is (4,2) f32, want (4,1)",
           ops::KthLargestLogit{.out = o.stats, .logits = o.x, .targets = o.ids, .vocab = 6}},
          {"logits is (4,6) f32, want 7 tokens in 1 pieces of at least 4 rows",
           ops::PolicyLogProbability{o.column, o.x, o.ids, 7}},
          {"out is (4,2) f32, want (4,1)", ops::EntropyTerms{o.stats, o.x, o.column, o.ids, 6}},
          {"teacher is (4,3) f32, want (4,6)", ops::DivergenceTerms{.out = o.stats,
                                                                    .student = o.x,
                                                                    .teacher = o.thirds,
                                                                    .student_lse = o.column,
                                                                    .teacher_lse = o.column,
                                                                    .targets = o.ids,
                                                                    .valid = 6}},
          {"terms is (4,2) f32, want (4,4)", ops::DivergenceTail{o.stats, o.ids, 0}},
          {"terms is (4,1) f32, want (4,2)", ops::DivergenceBackward{.d_logits = o.x,
                                                                     .student = o.x,
                                                                     .teacher = o.y,
                                                                     .student_lse = o.column,
                                                                     .teacher_lse = o.column,
                                                                     .targets = o.ids,
                                                                     .terms = o.column,
                                                                     .valid = 6}}};
}

/// Of each further row-wise operation.
Refused of_others(const Operands& o) {
  return {{"stats is (4,3) f32, want (4,2)", ops::Softmax{o.x, o.y, o.thirds}},
          {"out is (4,2) f32, want (4,1)", ops::RowDots{o.stats, o.x, o.y}},
          {"dots is (4,2) f32, want (4,1)", ops::SoftmaxBackward{o.x, o.x, o.y, o.stats}},
          {"out is (1,1) f32, want f64", ops::Sum{o.one, o.x}},
          {"out is (1,1) f32, want f64", ops::SquaredSum{o.one, o.x}},
          {"squared_norm is (1,1) f32, want f64", ops::PowerSum{o.one, o.x, o.one, 3}},
          {"out is (1,1) f32, want f64", ops::LargestSize{o.one, o.x}},
          {"squared_norm is (1,1) f32, want f64", ops::ClipFactor{o.one, o.one, 1}},
          {"out is (1,1) f32, want i64", ops::CountNonfinite{o.one, o.x}},
          {"first is (1,1) f32, want (1,6)",
           ops::AdamW{
               .master = o.row, .first = o.one, .second = o.row, .gradient = o.row, .out = o.row}},
          {"gradient is (1,1) f32, want (1,6)",
           ops::Sgd{.master = o.row, .gradient = o.one, .out = o.row}},
          {"mean is (1,1) f32, want (1,6)",
           ops::Lion{.master = o.row, .mean = o.one, .gradient = o.row, .out = o.row}},
          {"average is (1,1) f32, want (1,6)", ops::ScheduleFreeAdamW{.master = o.row,
                                                                      .z = o.row,
                                                                      .average = o.one,
                                                                      .second = o.row,
                                                                      .gradient = o.row,
                                                                      .out = o.row}},
          {"cols is (1,1) f32, want (1,6)",
           ops::AddSquares{.rows = {}, .cols = o.one, .gradient = o.x}},
          {"rows is (1,1) f32, want (1,4)",
           ops::AdafactorSquares{o.one, o.x, {.rows = o.one, .cols = o.row}}},
          {"step_squares is (1,1) f32, want f64", ops::Adafactor{.master = o.x,
                                                                 .gradient = o.x,
                                                                 .out = o.x,
                                                                 .moment = {.cols = o.row},
                                                                 .step_squares = o.one}},
          {"values is (1,4) i32, want f32 or bf16 or f16", ops::Clamp{o.ids, 1}},
          {"out is (1,1) f32, want (1,6)",
           ops::Momentum{.momentum = o.row, .gradient = o.row, .out = o.one}},
          {"squared_norm is (1,1) f32, want f64", ops::DivideByNorm{o.x, o.y, o.one}},
          {"b is (4,6) bf16, want f32", ops::WeightedSum{o.x, o.y, o.half}},
          {"out is (1,6) f32, want i64", ops::WordSums{o.row, o.row, o.row}},
          {"values is (1,1) f32, want (1,6)", ops::MovingAverage{o.row, o.one, 0.1f}},
          {"codes is (1,6) f32, want u8",
           ops::EncodeDynamic{{.codes = o.row, .absmax = o.one, .table = o.row}, o.row}},
          {"codes is (1,6) f32, want u8",
           ops::DecodeDynamic{o.row, {.codes = o.row, .absmax = o.one, .table = o.row}}},
          {"inp is (4,3) f32, want (4,6)", ops::RoundAtRandom{.out = o.half, .inp = o.thirds}}};
}

}  // namespace

TEST(OperandChecks, OfEveryRowwiseOperationNameOperationAndOperand) {
  const Operands operands;
  std::vector<std::string_view> names;
  for (const Refused& some : {of_norms(operands), of_activations(operands), of_experts(operands),
                              of_losses(operands), of_others(operands)})
    for (const auto& [words, operation] : some) {
      names.push_back(std::visit([](const auto& args) { return args.kName; }, operation));
      expect_refusal(std::string(names.back()) + ": " + words, operation);
    }
  EXPECT_THAT(names, testing::ElementsAreArray(kRowwiseNames));
}

TEST(OperandChecks, WantTheStatsOfAtLeastOnePieceOfTheVocabulary) {
  const Operands o;
  expect_refusal("stats is (1,1) f32, want (4,3)",
                 ops::CombineSoftmax{o.column, o.column, o.one, o.ids});
  expect_refusal("stats is (1,1) f32, want (4,4)", ops::GreedyTargets{o.column, o.one, o.ids});
}
