// Local checkpoints of one grid that another one goes on with, on other nodes.
#include <filesystem>

#include <gmock/gmock.h>

#include "axonn/data/storage/checkpoint/checkpoint_saver.h"
#include "axonn/data/storage/checkpoint/local_reader.h"
#include "axonn/data/storage/checkpoint/local_saver.h"
#include "axonn/foundation/base/check.h"
#include "axonn/ranks/comm/threads/threads.h"

#include "tests/data/storage/local_cluster.h"
#include "tests/data/storage/model_state.h"
#include "tests/support/grids.h"
#include "tests/support/temporary_path.h"

using namespace axonn;
using namespace axonn::test;
using namespace axonn::testing_support;
using testing::AllOf;
using testing::Contains;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
namespace fs = std::filesystem;

namespace {

constexpr std::int64_t kCount = 12'000'000;  // so that each of four ranks has four pieces

/// A rank's part of values that are cut flat, of which one kind has 8 bits.
struct Part {
  Part(int rank, int ranks)
      : begin(kCount * rank / ranks),
        count(kCount * (rank + 1) / ranks - begin),
        codes(code_blocks(count) * kCodeBlock),
        absmax(code_blocks(count)),
        values(codes.size()) {
    for (std::size_t i = 0; i < codes.size(); ++i)
      codes[i] = static_cast<std::uint8_t>((i * 2654435761U >> 13) + rank);
    for (std::size_t i = 0; i < absmax.size(); ++i)
      absmax[i] = static_cast<float>(rank + 1) + static_cast<float>(i) / 65536;
    for (std::int64_t i = 0; i < count; ++i) values[i] = static_cast<float>(begin + i) / 8;
  }
  Slice slice() const { return {0, kCount / 10, 0, 10, begin, begin + count, 0, true}; }
  std::vector<StateBlock> blocks() {
    return {{.name = "block",
             .count = std::ssize(codes),
             .parameters = {{{"v", kCount / 10, 10}, {slice()}}},
             .buffers = {{"master", values.data()},
                         {"exp_avg", codes.data(), ValueCode::dynamic, absmax.data()}}}};
  }
  std::int64_t begin, count;
  std::vector<std::uint8_t> codes;
  std::vector<float> absmax, values;
};

}  // namespace

TEST(LocalCheckpointOnAnotherGrid, GivesEachRankItsValues) {
  for (const GridShape& from : {GridShape{2, 1, 2, 2}, GridShape{1, 2, 3, 1}})
    for (const GridShape& to : many_grids()) {
      SCOPED_TRACE(to_string(from) + " to " + to_string(to));
      const TemporaryPath folder;
      const Cluster before{folder / "before", from, 2};
      write(before, {4});
      fs::remove_all(before.node(1));
      const Cluster now{folder / "now", to, (to.ranks() + 2) / 3};  // up to three nodes
      move_nodes(before, now);
      const Found found = find(now, {.other_ranks = from.ranks()});
      EXPECT_EQ(found.step, 4);
      EXPECT_EQ(found.difference, "");
      EXPECT_THAT(found.told, IsEmpty());
    }
}

TEST(LocalCheckpointOnAnotherGrid, WithADamagedShardIsTakenFromItsCopy) {
  const TemporaryPath folder;
  const Cluster before{.folder = folder / "before"};
  write(before, {7, 8});
  const Cluster now{.folder = folder / "now", .shape = {2, 1, 1, 1}, .node_ranks = 1};
  move_nodes(before, now);
  const std::string file = file_of(shard(now, 0, 8, 1), 1);
  flip(file, fs::file_size(file) - 5, 1);
  for (int again = 0; again < 2; ++again) {  // it is not mended
    const Found found = find(now, {.other_ranks = 4});
    EXPECT_EQ(found.step, 8);
    EXPECT_EQ(found.difference, "");
    EXPECT_THAT(found.told, ElementsAre(AllOf(HasSubstr("is not used"), HasSubstr(file))));
  }
  const std::string copy = shard(now, 1, 8, 1);
  fs::remove(copy + "/index.json");
  const Found found = find(now, {.other_ranks = 4});
  EXPECT_EQ(found.step, 7);
  EXPECT_EQ(found.difference, "");
  EXPECT_THAT(found.told, Contains("local checkpoint step-8 is not whole: no node has an intact "
                                   "shard of rank 1"));
}

TEST(LocalCheckpointOnAnotherGrid, OfWhichNodesAreMissingIsRefusedWithTheRanks) {
  const TemporaryPath folder;
  const Cluster before{.folder = folder / "before", .node_ranks = 1};
  write(before, {8});
  fs::remove_all(before.node(1));
  fs::remove_all(before.node(2));
  const Cluster now{.folder = folder / "now", .shape = {1, 1, 3, 2}, .node_ranks = 3};
  move_nodes(before, now);
  const Found found = find(now, {.other_ranks = 4});
  EXPECT_EQ(found.step, -1);
  EXPECT_THAT(found.told, ElementsAre("local checkpoint step-8 is not whole: no node has an intact "
                                      "shard of rank 1"));
}

TEST(LocalCheckpointOnAnotherGrid, OfManyPiecesAlsoInFewBitsHasTheBitsOfACheckpoint) {
  const TemporaryPath folder;
  const Cluster before{.folder = folder / "before", .node_ranks = 1};
  run_ranks(4, [&](Communicator& world) {
    Part part(world.rank(), 4);
    LocalSaver local(world, before.store(world.rank()), -1);
    local.begin(5, part.blocks(), {{"state.json", "x"}});
    CheckpointSaver shared({.folder = folder / "shared"});
    shared.begin(world, 5, part.blocks(), {{"state.json", "x"}});
    local.finish();
    shared.finish(world);
  });
  fs::remove_all(before.node(2));
  const Cluster now{.folder = folder / "now", .shape = {1, 1, 3, 1}, .node_ranks = 1};
  move_nodes(before, now);
  run_ranks(3, [&](Communicator& world) {
    std::vector<std::string> told;
    const auto local = newest_local(world, now.store(world.rank()), {.other_ranks = 4}, told);
    ASSERT_TRUE(local);
    const CheckpointReader shared(world, folder / "shared");
    const Part part(world.rank(), 3);
    const auto read = [&](const CheckpointReader& reader, const std::string& kind) {
      std::vector<float> values(part.count);
      CheckpointSource source(reader, {{"v", kCount / 10, 10}}, {"master", "exp_avg"});
      const SliceRequest wanted{.parameter = "v", .kind = kind, .slices = {part.slice()}};
      source.read({&wanted, 1}, [&](std::size_t, std::int64_t at, StoredType type, auto bytes) {
        to_floats(type, bytes, std::span(values).subspan(at, bytes.size() / bytes_of(type)));
      });
      return values;
    };
    for (const std::string& kind :
         {std::string("master"), std::string("exp_avg"), absmax_of("exp_avg")})
      EXPECT_TRUE(read(*local, kind) == read(shared, kind)) << kind;
    EXPECT_TRUE(read(*local, "master") ==
                std::vector(part.values.begin(), part.values.begin() + part.count));
  });
}

TEST(LocalCheckpointOnAnotherGrid, ThatIsDamagedWhileItIsReadEndsAllRanksAlike) {
  const TemporaryPath folder;
  const Cluster before{.folder = folder / "before"};
  write(before, {8});
  const Cluster now{.folder = folder / "now", .shape = {1, 1, 3, 1}, .node_ranks = 1};
  move_nodes(before, now);
  for (const int node : {0, 1}) fs::remove_all(shard(now, node, 8, 1 - node));
  run_ranks(3, [&](Communicator& world) {
    std::vector<std::string> told;
    const auto reader = newest_local(world, now.store(world.rank()), {.other_ranks = 4}, told);
    ASSERT_TRUE(reader);
    world.barrier();
    if (world.rank() == 0)  // that of rank 1 is on node 1 alone
      flip(file_of(shard(now, 1, 8, 1), 1), 5000, 1);
    world.barrier();
    ModelState state(now.shape, world.rank());
    EXPECT_THAT([&] { load_blocks(*reader, state.blocks()); },
                testing::ThrowsMessage<UsageError>(
                    AllOf(HasSubstr("reading local checkpoint step-8 failed on rank"),
                          HasSubstr("rank-00001.safetensors"), HasSubstr("is altered"))));
  });
}

TEST(LocalCheckpointOnAnotherGrid, IsFoundOnNodesThatHaveOtherNumbersNow) {
  for (const bool same : {true, false}) {
    const TemporaryPath folder;
    const Cluster before{.folder = folder.path(), .node_ranks = 1, .host_ranks = 1};
    write(before, {7, 8});
    fs::remove_all(before.host(0));
    Cluster now = before;  // what was node 1 is node 0 now, and so on
    now.first_host = 1;
    if (!same) now.shape = {1, 1, 3, 1};
    for (int again = 0; again < 2; ++again) {
      const Found found = find(now, {.other_ranks = same ? 0 : 4});
      EXPECT_EQ(found.step, 8);
      EXPECT_EQ(found.difference, "");
      EXPECT_THAT(found.told, IsEmpty());
    }
    for (int host = 1; host < 4; ++host)
      EXPECT_THAT(names_in(concat(now.host(host), "/node-", host)), IsEmpty()) << "left behind";
  }
}

TEST(LocalCheckpointOnAnotherGrid, OfNodesThatTheRunHasNoMoreIsFoundOnTheirHost) {
  const TemporaryPath folder;
  const Cluster before{.folder = folder.path(), .node_ranks = 1};
  write(before, {8});
  fs::remove_all(before.node(0));
  const Cluster now{.folder = folder.path(), .shape = {2, 1, 1, 1}, .node_ranks = 1};
  const Found found = find(now, {.other_ranks = 4});
  EXPECT_EQ(found.step, 8);
  EXPECT_EQ(found.difference, "");
}
