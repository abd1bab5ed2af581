// Compares each layer on every grid with the same layer on one rank, gradients included.
#include <cmath>

#include <gmock/gmock.h>

#include "axonn/foundation/base/check.h"
#include "axonn/network/nn/attention/attention.h"
#include "axonn/network/nn/attention/rope.h"
#include "axonn/network/nn/linear.h"
#include "axonn/network/nn/loss.h"
#include "axonn/network/nn/norm.h"
#include "axonn/network/nn/pointwise.h"
#include "axonn/ranks/comm/self.h"
#include "axonn/ranks/comm/threads/threads.h"

#include "tests/ranks/parallel/piece.h"
#include "tests/support/grids.h"

using namespace axonn;
using namespace axonn::testing_support;

namespace {

/// The longest sum of these layers: a weight's gradient over 72 rows, a product over 96 columns,
/// one after the other.
constexpr std::int64_t kTerms = 72 + 96;

void compare_on_all_grids(PieceRun run) {
  const PieceResult one = run_piece(run);
  ASSERT_GE(one.size(), 2);
  for (const GridShape& grid : many_grids()) {
    SCOPED_TRACE("grid " + to_string(grid));
    run.grid = grid;
    for (bool cut : {true, false}) {
      run.sequence_parallel = cut;
      EXPECT_EQ(difference(one, run_piece(run), kTerms), "") << (cut ? "rows cut" : "same rows");
    }
  }
}

/// Compares gradients on one rank with finite differences, along one direction per parameter.
void compare_with_finite_differences(PieceRun run, double loss_scale = 1) {
  const PieceResult here = run_piece(run);
  for (const auto& [name, gradient] : here) {
    if (name == "out" || name == "d_inp" || name == "total") continue;
    double want = 0, size = 0;
    for (std::size_t i = 0; i < gradient.values.size(); ++i) {
      want += gradient.values[i] * direction(name, static_cast<std::int64_t>(i));
      size += std::abs(gradient.values[i]);
    }
    // The relative error is about the step's square; f32 rounds losses of about 50 to 1e-6.
    constexpr double kStep = 1e-2;
    const auto loss_at = [&](double shift) {
      run.shifted = name;
      run.shift = shift;
      return loss_scale * loss_of(run_piece(run));
    };
    const double got = (loss_at(kStep) - loss_at(-kStep)) / (2 * kStep);
    EXPECT_NEAR(got, want, 3e-3 * size) << name;
    EXPECT_GT(size, 0) << name << " has no gradient";
  }
}

/// A piece of one layer.
template <typename Layer>
std::function<Piece(ParameterGroup&)> alone(typename Layer::Options options) {
  return [options](ParameterGroup& group) -> Piece {
    const auto layer = std::make_shared<Layer>(group, "layer", options);
    return [layer](const Context& ctx, const PieceInput& in) { return (*layer)(ctx, in.x); };
  };
}

Piece mlp(ParameterGroup& group) {
  const auto up = std::make_shared<Linear>(group, "up", Linear::Options{.in = 24, .out = 96});
  const auto down = std::make_shared<Linear>(
      group, "down", Linear::Options{.in = 96, .out = 24, .orientation = Orientation::transposed});
  return [up, down](const Context& ctx, const PieceInput& in) {
    return add(ctx, in.x, (*down)(ctx, gelu(ctx, (*up)(ctx, in.x))));
  };
}

std::function<Piece(ParameterGroup&)> attention_of(std::int64_t kv_heads) {
  return [kv_heads](ParameterGroup& group) -> Piece {
    const Heads heads{24, kv_heads, 2};
    const auto qkv = std::make_shared<Linear>(
        group, "qkv",
        Linear::Options{.in = 24, .out = heads.qkv_width(), .init_std = 0.5, .heads = heads});
    const auto project = std::make_shared<Linear>(
        group, "project",
        Linear::Options{.in = 48, .out = 24, .orientation = Orientation::transposed});
    return [=](const Context& ctx, const PieceInput& in) {
      return (*project)(ctx, attention(ctx, (*qkv)(ctx, in.x), heads));
    };
  };
}

/// A norm after layers with parameters, whose gradients come through the norm's input gradient.
template <Norm::Kind kind>
Piece norm_after_mlp(ParameterGroup& group) {
  const Piece before = mlp(group);
  const auto norm = std::make_shared<Norm>(group, "norm", Norm::Options{.width = 24, .kind = kind});
  return [=](const Context& ctx, const PieceInput& in) { return (*norm)(ctx, before(ctx, in)); };
}

/// As in Llama: gate and up are separate parameters but one product.
Piece gated_mlp(ParameterGroup& group) {
  const auto gate_up = std::make_shared<Linear>(
      group, "mlp",
      Linear::Options{
          .in = 24, .out = 96, .segments = {{.rows = 48}, {.rows = 48}}, .parts = {"gate", "up"}});
  const auto down = std::make_shared<Linear>(
      group, "down", Linear::Options{.in = 48, .out = 24, .orientation = Orientation::transposed});
  return [=](const Context& ctx, const PieceInput& in) {
    return add(ctx, in.x, (*down)(ctx, swiglu(ctx, (*gate_up)(ctx, in.x))));
  };
}

struct LlamaAttention {
  std::int64_t kv_heads = 24, window = 0;
  enum { none, head, width } qk_norm = none;
};

/// As in models of the Llama family: q, k and v are separate parameters, positions are rotary.
std::function<Piece(ParameterGroup&)> llama_attention(LlamaAttention options) {
  return [options](ParameterGroup& group) -> Piece {
    const Heads heads{24, options.kv_heads, 4, options.window};
    const auto qkv =
        std::make_shared<Linear>(group, "attn",
                                 Linear::Options{.in = 24,
                                                 .out = heads.qkv_width(),
                                                 .init_std = 0.5,
                                                 .heads = heads,
                                                 .parts = {"q_proj", "k_proj", "v_proj"}});
    std::function<Var(const Context&, const Var&)> norm;
    if (options.qk_norm == LlamaAttention::head)
      norm = QkNorm(group, "attn", heads, {.eps = 1e-2f});
    else if (options.qk_norm == LlamaAttention::width)
      norm = QkWidthNorm(group, "attn", heads, {.eps = 1e-2f});
    const auto rope = std::make_shared<Rope>(rope_frequencies(4, 10, {}));
    const auto project = std::make_shared<Linear>(
        group, "attn.o_proj",
        Linear::Options{.in = 96, .out = 24, .orientation = Orientation::transposed});
    return [=](const Context& ctx, const PieceInput& in) {
      rope->prepare(ctx, in.tokens.rows);
      Var x = (*qkv)(ctx, in.x);
      if (norm) x = norm(ctx, x);
      return (*project)(ctx, attention(ctx, (*rope)(ctx, std::move(x), heads), heads));
    };
  };
}

/// Rotates a value that the caller still needs, so not in place, in forward and in backward.
Piece turned_and_kept(ParameterGroup& group) {
  const Heads heads{24, 4, 2};
  const auto qkv = std::make_shared<Linear>(
      group, "qkv", Linear::Options{.in = 24, .out = heads.qkv_width(), .heads = heads});
  const auto rope = std::make_shared<Rope>(rope_frequencies(2, 10, {}));
  const auto project = std::make_shared<Linear>(
      group, "project",
      Linear::Options{.in = 48, .out = 24, .orientation = Orientation::transposed});
  return [=](const Context& ctx, const PieceInput& in) {
    rope->prepare(ctx, in.tokens.rows);
    const Var x = (*qkv)(ctx, in.x), both = add(ctx, (*rope)(ctx, x, heads), x);
    return (*project)(ctx, attention(ctx, both, heads));
  };
}

std::function<Piece(ParameterGroup&)> embedding_of(std::int64_t vocab) {
  return [vocab](ParameterGroup& group) -> Piece {
    const auto layer = std::make_shared<Embedding>(
        group, Embedding::Names{"wte", "wpe"},
        Embedding::Options{.vocab = vocab, .width = 24, .positions = 5});
    return [layer](const Context& ctx, const PieceInput& in) { return (*layer)(ctx, in.tokens); };
  };
}

/// Its blocks have fewer rows than a rank, and do not divide them evenly.
constexpr float kLossScale = 0.01f;
/// Attaches a weight of either sign, or 0, for each target.
Context weighted(Context ctx, const Tensor& targets) {
  std::vector<std::int32_t> ids(targets.cols());
  ctx.device().copy_to_host(ids.data(), targets.view().data, targets.bytes());
  std::vector<float> values;
  for (const std::int32_t id : ids) values.push_back(static_cast<float>(id % 4 - 1) * 0.75f);
  const auto weights =
      std::make_shared<RowWeights>(RowWeights{ctx.empty(std::ssize(values), 1, DType::f32)});
  ctx.device().copy_from_host(weights->weights.view().data, values.data(),
                              weights->weights.bytes());
  ctx.attach(weights);
  return ctx;
}

/// With `weights`, of rows with weighted().
std::function<Piece(ParameterGroup&)> cross_entropy_of(std::int64_t vocab, bool weights = false) {
  return [=](ParameterGroup& group) -> Piece {
    const Parameter& table =
        group.add({.name = "table", .layout = vocabulary_layout(vocab, 24), .init_std = 0.5});
    const auto loss = std::make_shared<CrossEntropy>(
        table, CrossEntropy::Options{.vocab = vocab, .rows_at_once = 7});
    return [=](const Context& ctx, const PieceInput& in) {
      const Tensor& targets = in.tokens.targets;
      (*loss)(weights ? weighted(ctx, targets) : ctx, in.x, targets, kLossScale, in.total.view());
      return Var{};
    };
  };
}

}  // namespace

TEST(Layers, LinearIsTheSameOnEveryGrid) {
  compare_on_all_grids({.make = alone<Linear>({.in = 24, .out = 48})});
  compare_on_all_grids({.make = alone<Linear>({.in = 24, .out = 48, .bias = false})});
}

TEST(Layers, TwoLinearsThatAlternateAreTheSameOnEveryGrid) {
  compare_on_all_grids({.make = mlp});
  compare_on_all_grids({.chunks = 2, .make = mlp});
}

TEST(Layers, LayerNormIsTheSameOnEveryGrid) {
  compare_on_all_grids({.make = alone<Norm>({.width = 24})});
  compare_on_all_grids({.make = alone<Norm>({.width = 24, .bias = false})});
}

TEST(Layers, AttentionIsTheSameOnEveryGridWithManyOrSharedKeyValueHeads) {
  for (std::int64_t kv_heads : {24, 4, 1}) compare_on_all_grids({.make = attention_of(kv_heads)});
}

TEST(Layers, RmsNormIsTheSameOnEveryGrid) {
  compare_on_all_grids({.make = alone<Norm>({.width = 24, .kind = Norm::Kind::rms})});
  compare_on_all_grids({.chunks = 2, .make = alone<Norm>({.width = 24, .kind = Norm::Kind::rms})});
}

TEST(Layers, AGatedMlpOfJoinedParametersIsTheSameOnEveryGrid) {
  compare_on_all_grids({.make = gated_mlp});
  compare_on_all_grids({.chunks = 2, .make = gated_mlp});
}

TEST(Layers, AttentionWithRotaryPositionsIsTheSameOnEveryGridWithNormsAndAWindow) {
  for (std::int64_t kv_heads : {24, 4, 1}) {
    compare_on_all_grids({.make = llama_attention({.kv_heads = kv_heads})});
    compare_on_all_grids(
        {.make = llama_attention(
             {.kv_heads = kv_heads, .window = 2, .qk_norm = LlamaAttention::head})});
  }
}

TEST(Layers, AttentionWithNormsOverTheWidthOfAllHeadsIsTheSameOnEveryGrid) {
  for (std::int64_t kv_heads : {24, 4, 3, 1})
    for (int chunks : {1, 3})
      compare_on_all_grids(
          {.chunks = chunks,
           .make = llama_attention({.kv_heads = kv_heads, .qk_norm = LlamaAttention::width})});
}

TEST(Layers, AttentionOverPackedDocumentsIsTheSameOnEveryGrid) {
  for (std::int64_t kv_heads : {24, 4, 1}) {  // attention is cut over y by heads, sequences, or not
    compare_on_all_grids({.packed = true, .make = llama_attention({.kv_heads = kv_heads})});
    compare_on_all_grids(
        {.chunks = 2, .packed = true, .make = llama_attention({.kv_heads = kv_heads})});
  }
}

TEST(Layers, RotaryPositionsDoNotChangeAValueThatTheCallerKeeps) {
  const PieceResult one = run_piece({.make = turned_and_kept});
  for (const GridShape& grid : {GridShape{2, 1, 1, 1}, GridShape{2, 2, 2, 1}})
    EXPECT_EQ(difference(one, run_piece({.grid = grid, .make = turned_and_kept}), kTerms), "");
  compare_with_finite_differences({.make = turned_and_kept});
}

TEST(Layers, EmbeddingIsTheSameOnEveryGridAlsoWhereRanksHaveNoToken) {
  for (std::int64_t vocab : {11, 5})
    for (bool packed : {false, true})
      compare_on_all_grids({.vocab = vocab, .packed = packed, .make = embedding_of(vocab)});
}

TEST(Layers, LossIsTheSameOnEveryGridAlsoWhereRanksHaveNoToken) {
  for (std::int64_t vocab : {11, 5})
    compare_on_all_grids({.vocab = vocab, .make = cross_entropy_of(vocab), .loss_follows = true});
}

TEST(Layers, LossOfWeightedRowsIsTheSameOnEveryGrid) {
  for (int chunks : {1, 3})
    compare_on_all_grids(
        {.chunks = chunks, .make = cross_entropy_of(11, true), .loss_follows = true});
}

TEST(Layers, GradientsOnOneRankMatchFiniteDifferences) {
  compare_with_finite_differences({.make = alone<Linear>({.in = 24, .out = 48})});
  compare_with_finite_differences({.make = mlp});
  compare_with_finite_differences({.make = alone<Norm>({.width = 24})});
  compare_with_finite_differences({.make = attention_of(4)});
  compare_with_finite_differences({.make = norm_after_mlp<Norm::Kind::layer>});
  compare_with_finite_differences({.make = norm_after_mlp<Norm::Kind::rms>});
  compare_with_finite_differences({.make = gated_mlp});
  compare_with_finite_differences(
      {.make = llama_attention({.kv_heads = 4, .window = 2, .qk_norm = LlamaAttention::head})});
  for (std::int64_t kv_heads : {24, 4})
    compare_with_finite_differences(
        {.make = llama_attention({.kv_heads = kv_heads, .qk_norm = LlamaAttention::width})});
  compare_with_finite_differences({.make = embedding_of(11)});
  compare_with_finite_differences({.packed = true, .make = embedding_of(11)});
  compare_with_finite_differences(
      {.packed = true, .make = llama_attention({.kv_heads = 4, .qk_norm = LlamaAttention::head})});
  for (bool weights : {false, true})
    compare_with_finite_differences({.make = cross_entropy_of(11, weights), .loss_follows = true},
                                    kLossScale);
}

TEST(Layers, LinearRefusesAnInputOverTheWrongAxis) {
  try {
    run_piece({.make = [](ParameterGroup& group) -> Piece {
      const auto layer = std::make_shared<Linear>(
          group, "down",
          Linear::Options{.in = 24, .out = 48, .orientation = Orientation::transposed});
      return [layer](const Context& ctx, const PieceInput& in) { return (*layer)(ctx, in.x); };
    }});
    FAIL() << "no error for an input cut over y in a layer whose input axis is x";
  } catch (const Error& error) {
    EXPECT_STREQ(error.what(),
                 "rank 0: down.weight: the input has 24 columns over y, wanted 24 over x; "
                 "alternate Orientation::normal and Orientation::transposed");
  }
}

TEST(Layers, TokensRefuseInvalidPositionsAndDocumentStarts) {
  const auto make = [](const RowPositions& places) {
    const auto world = make_self();
    const Grid grid(*world, {});
    const auto backend = make_cpu_backend(1);
    Arena arena(backend->device());
    const Context ctx(*backend, arena, grid);
    make_tokens(ctx, std::vector<std::int32_t>(6), {}, {2, 3}, places);
  };
  const std::vector<std::int32_t> fits{0, 1, 2, 0, 1, 2}, late{0, 1, 2, 1, 1, 2}, few{0};
  make({.positions = late, .starts = fits});
  const auto refuses = [&](const RowPositions& places, const char* text) {
    EXPECT_THAT([&] { make(places); }, testing::ThrowsMessage<Error>(testing::HasSubstr(text)));
  };
  refuses({.positions = few}, "1 positions, 0 starts, 0 marks of padding and 0 lengths for 6 rows");
  refuses({.starts = late},
          "row 0 of a sequence, wanted a document start from 0 to that row, got 1");
  refuses({.positions = fits, .reach = 2}, "position 2, want 0 to 1");
}

TEST(Layers, EmbeddingRefusesSequencesLongerThanItsPositions) {
  try {
    run_piece({.sequences = 1, .positions = 6, .make = embedding_of(11)});
    FAIL() << "no error for 6 tokens and 5 positions";
  } catch (const Error& error) {
    EXPECT_STREQ(error.what(), "rank 0: embedding: sequences of 6 tokens, but wpe has 5 positions");
  }
}

TEST(OwnLayer, ThatReadsValuesAsAnotherTypeIsNamedWithItsBlock) {
  // Reads f32 of a bf16 value in forward, lazily or at once, or in backward.
  enum class Place { at_once, lazily, backward };
  for (const Place place : {Place::at_once, Place::lazily, Place::backward}) {
    PieceRun run{.dtype = DType::bf16};
    run.make = [place](ParameterGroup& group) -> Piece {
      const auto norm = std::make_shared<Norm>(group, "norm", Norm::Options{.width = 24});
      return [place, norm](const Context& ctx, const PieceInput& in) {
        const Var x = (*norm)(ctx, in.x);
        if (place == Place::at_once) x.front().value.view().row<float>(0);
        return each_later(ctx, x, [place](const Context& here, const Chunk& chunk) {
          if (place == Place::lazily) chunk.value.view().row<float>(0);
          const Chunk out = make_chunk(here, chunk, chunk.value, chunk.placement);
          return with_backward(here, out, [](const Tensor& d) { d.view().row<float>(0); });
        });
      };
    };
    EXPECT_THAT([&] { run_piece(run); },
                testing::ThrowsMessage<Error>(testing::MatchesRegex(
                    "rank 0: in block piece: layers_test.cpp:[0-9]+: elements of a view "
                    "\\(72,24\\) bf16 are not f32.*")));
  }
}
