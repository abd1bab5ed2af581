// Groups that are kept as codes have the values of the quantized global matrices on every grid.
#include <algorithm>
#include <array>
#include <cmath>
#include <map>
#include <string>
#include <vector>

#include <gmock/gmock.h>

#include "axonn/compute/tensor/quantization.h"
#include "axonn/foundation/base/check.h"
#include "axonn/foundation/base/random.h"
#include "axonn/network/nn/linear.h"
#include "axonn/ranks/comm/threads/threads.h"
#include "axonn/ranks/parallel/parameters.h"

#include "tests/support/grids.h"
#include "tests/support/some_records.h"

using namespace axonn;
using namespace axonn::testing_support;
using testing::HasSubstr;

namespace {

constexpr std::uint64_t kInitialSeed = 5;
constexpr std::int64_t kWide = 2048;  // columns of blocks of 256 that 8 ranks may have parts of

/// Matrices that are cut both ways, in heads, joined, and padded. Of 96 columns blocks of 64 are
/// parts of two rows.
void declare_products(ParameterGroup& group, std::int64_t in = 96) {
  const Heads heads{24, 4, 4};
  const Linear qkv(group, "qkv",
                   {.in = in, .out = heads.qkv_width(), .bias = false, .heads = heads});
  const Linear gate_up(group, "mlp",
                       {.in = in,
                        .out = 96,
                        .bias = false,
                        .segments = {{.rows = 48}, {.rows = 48}},
                        .parts = {"gate", "up"}});
  const Linear down(group, "down",
                    {.in = in, .out = 48, .orientation = Orientation::transposed, .bias = false});
}

float initial(const ParameterSpec& spec, std::int64_t i) {
  return static_cast<float>(spec.init_std * Random(kInitialSeed, spec.name).normal(i));
}

std::vector<float> initial_values(const ParameterSpec& spec) {
  std::vector<float> all(spec.layout.count());
  for (std::size_t i = 0; i < all.size(); ++i) all[i] = initial(spec, static_cast<std::int64_t>(i));
  return all;
}

using RecordsByName = std::map<std::string, std::vector<std::byte>, std::less<>>;

/// Gives a group the codes of these values, or of a kind that is only read these records.
void fill(const Context& ctx, ParameterGroup& group, const RecordsByName& records) {
  const Quantization kind = group.quantization();
  if (!is_only_read(kind)) return group.initialise(ctx, kInitialSeed);
  const QuantizedForm form{kind, QuantizedForm::most_unit(kind)};
  group.quantize_values(
      ctx, [](const ParameterSpec&, const Slice&, std::span<float>) { FAIL() << "reads values"; },
      [&](const ParameterSpec& spec, std::int64_t first, std::span<std::byte> out) {
        const auto all = std::span(records.at(spec.name)).subspan(first * form.record_bytes());
        std::ranges::copy(all.first(out.size()), out.begin());
        return true;
      });
  group.publish_values(ctx);
}

/// The values that the codes of the whole matrix stand for.
std::vector<float> quantized_values(const ParameterSpec& spec, Quantization kind) {
  std::vector<float> all = initial_values(spec);
  QuantizedValues codes;
  const std::int64_t block = block_of(kind, spec.layout.cols);
  if (has_large_blocks(kind) || is_only_read(kind)) {
    const QuantizedForm form{kind, block};
    read_values(form, some_records(form, all), 0, all);
    return all;
  }
  quantize(kind, block, all, codes);
  for (std::size_t i = 0; i < all.size(); ++i)
    all[i] = codes.value(kind, static_cast<std::int64_t>(i), block);
  return all;
}

/// Runs f(ctx, group) on all ranks of a grid with a group of products, which is allocated.
void on_ranks(const GridShape& shape, Quantization kind, const auto& f) {
  run_ranks(shape.ranks(), [&](Communicator& world) {
    const auto backend = make_cpu_backend(1);
    Arena arena(backend->device());
    const Grid grid(world, shape);
    const Context ctx(*backend, arena, grid);
    ParameterGroup group("all", grid);
    group.quantize(kind);
    declare_products(group, has_large_blocks(kind) ? kWide : 96);
    group.allocate(ctx);
    f(ctx, group);
  });
}

}  // namespace

TEST(QuantizedGroup, HasTheValuesOfTheQuantizedMatricesOnEveryGrid) {
  for (const Quantization kind : kCodes) {
    std::map<std::string, std::vector<float>> want;
    RecordsByName records;
    on_ranks({}, kind, [&](const Context&, const ParameterGroup& group) {
      for (const auto& parameter : group.parameters()) {
        const ParameterSpec& spec = parameter->spec();
        want[spec.name] = quantized_values(spec, kind);
        if (is_only_read(kind))
          records[spec.name] =
              some_records({kind, QuantizedForm::most_unit(kind)}, initial_values(spec));
      }
    });
    EXPECT_EQ(want.size(), 4);
    std::vector<GridShape> grids = many_grids();
    grids.push_back({});
    if (has_large_blocks(kind))  // rows of whole blocks on each rank
      std::erase_if(grids, [](const GridShape& shape) {
        return kWide % (256 * shape.x) != 0 || kWide % (256 * shape.y) != 0;
      });
    for (const GridShape& shape : grids)
      on_ranks(shape, kind, [&](const Context& ctx, ParameterGroup& group) {
        fill(ctx, group, records);
        for (int pass = 0; pass < 2; ++pass) {
          group.acquire(ctx);
          for (const auto& parameter : group.parameters()) {
            const ParameterSpec& spec = parameter->spec();
            const float* const here = parameter->weight().as<float>();
            for (const Slice& slice : spec.layout.slices(shape, group.grid().coords()))
              for (std::int64_t e = slice.begin; e < slice.end; ++e) {
                const std::int64_t at =
                    (slice.row + e / slice.cols) * spec.layout.cols + slice.col + e % slice.cols;
                ASSERT_EQ(here[slice.offset + e - slice.begin], want.at(spec.name)[at])
                    << spec.name << ' ' << at << ", " << group.grid().describe() << ", "
                    << name_of(kind);
              }
          }
          group.release();
        }
      });
  }
}

TEST(QuantizedGroup, KeepsCodesAloneWhileNoPassNeedsItsValues) {
  on_ranks({}, Quantization::nf4, [](const Context& ctx, ParameterGroup& group) {
    group.initialise(ctx, kInitialSeed);
    std::int64_t weights = 0;
    for (const auto& parameter : group.parameters()) weights += parameter->spec().layout.count();
    EXPECT_EQ(group.shard_bytes(ctx.dtype), weights / 2 + weights / 64 * 4);
    EXPECT_EQ(group.shard().count(), group.shard_bytes(ctx.dtype));
    const std::int64_t kept = ctx.arena().stats().live_bytes;
    group.acquire(ctx);
    EXPECT_EQ(ctx.arena().stats().live_bytes, kept) << "nothing has read a value";
    group.parameters().front()->weight();
    EXPECT_GE(ctx.arena().stats().live_bytes, kept + weights * 4);
    group.release();
    EXPECT_EQ(ctx.arena().stats().live_bytes, kept);
    EXPECT_FALSE(group.stays());
    EXPECT_TRUE(group.frozen());
  });
}

TEST(QuantizedGroup, HeldCodesServePassesOfFewRowsAndValuesAreFreedAfterThoseOfMany) {
  for (const GridShape& shape : {GridShape{}, GridShape{1, 1, 2, 1}})
    on_ranks(shape, Quantization::q8_0, [](const Context& ctx, ParameterGroup& group) {
      group.initialise(ctx, kInitialSeed);
      const Parameter& down = *group.parameters().back();
      const auto live = [&] { return ctx.arena().stats().live_bytes; };
      group.hold(ctx);
      const std::int64_t held = live();
      for (const std::int64_t rows : {1, 64}) {
        group.acquire(ctx);
        EXPECT_EQ(live(), held) << "the codes are gathered already";
        const Tensor inp = ctx.zeros(rows, down.local_cols(), DType::f32),
                     out = ctx.zeros(rows, down.local_rows(), DType::f32);
        const std::int64_t before = live();
        const auto product = down.product_of_codes(ctx, out.view(), inp.view(), {});
        EXPECT_EQ(product.has_value(), rows == 1);
        EXPECT_EQ(live(), before);
        down.weight();
        EXPECT_GT(live(), before);
        EXPECT_FALSE(down.product_of_codes(ctx, out.view(), inp.view(), {}))
            << "values that are there are read";
        group.release();
        EXPECT_EQ(live(), before) << "values do not stay, codes do";
      }
      group.let_go();
      EXPECT_EQ(live() < held, ctx.grid.extent(Axis::z) > 1) << "gathered codes are freed";
    });
}

TEST(QuantizedGroup, RefusesValuesAndCutsThatHaveNoCodes) {
  on_ranks({}, Quantization::int8, [](const Context& ctx, ParameterGroup& group) {
    const auto read = [](const ParameterSpec& spec, const Slice&, std::span<float> out) {
      std::ranges::fill(out, spec.name == "down.weight" ? std::nanf("") : 1.0f);
    };
    EXPECT_THAT([&] { group.quantize_values(ctx, read); },
                testing::ThrowsMessage<UsageError>(testing::AllOf(
                    HasSubstr("[model] quantize = int8: down.weight"), HasSubstr("nan"))));
  });
  const auto refusal = [](Quantization kind, std::int64_t in, const GridShape& shape = {}) {
    std::string message;
    run_ranks(shape.ranks(), [&](Communicator& world) {
      const auto backend = make_cpu_backend(1);
      Arena arena(backend->device());
      const Grid grid(world, shape);
      ParameterGroup group("all", grid);
      group.quantize(kind);
      const Linear product(group, "p", {.in = in, .out = 4, .bias = false});
      try {
        group.allocate(Context(*backend, arena, grid));
      } catch (const UsageError& error) {
        if (world.rank() == 0) message = error.what();
      }
    });
    return message;
  };
  EXPECT_THAT(refusal(Quantization::int8, 33), HasSubstr("an odd number of columns of p.weight"));
  EXPECT_THAT(refusal(Quantization::q8_0, 48),
              HasSubstr("the 48 columns of p.weight are no multiple of 32; take nf4 or int8"));
  EXPECT_THAT(
      refusal(Quantization::q4_k, 320),
      HasSubstr(
          "the 320 columns of p.weight are no multiple of 256; take q4_0, q8_0, nf4 or int8"));
  EXPECT_THAT(refusal(Quantization::q6_k, 768, {1, 2, 1, 1}),
              HasSubstr("would have parts of blocks of 256 columns of p.weight; take other extents "
                        "of x and y, or another kind, such as q4_0"));
  EXPECT_EQ(refusal(Quantization::nf4, 33), "") << "blocks go on from row to row";
}
