// Silent corruption: a bit that flips in a rank's memory or results is found, and the rank named.
#include "axonn/run/train/corruption.h"

#include <bit>

#include <gmock/gmock.h>

#include "axonn/compute/ops/forwarding_backend.h"
#include "axonn/compute/ops/verifying_backend.h"
#include "axonn/foundation/base/check.h"
#include "axonn/ranks/comm/threads/threads.h"
#include "axonn/run/config/prepared_run.h"
#include "axonn/run/config/resolve.h"

#include "tests/support/runs.h"
#include "tests/support/temporary_path.h"

using namespace axonn;
using namespace axonn::testing_support;
using testing::AllOf;
using testing::HasSubstr;
using testing::StartsWith;

namespace {

void flip_a_bit(float& value) {
  value = std::bit_cast<float>(std::bit_cast<std::uint32_t>(value) ^ 1u << 20);
}

/// Flips a bit of the results of an operation in a layer, `times` times.
class FlippingBackend final : public ForwardingBackend {
 public:
  FlippingBackend(std::string layer, std::string operation, int times)
      : ForwardingBackend(make_cpu_backend(1)),
        layer_(std::move(layer)),
        operation_(std::move(operation)),
        times_(times) {}

  void mark(std::string_view layer) override { now_ = layer; }

 protected:
  void around(const OperationCall& call, const std::function<void()>& run) override {
    run();
    if (now_ == layer_ && call.name == operation_ && times_-- > 0)
      flip_a_bit(*call.operands.front().as<float>());
  }

 private:
  std::string layer_, operation_, now_;
  int times_;
};

using Change = std::function<void(Training&)>;

/// tiny_config() with 4 experts in each layer, two for each token.
Config config_with_experts() {
  Config config = tiny_config("unused");
  config.model.family = ModelFamily::llama;
  config.model.ffn = 48;
  config.model.experts = 4;
  config.model.experts_per_token = 2;
  config.model.expert_ffn = 24;
  return config;
}

/// What find_corruption() returns after two steps, and `change` on one rank.
std::string found_on(const GridShape& grid, int rank, const Change& change,
                     const std::function<std::unique_ptr<Backend>()>& backend = {},
                     Config config = tiny_config("unused")) {
  config = resolved(on_grid(config, grid));
  std::vector<std::string> found(grid.ranks());
  run_ranks(grid.ranks(), [&](Communicator& world) {
    const bool hit = world.rank() == rank;
    Training training(prepared(config), world, hit && backend ? backend() : make_cpu_backend(1));
    training.model.initialise();
    for (int step = 0; step < 2; ++step) training.run(step);
    training.model.settle();
    if (hit && change) change(training);
    found[world.rank()] = find_corruption(training, 2);
  });
  EXPECT_EQ(std::ranges::count(found, found.front()), std::ssize(found));
  return found.front();
}

/// Flips a bit of the first element of a parameter that the rank's piece holds.
Change flip(const std::string& parameter, const std::string& kind) {
  return [=](Training& training) {
    const auto& groups = training.optimizer.groups();
    for (std::size_t i = 0; i < groups.size(); ++i)
      for (const auto& [spec, slice] : groups[i]->piece_slices())
        for (const auto& [name, data] : training.optimizer.buffers(i))
          if (spec->name == parameter && name == kind)
            return flip_a_bit(data.as<float>()[slice.offset]);
    ADD_FAILURE() << "this rank holds nothing of " << parameter;
  };
}

}  // namespace

TEST(Corruption, NoneIsFoundInHealthyRuns) {
  for (const GridShape grid :
       {GridShape{}, GridShape{2, 2, 1, 1}, GridShape{1, 2, 2, 2}, GridShape{3, 1, 1, 2}})
    for (const ModelFamily family : {ModelFamily::gpt, ModelFamily::llama})
      for (const DType dtype : {DType::f32, DType::bf16}) {
        Config config = tiny_config("unused");
        config.model.family = family;
        config.model.kv_heads = 4;  // some shared by two ranks of x = 3
        config.model.ffn = 48;
        config.training.dtype = dtype;
        config.training.micro_batch = 2;
        config.training.global_batch = 24;
        EXPECT_EQ(found_on(grid, -1, {}, {}, config), "") << to_string(grid);
      }
}

TEST(Corruption, RanksThatShareSequencesHaveOtherResultsWithoutAFault) {
  Config config = tiny_config("unused");
  config.training.seq_len = 256;
  config.training.global_batch = 4;
  EXPECT_EQ(found_on({2, 1, 2, 2, 2}, 0, {}, {}, config), "");
  // Attention is computed in four pieces of the heads; two steps come first.
  const auto backend = [] {
    return std::make_unique<FlippingBackend>("h.0.attn.c_attn.weight", "attention", 9);
  };
  EXPECT_THAT(found_on({2, 1, 2, 2, 2}, 6, {}, backend, config),
              testing::AllOf(StartsWith("rank 6 ("), HasSubstr("when it computes it twice")));
}

TEST(Corruption, RanksWithOtherExpertsHaveOtherResultsWithoutAFault) {
  for (const GridShape grid : {GridShape{1, 1, 2, 2}, GridShape{2, 1, 2, 1, 1, 2},
                               GridShape{1, 1, 4, 1, 1, 2}, GridShape{1, 2, 2, 2, 1, 2}})
    EXPECT_EQ(found_on(grid, -1, {}, {}, config_with_experts()), "") << with_factors(grid);
}

TEST(Corruption, AFaultOfARankWithExpertsNamesItAlsoIfItChangesTheChoices) {
  const GridShape grid{1, 1, 2, 2, 1, 2};
  EXPECT_THAT(found_on(grid, 3, flip("model.layers.1.mlp.experts.3.up_proj.weight", "master"), {},
                       config_with_experts()),
              HasSubstr("rank 3 (x 0, y 0, z 1, data 1)"));
  // The logits of the router in the first of two computations, after two steps.
  const auto backend = [] {
    return std::make_unique<FlippingBackend>("model.layers.0.mlp.gate.weight", "route", 3);
  };
  EXPECT_THAT(found_on(grid, 2, {}, backend, config_with_experts()),
              AllOf(StartsWith("rank 2 ("), HasSubstr("route in layer model.layers.0.mlp.gate")));
}

TEST(Corruption, AFlippedBitOfAReplicatedParameterNamesItsRank) {
  // ln_1 is cut over y only, and lies in the pieces of data 1. Of three on x, the majority is
  // right.
  for (const int rank : {6, 7, 8, 9})
    EXPECT_THAT(found_on({3, 2, 1, 2}, rank, flip("h.1.ln_1.weight", "exp_avg")),
                StartsWith("rank " + std::to_string(rank) + " ("))
        << rank;
  EXPECT_EQ(found_on({3, 2, 1, 2}, 10, flip("h.1.ln_1.weight", "exp_avg_sq")),
            "rank 10 (x 1, y 1, z 0, data 1) differs in exp_avg_sq of h.1.ln_1.weight from other "
            "ranks on x");
  // Of two on x and two on data, only one rank differs on both.
  EXPECT_THAT(found_on({2, 1, 1, 2}, 3, flip("h.1.ln_1.weight", "master")),
              StartsWith("rank 3 (x 1, y 0, z 0, data 1) differs in "));
}

TEST(Corruption, AFlippedBitOfACopyOfTheWeightsNamesItsRank) {
  const auto flip_copy = [](Training& training) {
    flip_a_bit(training.model.model().groups()[1]->shard().as<float>()[5]);
  };
  EXPECT_EQ(found_on({2, 1, 2, 3}, 9, flip_copy),
            "rank 9 (x 1, y 0, z 0, data 2) differs in the weights of h.0 from other ranks on "
            "data");
  EXPECT_EQ(found_on({1, 2, 1, 2}, 3, flip_copy),
            "rank 1 (x 0, y 1, z 0, data 0) or rank 3 (x 0, y 1, z 0, data 1) differs in the "
            "weights of h.0 from other ranks on data");
}

TEST(Corruption, AProductThatIsAlwaysWrongNamesItsRankAndLayer) {
  // Every step's product is wrong, and so are the weights, but alike on all ranks.
  for (const int rank : {2, 3, 5})
    EXPECT_THAT(found_on({2, 1, 3, 1}, rank, {},
                         [] {
                           return std::make_unique<FlippingBackend>("h.1.mlp.c_fc.weight", "matmul",
                                                                    1'000'000);
                         }),
                testing::AllOf(StartsWith("rank " + std::to_string(rank) + " ("),
                               HasSubstr("differs in the result of matmul in layer "
                                         "h.1.mlp.c_fc.weight from other ranks on z")));
}

TEST(Corruption, AResultThatIsWrongOnceNamesItsRankWithoutReplicas) {
  for (const int rank : {0, 3}) {
    // Two steps come first; the third call is that of the first of the two passes.
    const auto backend = [&] {
      return std::make_unique<FlippingBackend>("h.0.attn.c_attn.weight", "attention", 3);
    };
    EXPECT_THAT(found_on({2, 2, 1, 1}, rank, {}, backend),
                testing::AllOf(StartsWith("rank " + std::to_string(rank) + " ("),
                               HasSubstr("differs in the result of attention in layer "
                                         "h.0.attn.c_attn.weight when it computes it twice")));
  }
}

TEST(Corruption, TheSearchChangesNoLossAndARunEndsAtAFlippedBit) {
  test::TemporaryPath folder;
  const Config plain = on_grid(tiny_config(folder / "plain"), {2, 1, 1, 3});
  Config verified = plain;
  verified.output.dir = folder / "verified";
  verified.training.verify_every = 3;
  train_on_threads(plain);
  train_on_threads(verified);
  EXPECT_EQ(column(metrics_of(verified), "loss"), column(metrics_of(plain), "loss"));
  EXPECT_THAT(test::slurp(verified.output.dir + "/logs/rank-0.log"),
              HasSubstr("verified: step 9, in "));

  /// AdamW, but rank 3 flips a bit of a norm's weight after step 4.
  struct Flipping : Optimizer {
    explicit Flipping(const OptimizerConfig& config) : rule(make_optimizer(config)) {}
    std::vector<std::string> state_names() const override { return rule->state_names(); }
    void update(const Context& ctx, const ParameterGroup& group,
                const Update& update) const override {
      rule->update(ctx, group, update);
      if (update.step != 3 || group.name() != "ln_f" || ctx.grid.world().rank() != 3) return;
      flip_a_bit(group.master().as<float>()[group.piece_slices().front().slice.offset]);
    }
    std::unique_ptr<Optimizer> rule;
  };
  Config faulty = on_grid(verified, {3, 2, 1, 1});
  faulty.output.dir = folder / "faulty";
  try {
    train_on_threads(faulty, {.make_optimizer = [](const OptimizerConfig& config) {
                       return std::make_unique<Flipping>(config);
                     }});
    FAIL() << "the bit was not found";
  } catch (const Error& error) {
    EXPECT_THAT(error.what(),
                HasSubstr("step 6: silent corruption: rank 3 (x 0, y 1, z 0, data 0) differs in "
                          "master of ln_f.weight from other ranks on x; "));
    EXPECT_THAT(error.what(), HasSubstr("wrong since step 3: resume from a checkpoint no newer"));
  }
}

TEST(Corruption, VerifiedProductsHaveTheSameBitsOnEveryGrid) {
  for (const GridShape grid : {GridShape{}, GridShape{2, 2, 1, 1}, GridShape{1, 1, 2, 2}})
    for (const DType dtype : {DType::f32, DType::bf16, DType::f16})
      for (Config config : {tiny_config("unused"), config_with_experts()}) {
        config.training.dtype = dtype;
        const std::vector<double> without = first_losses(on_grid(config, grid));
        config.training.verify_products = true;
        EXPECT_EQ(first_losses(on_grid(config, grid)), without) << with_factors(grid);
      }
}

TEST(Corruption, AVerifiedProductIsComputedAgainAndEndsItsStepIfItIsWrongOnceMore) {
  for (const std::string layer : {"h.0.attn.c_proj.weight", "h.1.mlp.c_fc.weight"}) {
    const Config config = resolved(on_grid(tiny_config("unused"), {2, 1, 1, 1}));
    std::vector<std::string> remarks;
    const auto loss_with = [&](int flips) {
      double loss = 0;
      run_ranks(2, [&](Communicator& world) {
        std::unique_ptr<Backend> backend = make_cpu_backend(1);
        if (world.rank() == 1) backend = std::make_unique<FlippingBackend>(layer, "matmul", flips);
        Training training(prepared(config), world,
                          std::make_unique<VerifyingBackend>(std::move(backend), 1,
                                                             concat("rank ", world.rank())));
        training.model.initialise();
        const StepResult result = training.run(0);
        if (world.rank() == 1) loss = result.loss;
        if (world.rank() == 1) remarks = training.model.backend().take_remarks();
      });
      return loss;
    };
    const double clean = loss_with(0);
    EXPECT_THAT(remarks, testing::IsEmpty());
    EXPECT_EQ(loss_with(1), clean);
    const auto names_it = AllOf(HasSubstr("silent corruption: rank 1: the product f32 N"),
                                HasSubstr(concat(" of ", layer, ": rows 0 to ")));
    EXPECT_THAT(remarks, testing::ElementsAre(names_it));
    EXPECT_THAT([&] { loss_with(2); }, testing::ThrowsMessage<Error>(names_it));
  }
}
