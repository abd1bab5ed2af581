#include "axonn/ranks/parallel/parameters.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <mutex>
#include <stdexcept>

#include <gmock/gmock.h>

#include "axonn/foundation/base/check.h"
#include "axonn/network/nn/attention/attention.h"
#include "axonn/network/nn/embedding.h"
#include "axonn/network/nn/linear.h"
#include "axonn/network/nn/norm.h"
#include "axonn/ranks/comm/dry_world.h"
#include "axonn/ranks/comm/threads/threads.h"
#include "axonn/ranks/parallel/block.h"
#include "axonn/ranks/parallel/scheduling.h"

#include "tests/support/grids.h"

using namespace axonn;
using namespace axonn::testing_support;

namespace {

/// A group with every kind of parameter: cut both ways, in segments, padded, vectors.
void declare(ParameterGroup& group) {
  const Heads heads{24, 4, 4};
  const Norm norm(group, "norm", {.width = 96});
  const Linear up(group, "up", {.in = 96, .out = heads.qkv_width(), .heads = heads});
  const Linear gate_up(
      group, "mlp",
      {.in = 96, .out = 48, .segments = {{.rows = 24}, {.rows = 24}}, .parts = {"gate", "up"}});
  const Linear down(group, "down", {.in = 96, .out = 48, .orientation = Orientation::transposed});
  const Embedding embedding(group, {"wte", "wpe"}, {.vocab = 251, .width = 96, .positions = 7});
}

constexpr int kExperts = 4;

/// The layout of a matrix of expert `number`.
Layout of_expert(std::int64_t number, std::int64_t rows, std::int64_t cols, bool transposed) {
  return {.rows = rows,
          .cols = cols,
          .row_axis = transposed ? Axis::y : Axis::x,
          .col_axis = transposed ? Axis::x : Axis::y,
          .expert = ExpertNumber{number, kExperts}};
}

/// A layer of experts: of each, gate and up joined, and down. Returns the operands.
std::vector<const Parameter*> declare_experts(ParameterGroup& group) {
  std::vector<const Parameter*> operands;
  for (int number = 0; number < kExperts; ++number) {
    const auto spec = [&](const char* name, const Layout& layout) {
      return ParameterSpec{.name = "experts." + std::to_string(number) + '.' + name,
                           .layout = layout,
                           .init_std = 1,
                           .decays = true};
    };
    const Layout in = of_expert(number, 6, 8, false);
    operands.push_back(&group.add_joined("gate and up", {spec("gate", in), spec("up", in)}));
    operands.push_back(&group.add(spec("down", of_expert(number, 8, 6, true))));
  }
  return operands;
}

/// Grids on which several ranks share the experts.
std::vector<GridShape> grids_of_experts() {
  if (sanitized()) return {{1, 1, 4, 1, 1, 2}, {2, 1, 2, 2, 2, 2}};
  return {{1, 1, 2, 1, 1, 2}, {1, 1, 4, 1, 1, 2}, {1, 1, 4, 1, 1, 4}, {1, 1, 2, 2, 1, 2},
          {2, 1, 2, 1, 2, 2}, {2, 2, 2, 1, 1, 2}, {1, 1, 4, 2, 2, 2}, {1, 2, 4, 1, 4, 2}};
}

using Values = std::map<std::string, std::vector<float>>;

struct Held {
  Values values;  ///< of every parameter, by global index
  std::map<std::string, std::vector<int>> owners;
  std::int64_t owned = 0;  ///< elements in owned ranges of all ranks
};

/// The values and owners of all ranks of a grid after initialise(): of the parameters above, or of
/// experts.
Held initialised(const GridShape& shape, DType dtype, Holders holders = Holders::all_of_z) {
  Held held;
  std::mutex mutex;
  run_ranks(shape.ranks(), [&](Communicator& world) {
    const auto backend = make_cpu_backend(1);
    Arena arena(backend->device());
    const Grid grid(world, shape);
    const Context ctx(*backend, arena, grid, dtype);
    ParameterGroup group("all", grid, holders);
    if (holders == Holders::all_of_z)
      declare(group);
    else
      declare_experts(group);
    group.allocate(ctx);
    group.initialise(ctx, 5);
    const std::lock_guard lock(mutex);
    std::int64_t last = -1;
    for (const auto& [begin, end] : group.owned_ranges()) {
      EXPECT_GT(begin, last) << "adjacent ranges must be merged";
      EXPECT_GT(end, begin);
      held.owned += end - begin;
      last = end;
    }
    for (const auto& [spec, slice] : group.piece_slices()) {
      auto& values = held.values[spec->name];
      auto& owners = held.owners[spec->name];
      values.resize(spec->layout.count(), std::nanf(""));
      owners.resize(spec->layout.count());
      for (std::int64_t i = 0; i < slice.count(); ++i) {
        const std::int64_t e = slice.begin + i,
                           index = (slice.row + e / slice.cols) * spec->layout.cols + slice.col +
                                   e % slice.cols;
        const float value = group.master().as<float>()[slice.offset + i];
        EXPECT_TRUE(std::isnan(values[index]) || values[index] == value) << spec->name;
        values[index] = value;
        owners[index] += slice.owned;
      }
    }
  });
  return held;
}

}  // namespace

TEST(ParameterGroup, StartsWithTheSameValuesOnEveryGridAndOwnsEachOnce) {
  const Held one = initialised({}, DType::f32);
  std::int64_t count = 0;
  for (const auto& [name, values] : one.values) count += static_cast<std::int64_t>(values.size());
  EXPECT_EQ(one.owned, count);
  for (const GridShape& shape : many_grids()) {
    SCOPED_TRACE("grid " + to_string(shape));
    const Held held = initialised(shape, DType::f32);
    EXPECT_EQ(held.values, one.values);
    EXPECT_EQ(held.owned, count);
    for (const auto& [name, owners] : held.owners) EXPECT_THAT(owners, testing::Each(1)) << name;
  }
}

TEST(ParameterGroup, StartsFromTheSameMasterCopiesInBothTypes) {
  EXPECT_EQ(initialised({2, 1, 2, 1}, DType::bf16).values, initialised({}, DType::f32).values);
}

TEST(ParameterGroup, StartsExpertsWithTheSameValuesOnEveryGridAndOwnsEachOnce) {
  const Held one = initialised({}, DType::f32, Holders::same_experts);
  EXPECT_EQ(one.owned, kExperts * 3 * 48);
  for (const GridShape& shape : grids_of_experts()) {
    SCOPED_TRACE("grid " + with_factors(shape));
    const Held held = initialised(shape, DType::f32, Holders::same_experts);
    EXPECT_EQ(held.values, one.values);
    EXPECT_EQ(held.owned, one.owned);
    for (const auto& [name, owners] : held.owners) EXPECT_THAT(owners, testing::Each(1)) << name;
  }
}

TEST(ParameterGroup, SumsGradientsOfExpertsOverThoseWhoHoldThemAndOverData) {
  // Small integers, so sums are exact.
  const auto summand = [](const Coords& at, std::int64_t number) {
    return static_cast<float>((number + 1) * (1 + at.at(Axis::z) + 10 * at.at(Axis::data)));
  };
  for (const GridShape& shape : grids_of_experts()) {
    SCOPED_TRACE("grid " + with_factors(shape));
    double squares = 0, want_squares = 0;
    const auto want = [&](std::int64_t number) {  // in two micro-batches
      float sum = 0;
      for (int r = 0; r < shape.ranks(); ++r) {
        const Coords at = coords_of(shape, r);
        const bool one_of_xy = at.at(Axis::x) == 0 && at.at(Axis::y) == 0;
        if (one_of_xy && number / (kExperts / shape.experts) == experts_part(shape, at))
          sum += 2 * summand(at, number);
      }
      return sum;
    };
    for (int number = 0; number < kExperts; ++number)
      want_squares += 3 * 48 * want(number) * want(number);
    std::mutex mutex;
    run_ranks(shape.ranks(), [&](Communicator& world) {
      const auto backend = make_cpu_backend(1);
      Arena arena(backend->device());
      const Grid grid(world, shape);
      const Context ctx(*backend, arena, grid);
      ParameterGroup group("all", grid, Holders::same_experts);
      const auto operands = declare_experts(group);
      group.allocate(ctx);
      group.begin_step(ctx);
      for (int micro_batch = 0; micro_batch < 2; ++micro_batch) {
        group.expect_reduce();
        group.begin_backward(ctx);
        for (const Parameter* parameter : operands) {
          const View block = parameter->gradient(ctx);
          const float more = summand(grid.coords(), parameter->spec().layout.expert->number);
          for (std::int64_t i = 0; i < block.count(); ++i) block.as<float>()[i] += more;
        }
        group.reduce(ctx);
        group.finish_reduce(ctx);
      }
      ParameterGroup* const groups[] = {&group};
      finish_gradients(ctx, groups);
      const float* gradient = group.gradient().as<float>();
      for (const auto& [spec, slice] : group.piece_slices())
        EXPECT_EQ(std::count(gradient + slice.offset, gradient + slice.offset + slice.count(),
                             want(spec->layout.expert->number)),
                  slice.count())
            << spec->name;
      const std::lock_guard lock(mutex);
      for (const auto& [begin, end] : group.owned_ranges())
        for (std::int64_t i = begin; i < end; ++i) squares += gradient[i] * gradient[i];
    });
    EXPECT_EQ(squares, want_squares) << "the norm counts an element never or twice";
  }
}

TEST(ParameterGroup, KnowsTheSizesOfExpertsBeforeItIsAllocated) {
  struct Want {
    GridShape shape;
    std::int64_t flat, shard, piece;
  };
  // An expert takes 96 elements, and 48 that are padded to 64; blocks are padded to 32 for each
  // rank that shares them.
  for (const auto& [shape, flat, shard, piece] :
       {Want{{}, 640, 640, 640}, Want{{.z = 4}, 640, 160, 160},
        Want{{.z = 4, .experts = 2}, 320, 160, 160}, Want{{.z = 4, .experts = 4}, 160, 160, 160},
        Want{{.z = 2, .data = 2, .experts = 2}, 320, 320, 160},
        Want{{.z = 4, .data = 2, .experts = 4}, 192, 192, 96}})
    for (int rank = 0; rank < shape.ranks(); ++rank) {
      const auto world = make_dry_world(shape, rank);
      const Grid grid(*world, shape);
      ParameterGroup group("all", grid, Holders::same_experts);
      declare_experts(group);
      const FlatSizes sizes = group.sizes();
      EXPECT_EQ(sizes.flat, flat) << with_factors(shape);
      EXPECT_EQ(sizes.shard, shard) << with_factors(shape);
      EXPECT_EQ(sizes.piece, piece) << with_factors(shape);
      EXPECT_EQ(sizes.decayed, sizes.flat / 160 * 160) << with_factors(shape);
      EXPECT_EQ(group.stays(), shape.z == shape.experts);
    }
}

TEST(ParameterGroup, RefusesRanksThatDoNotDivideTheExperts) {
  const GridShape shape{.z = 3, .experts = 3};
  const auto world = make_dry_world(shape, 0);
  const Grid grid(*world, shape);
  ParameterGroup group("h.0", grid, Holders::same_experts);
  EXPECT_THAT([&] { declare_experts(group); },
              testing::ThrowsMessage<UsageError>(
                  testing::HasSubstr("experts = 3 does not divide the 4 experts of experts.0.gate; "
                                     "it must be one of 1, 2, 4")));
}

TEST(ParameterGroup, StartsWithTheMeanAndDeviationOfTheSpec) {
  const Held one = initialised({}, DType::f32);
  EXPECT_THAT(one.values.at("norm.weight"), testing::Each(1));
  EXPECT_THAT(one.values.at("up.bias"), testing::Each(0));
  const auto& table = one.values.at("wte");
  double squares = 0;
  for (float value : table) squares += value * value;
  const auto n = static_cast<double>(table.size());
  // The mean square of n normal numbers of variance v has a standard deviation of v · sqrt(2 / n).
  EXPECT_NEAR(squares / n, 0.0004, 5 * 0.0004 * std::sqrt(2 / n));
}

TEST(ParameterGroup, GathersWholeBlocksOverZWithDecayedParametersFirst) {
  const GridShape shape{1, 1, 2, 2};
  run_ranks(4, [&](Communicator& world) {
    const auto backend = make_cpu_backend(1);
    Arena arena(backend->device());
    const Grid grid(world, shape);
    const Context ctx(*backend, arena, grid);
    ParameterGroup group("all", grid);
    declare(group);
    group.allocate(ctx);
    group.initialise(ctx, 5);
    group.acquire(ctx);
    std::int64_t decayed_end = 0, others_begin = 1 << 30;
    for (const auto& parameter : group.parameters()) {
      const View block = parameter->weight();
      EXPECT_EQ(block.count(), parameter->spec().layout.count());
      const auto begin = reinterpret_cast<std::uintptr_t>(block.data);
      EXPECT_TRUE(parameter->follows() || begin % 64 == 0);
      if (parameter->spec().decays)
        decayed_end = std::max(decayed_end, parameter->offset() + block.count());
      else
        others_begin = std::min(others_begin, parameter->offset());
    }
    EXPECT_LE(decayed_end, others_begin);
    group.release();
  });
}

TEST(ParameterGroup, JoinedParametersLieOneAfterAnotherAndHaveOneViewOfAll) {
  for (const GridShape& shape : {GridShape{}, GridShape{2, 1, 2, 1}, GridShape{1, 3, 1, 1}}) {
    run_ranks(shape.ranks(), [&](Communicator& world) {
      const auto backend = make_cpu_backend(1);
      Arena arena(backend->device());
      const Grid grid(world, shape);
      const Context ctx(*backend, arena, grid);
      ParameterGroup group("all", grid);
      const auto spec = [](const char* name, std::int64_t rows) {
        return ParameterSpec{
            .name = name,
            .layout = {.rows = rows, .cols = 3, .row_axis = Axis::x, .col_axis = Axis::y},
            .init_std = 1};
      };
      const Parameter& before = group.add(spec("before", 2));
      const Parameter& all = group.add_joined("all", {spec("a", 2), spec("b", 6), spec("c", 4)});
      EXPECT_EQ(group.parameters().size(), 4) << "the joined parameter must not be listed";
      group.allocate(ctx);
      group.initialise(ctx, 5);
      group.acquire(ctx);
      std::vector<float> values;
      for (std::size_t i = 1; i < 4; ++i) {
        const View part = group.parameters()[i]->weight();
        const float* data = part.as<float>();
        values.insert(values.end(), data, data + part.count());
      }
      const View whole = all.weight();
      EXPECT_EQ(whole.rows, 12 / shape.x);
      EXPECT_EQ(whole.cols, 3 / shape.y);
      EXPECT_EQ(std::vector<float>(whole.as<float>(), whole.as<float>() + whole.count()), values);
      EXPECT_EQ(all.offset() % 32, 0);
      EXPECT_GE(all.offset(), before.offset() + before.weight().count());
      group.release();
    });
  }
}

TEST(ParameterGroup, RefusesToJoinDifferentLayouts) {
  run_ranks(1, [](Communicator& world) {
    const Grid grid(world, {});
    ParameterGroup group("block", grid);
    EXPECT_THAT(
        [&] {
          group.add_joined("both", {{.name = "a", .layout = {.rows = 3, .cols = 2}},
                                    {.name = "b", .layout = {.rows = 3, .cols = 4}}});
        },
        testing::ThrowsMessage<Error>(
            testing::HasSubstr("b: cannot be joined in both: its layout or weight decay differs")));
  });
}

TEST(ParameterGroup, JoinsPartsThatAreKeptAlikeInRuns) {
  run_ranks(1, [](Communicator& world) {
    const Grid grid(world, {});
    ParameterGroup group("block", grid), codes("block (q8_0)", grid), whole("whole", grid);
    codes.quantize(Quantization::q8_0);
    group.divert(whole, [](const ParameterSpec& spec) { return spec.name == "trained"; });
    group.divert(codes, [](const ParameterSpec& spec) { return spec.name < "c"; });
    const auto rows = [&](std::vector<std::string> names) {
      std::vector<ParameterSpec> parts;
      for (std::size_t i = 0; i < names.size(); ++i)
        parts.push_back({.name = std::move(names[i]),
                         .layout = {.rows = static_cast<std::int64_t>(i) + 1, .cols = 32}});
      std::vector<std::int64_t> each;
      for (const Parameter* run : group.add_runs("all", parts)) each.push_back(run->local_rows());
      return each;
    };
    EXPECT_THAT(rows({"a", "b", "c", "aa"}), testing::ElementsAre(1 + 2, 3, 4));
    EXPECT_EQ(codes.parameters().size(), 3);
    EXPECT_EQ(group.parameters().size(), 1);
    EXPECT_THAT(rows({"d", "e"}), testing::ElementsAre(3));
    EXPECT_THAT(
        [&] {
          rows({"f", "trained"});
        },
        testing::ThrowsMessage<UsageError>(
            testing::HasSubstr("train all of its parts whole, or none")));
  });
}

TEST(ParameterGroup, IsGatheredAgainIfAPrefetchedCopyIsOutOfDate) {
  run_ranks(2, [](Communicator& world) {
    const auto backend = make_cpu_backend(1);
    Arena arena(backend->device());
    const Grid grid(world, {1, 1, 2, 1});
    StepState state;
    Context ctx(*backend, arena, grid);
    ctx.own_scheduling().step = &state;
    ParameterGroup first("first", grid), second("second", grid);
    first.add({.name = "a", .layout = {.rows = 100}});
    const Parameter& b = second.add({.name = "b", .layout = {.rows = 100}, .init_mean = 1});
    for (ParameterGroup* group : {&first, &second}) {
      group->allocate(ctx);
      group->initialise(ctx, 1);
    }
    for (bool known : {false, true}) {
      state.prefetcher.begin_pass();
      first.acquire(ctx);  // the second time, this gathers `second` as well
      first.release();
      std::fill_n(second.master().as<float>(), second.piece_size(), known ? 3.f : 2.f);
      second.publish_values(ctx);
      second.acquire(ctx);
      const float* values = b.weight().as<float>();
      EXPECT_THAT(std::vector<float>(values, values + 100), testing::Each(known ? 3.f : 2.f));
      second.release();
    }
  });
}

TEST(ParameterGroup, WaitsForAnUnusedPrefetchBeforeItSetsValues) {  // see ThreadSanitizer
  run_ranks(2, [](Communicator& world) {
    const auto backend = make_cpu_backend(1);
    Arena arena(backend->device());
    const Grid grid(world, {1, 1, 2, 1});
    StepState state;
    Context ctx(*backend, arena, grid);
    ctx.dtype = DType::bf16;
    ctx.own_scheduling().step = &state;
    ParameterGroup first("first", grid), second("second", grid);
    const Parameter& b = second.add({.name = "b", .layout = {.rows = 100}});
    first.add({.name = "a", .layout = {.rows = 100}});
    for (ParameterGroup* group : {&first, &second}) {
      group->freeze();
      group->allocate(ctx);
      group->initialise(ctx, 1);
    }
    for (int pass = 0; pass < 3; ++pass) {
      state.prefetcher.begin_pass();
      first.acquire(ctx);  // from the second pass on, this gathers `second` as well
      first.release();
      second.set_values(ctx, 0, std::vector<float>(second.piece_size(), 2));
      second.publish_values(ctx);
      second.acquire(ctx);
      EXPECT_EQ(get(b.weight().as<bf16>()[99]), 2);
      second.release();
    }
  });
}

TEST(GatheredWeights, AreFreedByReleaseAndByAnException) {
  run_ranks(2, [](Communicator& world) {
    const auto backend = make_cpu_backend(1);
    Arena arena(backend->device());
    const Grid grid(world, {.z = 2});
    const Context ctx(*backend, arena, grid);
    ParameterGroup group("block", grid);
    const Parameter& weight = group.add({.name = "w", .layout = {.rows = 3}});
    group.allocate(ctx);
    group.initialise(ctx, 1);
    EXPECT_THROW(weight.weight(), Error);
    const auto fail_inside = [&] {
      const GatheredWeights weights(ctx, group);
      weight.weight();
      throw std::runtime_error("a layer's");
    };
    EXPECT_THROW(fail_inside(), std::runtime_error);
    EXPECT_THROW(weight.weight(), Error);
    GatheredWeights weights(ctx, group);
    weight.weight();
    weights.release();
    EXPECT_THROW(weight.weight(), Error);
  });
}

TEST(ParameterGroup, IsGatheredAgainIfAKeptCopyIsOutOfDate) {
  run_ranks(2, [](Communicator& world) {
    const auto backend = make_cpu_backend(1);
    Arena arena(backend->device());
    const Grid grid(world, {.z = 2});
    const Context ctx(*backend, arena, grid);
    ParameterGroup group("block", grid);
    const Parameter& weight = group.add({.name = "w", .layout = {.rows = 3}, .init_mean = 1});
    group.allocate(ctx);
    group.initialise(ctx, 1);
    const auto read = [&](ParameterGroup::Gathered then) {
      group.acquire(ctx);
      const float value = weight.weight().as<float>()[2];
      group.release(then);
      return value;
    };
    EXPECT_EQ(read(ParameterGroup::Gathered::kept), 1);
    std::fill_n(group.master().as<float>(), group.piece_size(), 2.f);
    EXPECT_EQ(weight.weight().as<float>()[2], 1) << "it was not kept";
    group.publish_values(ctx);
    EXPECT_EQ(read(ParameterGroup::Gathered::kept), 2);
    EXPECT_EQ(read(ParameterGroup::Gathered::freed), 2);
    EXPECT_THROW(weight.weight(), Error);
  });
}

TEST(HeldWeights, OnlyFrozenOnesStayBehindIfTheyAreKeptOverSteps) {
  run_ranks(2, [](Communicator& world) {
    const auto backend = make_cpu_backend(1);
    Arena arena(backend->device());
    const Grid grid(world, {.z = 2});
    Context ctx(*backend, arena, grid);
    ParameterGroup trained("trained", grid), frozen("frozen", grid);
    std::vector<const Parameter*> weights;
    frozen.freeze();
    for (ParameterGroup* group : {&trained, &frozen}) {
      weights.push_back(&group->add({.name = "w", .layout = {.rows = 3}}));
      group->allocate(ctx);
      group->initialise(ctx, 1);
    }
    for (const KeepWeights keep : {KeepWeights::micro_batch, KeepWeights::step}) {
      ctx.own_scheduling().run.keep_weights = keep;
      {
        const HeldWeights held(ctx, {&trained, &frozen});
        for (const Parameter* weight : weights) weight->weight();
      }
      EXPECT_THROW(weights[0]->weight(), Error);
      if (keep == KeepWeights::step)
        weights[1]->weight();
      else
        EXPECT_THROW(weights[1]->weight(), Error);
    }
  });
}

TEST(ParameterGroup, RefusesUseOutOfOrder) {
  run_ranks(1, [](Communicator& world) {
    const auto backend = make_cpu_backend(1);
    Arena arena(backend->device());
    const Grid grid(world, {});
    const Context ctx(*backend, arena, grid);
    ParameterGroup group("block", grid);
    const Parameter& weight = group.add({.name = "w", .layout = {.rows = 3}});
    EXPECT_THROW(group.initialise(ctx, 1), Error);
    for (const auto& early : {&ParameterGroup::master, &ParameterGroup::shard,
                              &ParameterGroup::piece_of_compute, &ParameterGroup::gradient})
      EXPECT_THROW((group.*early)(), Error);
    EXPECT_THROW(group.publish(ctx), Error);
    EXPECT_THROW(group.add({.name = "", .layout = {.rows = 3}}), Error);
    EXPECT_THROW(group.add({.name = "none", .layout = {}}), Error);
    group.allocate(ctx);
    EXPECT_THROW(group.acquire(ctx), Error) << "no values";
    EXPECT_THROW(group.release(), Error);
    EXPECT_THROW(group.gradient(), Error);
    EXPECT_THROW(group.reduce_over_data(ctx), Error);
    EXPECT_THROW(group.layout().slices(grid.coords(), group.sizes(), 1), Error);
    EXPECT_THROW(run_block(ctx, std::span<ParameterGroup* const>(), Var(),
                           [](const Context&, const Var& x) { return x; }),
                 Error);
    EXPECT_THROW(Var().front(), Error);
    EXPECT_THROW(group.allocate(ctx), Error);
    EXPECT_THROW(group.add({.name = "late", .layout = {.rows = 3}}), Error);
    EXPECT_THROW(weight.weight(), Error);
    EXPECT_THROW(weight.gradient(ctx), Error);
  });
}

TEST(ParameterGroup, RefusesAGridThatCannotCutAParameterAndNamesIt) {
  try {
    run_ranks(5, [](Communicator& world) {
      const Grid grid(world, {1, 5, 1, 1});
      ParameterGroup group("block", grid);
      const Norm norm(group, "h.0.ln_1", {.width = 96});
    });
    FAIL() << "no error for 96 rows over 5 ranks";
  } catch (const UsageError& error) {
    EXPECT_THAT(error.what(),
                testing::EndsWith("h.0.ln_1.weight: 96 rows cannot be cut over y = 5; y must be "
                                  "one of 1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 96"));
  }
}
