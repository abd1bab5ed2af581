// Deliberate faults that the comparison of grids (axonn check) must find.
#include <atomic>

#include <gmock/gmock.h>

#include "axonn/compute/ops/forwarding_backend.h"
#include "axonn/plan/measure/compare.h"
#include "axonn/ranks/comm/threads/threads.h"
#include "axonn/run/config/prepared_run.h"

#include "tests/support/faulty_communicator.h"
#include "tests/support/tiny_model.h"

using namespace axonn;
using namespace axonn::testing_support;
using testing::AllOf;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::StartsWith;

namespace {

constexpr int kSteps = 5;
constexpr int kLayers = 2;
constexpr std::int64_t kHeadDim = 4, kKvHeads = 4, kWidth = 96;

/// Bytes of synthetic text. The vocabulary is one larger than bytes need, so that no even number
/// divides it and every grid with x > 1 here has padding.
PreparedRun run_on(const GridShape& grid, bool sequence_parallel = true) {
  Config config;
  config.model = {.layers = kLayers,
                  .hidden = kWidth,
                  .heads = kWidth / kHeadDim,
                  .kv_heads = kKvHeads,
                  .vocab = 257};
  config.data.synthetic = 20'000;
  config.training = {.steps = kSteps, .seq_len = 8, .global_batch = 24, .max_norm = 0};
  config.optimizer.lr = 1e-3;
  config.parallelism.set_grid(grid);
  config.parallelism.sequence_parallel = sequence_parallel;
  return prepared(std::move(config));
}

using MakeBackend = std::function<std::unique_ptr<Backend>(const Coords&)>;

std::unique_ptr<Backend> healthy(const Coords&) { return make_cpu_backend(1); }

/// Compares a run on the grid with these faults to one rank without faults, as axonn check does.
GridComparison check(const GridShape& grid, CommFault fault, const MakeBackend& backend = healthy,
                     bool sequence_parallel = true) {
  static const GridTrace reference = [] {
    GridTrace one;
    run_ranks(1, [&](Communicator& world) {
      one = trace_run(run_on({}), world, make_cpu_backend(1), {.steps = kSteps});
    });
    return one;
  }();
  GridTrace trace;
  const bool faulty = static_cast<bool>(fault.hits);
  std::atomic<int> hits = 0;
  run_ranks(grid.ranks(), [&](Communicator& world) {
    FaultyCommunicator wrapped(world, fault);
    GridTrace mine = trace_run(run_on(grid, sequence_parallel), wrapped,
                               backend(coords_of(grid, world.rank())), {.steps = kSteps});
    hits += wrapped.hits();
    if (world.rank() == 0) trace = std::move(mine);
  });
  EXPECT_EQ(hits > 0, faulty) << "the fault hit " << hits << " collectives";
  return compare(reference, trace, tolerance_of(DType::f32));
}

CommFault none() { return {}; }

std::string table_of(const GridComparison& c) {
  return comparison_table({c}, tolerance_of(DType::f32));
}

/// Whether a call is the sum of the gradients of block 0's key-value heads: keys and values, in the
/// weight and in the bias.
bool sums_key_values(const Collective& call, int y) {
  return call.operation == "all_reduce" && call.group == "x" && call.label == "h.0" &&
         call.data.count == 2 * kKvHeads * kHeadDim * (kWidth / y + 1);
}

/// Counts the calls of an operation that backward makes `each_step` times per step, once per layer
/// in reverse order.
class BackwardCount {
 public:
  explicit BackwardCount(int each_step) : each_step_(each_step) {}
  /// Whether this call is the one for layer `index` in forward order.
  bool is(int index) { return calls_++ % each_step_ == each_step_ - 1 - index; }

 private:
  int each_step_, calls_ = 0;
};

/// Adds the gradient of the first block's first norm weight twice.
class DoubledNorm : public ForwardingBackend {
 public:
  using ForwardingBackend::ForwardingBackend;
  void run(const RowwiseOperation& operation) override {
    ForwardingBackend::run(operation);
    ops::LayerNormWeightBackward again;
    if (const auto* norm = std::get_if<ops::LayerNormWeightBackward>(&operation))
      again = *norm;
    else if (const auto* whole = std::get_if<ops::NormBackward>(&operation))
      again = {whole->d_weight, {}, whole->d_out, whole->inp, whole->stats};
    else
      return;
    if (!norms_.is(0)) return;
    again.d_bias = {};
    ForwardingBackend::run(again);
  }

 private:
  BackwardCount norms_{2 * kLayers + 1};
};

/// Omits the gradient of one bias.
class ForgottenBias : public ForwardingBackend {
 public:
  ForgottenBias(std::unique_ptr<Backend> inner, int bias)
      : ForwardingBackend(std::move(inner)), bias_(bias) {}
  void run(const RowwiseOperation& operation) override {
    if (!std::holds_alternative<ops::ColumnSum>(operation) || !biases_.is(bias_))
      ForwardingBackend::run(operation);
  }

 private:
  int bias_;
  BackwardCount biases_{4 * kLayers};
};

/// Omits the gradient of the learned positions.
class ForgottenPositions : public ForwardingBackend {
 public:
  using ForwardingBackend::ForwardingBackend;
  void run(const RowwiseOperation& operation) override {
    if (!std::holds_alternative<ops::PositionsBackward>(operation))
      ForwardingBackend::run(operation);
  }
};

/// Treats the padding of the vocabulary as tokens.
class PaddedLogits : public ForwardingBackend {
 public:
  using ForwardingBackend::ForwardingBackend;
  void run(const RowwiseOperation& operation) override {
    RowwiseOperation wrong = operation;
    if (auto* stats = std::get_if<ops::SoftmaxStats>(&wrong))
      stats->piece.valid = stats->logits.cols;
    if (auto* gradient = std::get_if<ops::CrossEntropyBackward>(&wrong))
      gradient->piece.valid = gradient->logits.cols;
    if (auto* whole = std::get_if<ops::CrossEntropy>(&wrong)) whole->valid = whole->logits.cols;
    ForwardingBackend::run(wrong);
  }
};

}  // namespace

TEST(FaultsOfAGrid, AreNoneInAHealthyRun) {
  for (const GridShape& grid :
       {GridShape{1, 1, 1, 1}, GridShape{2, 2, 1, 1}, GridShape{4, 1, 1, 1}, GridShape{2, 1, 1, 2},
        GridShape{1, 2, 1, 2}, GridShape{6, 1, 1, 1}, GridShape{8, 1, 1, 1}}) {
    const GridComparison c = check(grid, none());
    EXPECT_TRUE(c.agrees) << table_of(c);
  }
}

TEST(FaultsOfAGrid, ShowWhenALayerSumsOverTheWrongAxis) {
  for (bool cut : {false, true}) {
    const auto sums_over_y = [cut](const Collective& call) {
      return call.operation == (cut ? "reduce_scatter" : "all_reduce") && call.group == "y" &&
             call.label == "h.0";
    };
    const GridComparison c =
        check({2, 2, 1, 1}, {CommFault::Kind::redirect, sums_over_y, "x"}, healthy, cut);
    EXPECT_FALSE(c.agrees) << table_of(c);
    EXPECT_EQ(c.loss_step, 0);
  }
}

TEST(FaultsOfAGrid, ShowWhenOneLayersSumsAreMissing) {
  for (bool cut : {false, true}) {
    for (const char* axis : {"x", "y"}) {
      const auto sums = [axis, cut](const Collective& call) {
        return call.operation == (cut ? "reduce_scatter" : "all_reduce") && call.group == axis &&
               call.label == "h.1";
      };
      const GridComparison c = check({2, 2, 1, 1}, {CommFault::Kind::drop, sums}, healthy, cut);
      EXPECT_FALSE(c.agrees) << table_of(c);
      EXPECT_EQ(c.loss_step, 0);
    }
  }
}

TEST(FaultsOfAGrid, ShowWhenPartialGradientsAreNotSummed) {
  const auto partial = [](const Collective& call) { return call.label == "partial gradients"; };
  const GridComparison c = check({2, 1, 1, 1}, {CommFault::Kind::drop, partial});
  EXPECT_FALSE(c.agrees) << table_of(c);
  EXPECT_THAT(c.first_parameter, StartsWith("h.0.ln_1.weight:"));
  EXPECT_THAT(c.differing_replica, HasSubstr("along x"));
}

TEST(FaultsOfAGrid, ShowInTheBlockWhoseGradientsAreNotSummedOverData) {
  const auto gradients = [](const Collective& call) {
    return call.operation == "reduce_scatter" && call.group == "data" && call.label == "h.1";
  };
  const GridComparison c = check({2, 1, 1, 2}, {CommFault::Kind::drop, gradients});
  EXPECT_FALSE(c.agrees) << table_of(c);
  EXPECT_NE(c.loss_step, 0) << "the fault must not change the first forward pass";
  EXPECT_THAT(c.first_parameter, StartsWith("h.1.ln_1.weight:"));
}

TEST(FaultsOfAGrid, ShowWhenOneNormsGradientIsCountedTwiceAlthoughAdamHidesItFromTheLosses) {
  const auto doubled = [](const Coords&) {
    return std::make_unique<DoubledNorm>(make_cpu_backend(1));
  };
  for (const GridShape& grid : {GridShape{2, 2, 1, 1}, GridShape{1, 2, 1, 2}}) {
    const GridComparison c = check(grid, none(), doubled);
    EXPECT_FALSE(c.agrees) << table_of(c);
    EXPECT_EQ(c.loss_step, -1) << "losses differ, but Adam's step should not depend on the scale";
    EXPECT_THAT(c.first_parameter, StartsWith("h.0.ln_1.weight:"));
    EXPECT_THAT(c.differing_replica, IsEmpty()) << "all ranks count it twice";
  }
}

TEST(FaultsOfAGrid, ShowWhenOneBiasIsNotSummedOverData) {
  const auto forgetful = [](const Coords& at) -> std::unique_ptr<Backend> {
    if (at.at(Axis::data) == 0) return healthy(at);
    return std::make_unique<ForgottenBias>(healthy(at), 2);
  };
  const GridComparison c = check({2, 1, 1, 2}, none(), forgetful);
  EXPECT_FALSE(c.agrees) << table_of(c);
  EXPECT_THAT(c.first_parameter, StartsWith("h.0.mlp.c_fc.bias:"));
}

TEST(FaultsOfAGrid, ShowAReplicaOfAParameterThatDiverges) {
  // Norms count only the first replica, so none of the first step shows it.
  const auto forgetful = [](const Coords& at) -> std::unique_ptr<Backend> {
    if (at.at(Axis::x) == 0) return healthy(at);
    return std::make_unique<ForgottenPositions>(healthy(at));
  };
  const GridComparison c = check({2, 1, 1, 2}, none(), forgetful);
  EXPECT_FALSE(c.agrees) << table_of(c);
  EXPECT_THAT(c.first_parameter, IsEmpty());
  EXPECT_EQ(c.differing_replica, "wpe.weight along x");
}

TEST(FaultsOfAGrid, ShowWhenPaddedLogitsAreLeftInTheSoftmax) {
  const auto padded = [](const Coords&) {
    return std::make_unique<PaddedLogits>(make_cpu_backend(1));
  };
  for (const GridShape& grid : {GridShape{2, 2, 1, 1}, GridShape{4, 1, 1, 1}}) {
    const GridComparison c = check(grid, none(), padded);
    EXPECT_FALSE(c.agrees) << table_of(c);
    EXPECT_EQ(c.loss_step, 0);
  }
}

TEST(FaultsOfAGrid, ShowWhenOnlyOneLogitOfPaddingIsLeftIn) {
  // 251 tokens over 2 and 4 ranks: the last rank has one column of padding.
  TinyRun run{.steps = 1, .make_model = tiny_gpt(4, true)};
  const TinyTrace one = run_tiny(run);
  for (const GridShape& grid : {GridShape{2, 1, 1, 1}, GridShape{4, 1, 1, 1}}) {
    run.grid = grid;
    run.make_backend = [] { return make_cpu_backend(1); };
    EXPECT_EQ(difference(one, run_tiny(run), run.dtype), "");
    run.make_backend = [] { return std::make_unique<PaddedLogits>(make_cpu_backend(1)); };
    EXPECT_THAT(difference(one, run_tiny(run), run.dtype), HasSubstr("DIFFERS"));
  }
}

TEST(FaultsOfAGrid, ShowWhenReplicasOfKeyValueHeadsAreNotSummed) {
  // Four heads over 8 and 6 ranks: 2 or 1.5 ranks per head.
  for (const GridShape& grid : {GridShape{8, 1, 1, 1}, GridShape{6, 1, 1, 1}}) {
    const auto sum = [](const Collective& call) { return sums_key_values(call, 1); };
    const GridComparison c = check(grid, {CommFault::Kind::drop, sum});
    EXPECT_FALSE(c.agrees) << table_of(c);
    EXPECT_THAT(c.first_parameter, StartsWith("h.0.attn.c_attn.weight:"));
  }
}

TEST(FaultsOfAGrid, ShowWhenOneReplicaOfAKeyValueHeadIsLeftOut) {
  const auto third = [](const Collective& call) {
    return sums_key_values(call, 1) && call.rank == 3;
  };
  const GridComparison c = check({8, 1, 1, 1}, {CommFault::Kind::mute, third});
  EXPECT_FALSE(c.agrees) << table_of(c);
  EXPECT_THAT(c.first_parameter, StartsWith("h.0.attn.c_attn.weight:"));
  EXPECT_THAT(c.first_parameter,
              AllOf(HasSubstr("its gradient norm is"), HasSubstr("on the reference")));
}
