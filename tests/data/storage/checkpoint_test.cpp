#include <algorithm>
#include <mutex>
#include <thread>

#include <gmock/gmock.h>

#include "axonn/compute/tensor/dynamic_map.h"
#include "axonn/data/storage/checkpoint/checkpoint_reader.h"
#include "axonn/data/storage/safetensors/safetensors.h"
#include "axonn/foundation/base/check.h"
#include "axonn/ranks/comm/self.h"
#include "axonn/ranks/comm/threads/threads.h"

#include "tests/data/storage/model_state.h"
#include "tests/support/temporary_path.h"

using namespace axonn;
using namespace axonn::test;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::ThrowsMessage;

namespace {

const std::vector<GridShape> kShapes = {{1, 1, 1, 1}, {2, 1, 1, 1}, {1, 2, 1, 1}, {1, 1, 2, 1},
                                        {1, 1, 1, 2}, {2, 2, 2, 1}, {6, 1, 1, 2}, {3, 2, 1, 2},
                                        {1, 3, 2, 2}, {4, 1, 2, 1}, {1, 1, 4, 3}, {2, 6, 1, 1}};

/// A checkpoint of one matrix, written by one rank.
struct OneMatrix {
  std::vector<float> values;
  StateBlock block;

  OneMatrix(std::int64_t rows, std::int64_t cols) : values(static_cast<std::size_t>(rows * cols)) {
    for (std::size_t i = 0; i < values.size(); ++i) values[i] = static_cast<float>(i);
    block = {.name = "block",
             .count = rows * cols,
             .parameters = {{{"weight", rows, cols}, {whole(rows, cols)}}},
             .buffers = {{"master", values.data()}}};
  }
  static Slice whole(std::int64_t rows, std::int64_t cols) {
    return {.row = 0,
            .rows = rows,
            .col = 0,
            .cols = cols,
            .begin = 0,
            .end = rows * cols,
            .offset = 0,
            .owned = true};
  }
  SaveCost save(const std::string& folder, SaverOptions options = {}) {
    const auto world = make_self();
    options.folder = folder;
    CheckpointSaver saver(options);
    saver.begin(*world, 1, {&block, 1}, {});
    return saver.finish(*world);
  }
};

/// A checkpoint of one matrix (40, 10) whose state is codes and bf16, of two slices of 300 and 100
/// values, which end within blocks of 256.
struct CodedMatrix {
  static constexpr std::int64_t kRows = 40, kCols = 10, kAll = 400, kFirst = 300;
  std::vector<float> master = std::vector<float>(kAll), absmax = {2, 0.5F, 3};
  std::vector<std::uint8_t> codes = std::vector<std::uint8_t>(3 * kCodeBlock);
  std::vector<bf16> halves = std::vector<bf16>(3 * kCodeBlock);

  CodedMatrix() {
    for (std::size_t i = 0; i < codes.size(); ++i) {
      codes[i] = static_cast<std::uint8_t>(i * 7);
      put(halves[i], static_cast<float>(i));
    }
  }
  static StoredParameter weight() { return {"weight", kRows, kCols}; }
  static Slice part(std::int64_t begin, std::int64_t end, std::int64_t offset) {
    Slice slice = OneMatrix::whole(kRows, kCols);
    slice.begin = begin;
    slice.end = end;
    slice.offset = offset;
    return slice;
  }
  /// Where value i lies in the buffers.
  static std::int64_t place(std::int64_t i) { return i < kFirst ? i : i - kFirst + 2 * kCodeBlock; }
  void save(const std::string& folder) {
    const std::vector<Slice> slices = {part(0, kFirst, 0), part(kFirst, kAll, 2 * kCodeBlock)};
    const std::vector<StateBlock> blocks = {
        {.name = "block",
         .count = kAll,
         .parameters = {{weight(), {part(0, kAll, 0)}}},
         .buffers = {{"master", master.data()}}},
        {.name = "block.small",
         .count = 3 * kCodeBlock,
         .parameters = {{weight(), slices}},
         .buffers = {{"codes", codes.data(), ValueCode::dynamic, absmax.data()},
                     {"squares", codes.data(), ValueCode::dynamic_unsigned, absmax.data()},
                     {"halves", halves.data(), ValueCode::bf16}}}};
    const auto world = make_self();
    CheckpointSaver saver({.folder = folder});
    saver.begin(*world, 1, blocks, {});
    saver.finish(*world);
  }
};

}  // namespace

TEST(Checkpoint, WrittenOnAnyGridIsReadOnAnyOtherWithReplicasFilledAndPaddingUnchanged) {
  for (const GridShape& from : kShapes) {
    const TemporaryPath folder;
    save_model(folder.path(), from, 7);
    for (const GridShape& to : kShapes)
      EXPECT_EQ(load_model(folder.path(), to), "") << to_string(from) << " to " << to_string(to);
  }
}

TEST(Checkpoint, OfExpertsIsReadOnAnyGridWhoeverHeldThem) {
  const std::vector<GridShape> grids = {
      {},          {1, 1, 4, 1, 1, 4}, {2, 1, 2, 1, 1, 2}, {1, 1, 4, 1, 1, 2}, {1, 2, 2, 2, 2, 2},
      {1, 1, 2, 1}};
  const ModelStateOptions model{.experts = 4};
  for (const GridShape& from : grids) {
    const TemporaryPath folder;
    save_model(folder.path(), from, 7, {}, model);
    const CheckpointReader reader(folder.path());
    std::vector<std::string> names;
    for (const StoredParameter& parameter : reader.index().parameters)
      names.push_back(parameter.name);
    EXPECT_THAT(names, testing::Contains("h.0.experts.3.down.weight").Times(1));
    for (const GridShape& to : grids)
      EXPECT_EQ(load_model(folder.path(), to, model), "")
          << with_factors(from) << " to " << with_factors(to);
  }
}

TEST(Checkpoint, HoldsEveryElementOnceOnAnyGrid) {
  for (const GridShape& shape : kShapes) {
    const TemporaryPath folder;
    save_model(folder.path(), shape, 7);
    std::int64_t elements = 0;
    for (const std::string& name : names_in(folder / "step-7")) {
      if (!name.ends_with(".safetensors")) continue;
      const SafetensorsFile file(folder / "step-7/" + name);
      for (const auto& entry : file.header().entries) elements += entry.bytes() / 4;
    }
    EXPECT_EQ(elements, 3 * ModelState(shape, 0).parameter_count()) << to_string(shape);
  }
}

TEST(Checkpoint, HoldsTheStateAtBeginAlthoughTrainingContinues) {
  const TemporaryPath folder;
  const GridShape shape{2, 1, 2, 1};
  run_ranks(shape.ranks(), [&](Communicator& world) {
    ModelState state(shape, world.rank());
    CheckpointSaver saver({.folder = folder.path()});
    for (int step : {1, 2, 3}) {
      state.fill(static_cast<float>(step));
      saver.begin(world, step, state.blocks(), {});
      EXPECT_TRUE(saver.pending());
      state.fill(100);
      while (!saver.written()) std::this_thread::yield();
      const SaveCost cost = saver.finish(world);
      EXPECT_FALSE(saver.pending());
      EXPECT_EQ(cost.folder, concat(folder.path(), "/step-", step));
      EXPECT_GT(cost.bytes, 3 * 4 * state.parameter_count());
    }
  });
  EXPECT_EQ(load_model(folder.path(), {1, 1, 1, 1}), "");
  EXPECT_EQ(load_model(folder / "step-2", {1, 1, 1, 1}), "");
}

TEST(Checkpoint, WithoutAsyncIsOnDiskWhenBeginReturns) {
  const TemporaryPath folder;
  const auto world = make_self();
  OneMatrix matrix(3, 4);
  CheckpointSaver saver({.folder = folder.path(), .async = false});
  saver.begin(*world, 4, {&matrix.block, 1}, {});
  EXPECT_TRUE(saver.written());
  EXPECT_THAT(
      [&] {
        saver.begin(*world, 5, {&matrix.block, 1}, {});
      },
      ThrowsMessage<Error>(HasSubstr("step-4 is not finished")));
  saver.finish(*world);
  EXPECT_THAT([&] { saver.finish(*world); }, ThrowsMessage<Error>(HasSubstr("call begin()")));
  EXPECT_EQ(slurp(folder / "latest"), "step-4\n");
  EXPECT_THAT(names_in(folder.path()), ElementsAre("latest", "step-4"));
}

TEST(Checkpoint, IsReadWithFewerKindsThanItHas) {
  const TemporaryPath folder;
  save_model(folder.path(), {2, 2, 1, 2});
  EXPECT_EQ(load_model(folder.path(), {1, 3, 2, 1}, {.kinds = {"master"}}), "");
}

TEST(Checkpoint, HoldsAKindOfOtherElementsOfAParameterInABlockOfItsOwn) {
  const TemporaryPath folder;
  OneMatrix matrix(3, 4);
  std::vector<float> rows = {10, 20, 30};
  StateBlock of_rows = matrix.block;
  of_rows.count = 3;
  of_rows.parameters.front().slices = {OneMatrix::whole(3, 1)};
  of_rows.buffers = {{"rows", rows.data()}};
  const auto world = make_self();
  const auto save = [&](const StateBlock& second) {
    CheckpointSaver saver({.folder = folder.path()});
    saver.begin(*world, 1, std::vector{matrix.block, second}, {});
    return saver.finish(*world);
  };
  save(of_rows);
  const CheckpointReader reader(folder.path());
  EXPECT_THAT(reader.index().kinds, ElementsAre("master", "rows"));
  EXPECT_EQ(reader.index().parameters.size(), 1);
  CheckpointSource source(reader, {{"weight", 3, 4}}, {"master", "rows"});
  const auto read = [&](const std::string& kind, const Slice& slice) {
    std::vector<float> values(slice.count());
    const SliceRequest wanted{.parameter = "weight", .kind = kind, .slices = {slice}};
    source.read({&wanted, 1}, [&](std::size_t, std::int64_t at, StoredType type, auto bytes) {
      to_floats(type, bytes, std::span(values).subspan(at, bytes.size() / 4));
    });
    return values;
  };
  EXPECT_EQ(read("rows", OneMatrix::whole(3, 1)), rows);
  EXPECT_EQ(read("master", OneMatrix::whole(3, 4)), matrix.values);
  EXPECT_THAT([&] { read("rows", OneMatrix::whole(3, 4)); },
              ThrowsMessage<UsageError>(HasSubstr("of weight (3,4) are in none of its files")));

  of_rows.buffers.front().kind = "master";
  EXPECT_THAT([&] { save(of_rows); },
              ThrowsMessage<Error>(HasSubstr("two buffers are named block.master")));
  of_rows.name = "other";
  EXPECT_THAT([&] { save(of_rows); },
              ThrowsMessage<Error>(HasSubstr("two parameters are named weight")));
  of_rows.buffers.front().kind = "rows";
  of_rows.parameters.front().stored.cols = 5;
  EXPECT_THAT([&] { save(of_rows); },
              ThrowsMessage<Error>(HasSubstr("blocks disagree on the shape of weight")));
}

TEST(Checkpoint, WithoutARequestedKindIsRefusedByName) {
  const TemporaryPath folder;
  save_model(folder.path(), {2, 1, 1, 1}, 1, {}, {.kinds = {"master"}});
  EXPECT_THAT(
      [&] {
        load_model(folder.path(), {1, 1, 1, 1});
      },
      ThrowsMessage<UsageError>(HasSubstr("it has no exp_avg of its parameters")));
}

TEST(Checkpoint, OfAnotherModelIsRefusedWithTheParametersThatDiffer) {
  const TemporaryPath folder;
  save_model(folder.path(), {1, 1, 1, 1});
  EXPECT_THAT(
      [&] {
        load_model(folder.path(), {1, 1, 1, 1}, {.vocab = 250});
      },
      ThrowsMessage<UsageError>(
          HasSubstr("wte.weight is (251,24) in the checkpoint and (250,24)")));
  const CheckpointReader reader(folder.path());
  ModelState state({1, 1, 1, 1}, 0);
  state.blocks()[2].parameters[0].stored.name = "norm.weight";
  EXPECT_THAT([&] { load_blocks(reader, state.blocks()); },
              ThrowsMessage<UsageError>(AllOf(HasSubstr("it has no norm.weight (24,1)"),
                                              HasSubstr("it has ln_f.weight (24,1), which"))));
}

TEST(Checkpoint, ListsItsContents) {
  const TemporaryPath folder;
  save_model(folder.path(), {2, 1, 1, 2}, 12);
  const CheckpointReader reader(folder.path() + "/");
  EXPECT_EQ(reader.folder(), folder / "step-12");
  EXPECT_EQ(reader.step(), 12);
  EXPECT_EQ(reader.index().ranks, 4);
  EXPECT_THAT(reader.index().kinds, ElementsAre("master", "exp_avg", "exp_avg_sq"));
  EXPECT_EQ(reader.index().parameters.size(), 8);
  EXPECT_EQ(reader.index().parameters[0], (StoredParameter{"wte.weight", 251, 24}));
  EXPECT_EQ(reader.text("state.json"), "{\"step\": 12}");
  EXPECT_THAT([&] { reader.text("notes.txt"); },
              ThrowsMessage<UsageError>(HasSubstr("has no notes.txt")));
  EXPECT_THAT(reader.warnings(), testing::IsEmpty());
}

TEST(Checkpoint, GivesEveryRankTheIndexThatRankZeroRead) {
  const TemporaryPath folder;
  save_model(folder.path(), {1, 1, 1, 1}, 3);
  save_model(folder.path(), {1, 1, 1, 1}, 4);
  spill(folder / "step-4/index.json", "{}");
  run_ranks(3, [&](Communicator& world) {
    const CheckpointReader reader(world, folder.path());
    EXPECT_EQ(reader.step(), 3);
    EXPECT_EQ(reader.text("config.toml"), "[model]\n");
    EXPECT_THAT(reader.warnings(), ElementsAre(HasSubstr("step-4 is skipped")));
    EXPECT_THAT([&] { CheckpointReader(world, folder / "none"); },
                ThrowsMessage<UsageError>(HasSubstr("none is not a folder of checkpoints")));
  });
}

TEST(Checkpoint, IsReadAcrossPiecesAndOnlyWhereElementsAreWanted) {
  const TemporaryPath folder;
  const std::int64_t rows = 5000, cols = 1024;  // 20.5 MB: 4 whole pieces and a part
  OneMatrix written(rows, cols);
  written.save(folder.path());
  const CheckpointReader reader(folder.path());

  std::vector<float> values(static_cast<std::size_t>(rows * cols / 2));
  const Slice right = {.row = 0,
                       .rows = rows,
                       .col = cols / 2,
                       .cols = cols / 2,
                       .begin = 0,
                       .end = rows * cols / 2,
                       .offset = 0,
                       .owned = false};
  StateBlock block = {.name = "half",
                      .count = rows * cols / 2,
                      .parameters = {{{"weight", rows, cols}, {right}}},
                      .buffers = {{"master", values.data()}}};
  EXPECT_GE(load_blocks(reader, {&block, 1}), rows * cols * 4);
  std::int64_t wrong = 0;
  for (std::int64_t i = 0; i < block.count; ++i) {
    const std::int64_t index = i / (cols / 2) * cols + cols / 2 + i % (cols / 2);
    wrong += values[static_cast<std::size_t>(i)] != static_cast<float>(index);
  }
  EXPECT_EQ(wrong, 0);

  block.parameters[0].slices = {{.row = 4000,
                                 .rows = 2,
                                 .col = 0,
                                 .cols = cols,
                                 .begin = 100,
                                 .end = 1100,
                                 .offset = 5,
                                 .owned = false}};
  EXPECT_LE(load_blocks(reader, {&block, 1}), 2 * (std::int64_t{4} << 20));
  EXPECT_EQ(values[5], 4000 * cols + 100);
  EXPECT_EQ(values[1004], 4000 * cols + 1099);
}

TEST(Checkpoint, ReadsCodesAsValuesAndTheAbsmaxOfTheirBlocks) {
  const TemporaryPath folder;
  CodedMatrix matrix;
  matrix.save(folder.path());
  const CheckpointReader reader(folder.path());
  CheckpointSource source(reader, {matrix.weight()}, {"master", "codes", "squares", "halves"});
  const auto read = [&](const std::string& kind, std::int64_t begin, std::int64_t end) {
    std::vector<float> values(static_cast<std::size_t>(end - begin));
    const SliceRequest wanted{
        .parameter = "weight", .kind = kind, .slices = {CodedMatrix::part(begin, end, 0)}};
    source.read({&wanted, 1}, [&](std::size_t, std::int64_t at, StoredType type, auto bytes) {
      to_floats(type, bytes, std::span(values).subspan(at, bytes.size() / bytes_of(type)));
    });
    return values;
  };
  for (const auto& [begin, end] : std::vector<std::pair<std::int64_t, std::int64_t>>{
           {0, 400}, {250, 310}, {299, 301}, {399, 400}}) {
    const auto values = read("codes", begin, end), squares = read("squares", begin, end),
               half = read("halves", begin, end), most = read(absmax_of("codes"), begin, end),
               none = read(absmax_of("halves"), begin, end);
    for (std::int64_t i = begin; i < end; ++i) {
      const std::int64_t at = CodedMatrix::place(i);
      const std::uint8_t code = matrix.codes[at];
      const float largest = matrix.absmax[at / kCodeBlock];
      ASSERT_EQ(values[i - begin], DynamicMap::of_signed().value(code) * largest) << i;
      ASSERT_EQ(squares[i - begin], DynamicMap::of_unsigned().value(code) * largest) << i;
      ASSERT_EQ(half[i - begin], get(matrix.halves[at])) << i;
      ASSERT_EQ(most[i - begin], largest) << i;
      ASSERT_EQ(none[i - begin], 0) << i;
    }
  }
}

TEST(Checkpoint, WithAnElementThatNoRankOwnsIsRefusedWithParameterAndRange) {
  const TemporaryPath folder;
  OneMatrix matrix(4, 6);
  matrix.block.parameters[0].slices[0].end = 20;
  matrix.save(folder.path());
  OneMatrix wanted(4, 6);
  EXPECT_THAT(
      [&] {
        load_blocks(CheckpointReader(folder.path()), {&wanted.block, 1});
      },
      ThrowsMessage<UsageError>(
          HasSubstr("elements (3,2) to (3,5) of weight (4,6) are in none of its files")));
}

TEST(Checkpoint, WithAGapBetweenOwnedElementsIsRefusedWithItsRange) {
  const TemporaryPath folder;
  OneMatrix matrix(4, 6);
  Slice first = OneMatrix::whole(4, 6), second = first;
  first.end = 8;
  second.begin = second.offset = 10;
  matrix.block.parameters[0].slices = {second, first};
  matrix.save(folder.path());
  OneMatrix wanted(4, 6);
  EXPECT_THAT(
      [&] {
        load_blocks(CheckpointReader(folder.path()), {&wanted.block, 1});
      },
      ThrowsMessage<UsageError>(
          HasSubstr("elements (1,2) to (1,3) of weight (4,6) are in none of its files")));
}

TEST(Checkpoint, WithAnElementThatTwoRanksOwnIsRefusedWithParameterAndRange) {
  const TemporaryPath folder;
  OneMatrix matrix(4, 6);
  auto& slices = matrix.block.parameters[0].slices;
  slices.push_back(
      {.row = 1, .rows = 1, .col = 2, .cols = 2, .begin = 0, .end = 2, .offset = 0, .owned = true});
  matrix.save(folder.path());
  OneMatrix wanted(4, 6);
  EXPECT_THAT(
      [&] {
        load_blocks(CheckpointReader(folder.path()), {&wanted.block, 1});
      },
      ThrowsMessage<UsageError>(
          HasSubstr("elements (1,2) to (1,3) of weight (4,6) are in its files twice")));
}

TEST(Checkpoint, RefusesSlicesThatReachBeyondTheirShapeOrBuffer) {
  const TemporaryPath folder;
  OneMatrix beyond_shape(4, 6), beyond_buffer(4, 6);
  beyond_shape.block.parameters[0].slices[0].col = 1;
  EXPECT_THAT([&] { beyond_shape.save(folder.path()); },
              ThrowsMessage<Error>(HasSubstr("weight reaches beyond its shape (4,6)")));
  beyond_buffer.block.parameters[0].slices[0].offset = 1;
  EXPECT_THAT([&] { beyond_buffer.save(folder.path()); },
              ThrowsMessage<Error>(HasSubstr("reaches beyond the 24 elements of block")));
}

TEST(Checkpoint, HasNoFilesOfRanksThatOwnNothing) {
  const TemporaryPath folder;
  run_ranks(3, [&](Communicator& world) {
    OneMatrix matrix(4, 6);
    if (world.rank() != 1) matrix.block.parameters[0].slices.clear();
    CheckpointSaver saver({.folder = folder.path()});
    saver.begin(world, 1, {&matrix.block, 1}, {});
    saver.finish(world);
  });
  EXPECT_THAT(names_in(folder / "step-1"), ElementsAre("index.json", "rank-00001.safetensors"));
  OneMatrix wanted(4, 6);
  std::ranges::fill(wanted.values, -1);
  load_blocks(CheckpointReader(folder.path()), {&wanted.block, 1});
  EXPECT_EQ(wanted.values, OneMatrix(4, 6).values);
}
