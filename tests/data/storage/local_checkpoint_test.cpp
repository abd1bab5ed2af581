// Local checkpoints: shards on the nodes of their ranks and on others, the newest one that is
// whole, and what is taken after a node is lost or a file is damaged.
#include <filesystem>
#include <thread>

#include <gmock/gmock.h>

#include "axonn/data/storage/checkpoint/local_reader.h"
#include "axonn/data/storage/checkpoint/local_saver.h"
#include "axonn/foundation/base/check.h"
#include "axonn/ranks/comm/texts.h"
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
using testing::SizeIs;
namespace fs = std::filesystem;

TEST(LocalCheckpoint, GivesEachRankAllThatItHadOnEveryGrid) {
  for (const GridShape& shape : many_grids()) {
    SCOPED_TRACE(to_string(shape));
    const TemporaryPath folder;
    const Cluster cluster{folder.path(), shape, 2};
    write(cluster, {3, 4});
    const Found found = find(cluster);
    EXPECT_EQ(found.step, 4);
    EXPECT_EQ(found.difference, "");
    EXPECT_THAT(found.told, IsEmpty());
  }
}

TEST(LocalCheckpoint, SurvivesTheLossOfAnyNodeAlsoOfOneWithFewerRanks) {
  for (const int node_ranks : {1, 2, 3}) {
    for (int lost = 0; lost < (node_ranks == 3 ? 2 : 4 / node_ranks); ++lost) {
      SCOPED_TRACE(concat(node_ranks, " ranks on a node, without node ", lost));
      const TemporaryPath folder;
      const Cluster cluster{.folder = folder.path(), .node_ranks = node_ranks};
      write(cluster, {7, 8});
      fs::remove_all(cluster.node(lost));
      for (int again = 0; again < 2; ++again) {  // the ranks have been sent what they lacked
        const Found found = find(cluster);
        EXPECT_EQ(found.step, 8);
        EXPECT_EQ(found.difference, "");
      }
    }
  }
}

TEST(LocalCheckpoint, IsSentToTheRanksOfANewOrderOfNodes) {
  const TemporaryPath folder;
  Cluster cluster{.folder = folder.path(), .node_ranks = 1};
  write(cluster, {7});
  cluster.shift = 1;
  fs::remove_all(cluster.node(2));
  const Found found = find(cluster);
  EXPECT_EQ(found.step, 7);
  EXPECT_EQ(found.difference, "");
}

TEST(LocalCheckpoint, OfNodesOfSeveralHostsSurvivesTheLossOfANode) {
  const GridShape eight{1, 2, 2, 2};
  for (const int lost : {0, 1}) {
    const TemporaryPath folder;
    const Cluster cluster{
        .folder = folder.path(), .shape = eight, .node_ranks = 4, .host_ranks = 2};
    write(cluster, {7, 8});
    for (const int host : {0, 1}) fs::remove_all(cluster.host(2 * lost + host));
    const Found found = find(cluster);
    EXPECT_EQ(found.step, 8);
    EXPECT_EQ(found.difference, "");
    EXPECT_THAT(found.told, IsEmpty());
  }
}

TEST(LocalCheckpoint, IsTakenOnlyIfItIsNewer) {
  const TemporaryPath folder;
  const Cluster cluster{.folder = folder.path()};
  write(cluster, {7, 8});
  EXPECT_EQ(find(cluster, {.after = 7}).step, 8);
  EXPECT_EQ(find(cluster, {.after = 8}).step, -1);
  EXPECT_EQ(find(cluster, {.until = 7}).step, 7);
  EXPECT_EQ(find(cluster, {.after = 7, .until = 7}).step, -1);
}

TEST(LocalCheckpoint, WithADamagedShardIsTakenFromItsCopy) {
  const TemporaryPath folder;
  const Cluster cluster{.folder = folder.path()};
  write(cluster, {7, 8});
  const std::string file = file_of(shard(cluster, 0, 8, 1), 1);
  flip(file, fs::file_size(file) - 5, 1);
  const Found found = find(cluster);
  EXPECT_EQ(found.step, 8);
  EXPECT_EQ(found.difference, "");
  EXPECT_THAT(found.told, ElementsAre(AllOf(HasSubstr("is not used"), HasSubstr(file))));
  EXPECT_THAT(find(cluster).told, IsEmpty()) << "it was mended";
}

TEST(LocalCheckpoint, OfWhichAShardIsTornOrDamagedEverywhereGivesWayToTheOneBefore) {
  for (const bool torn : {true, false}) {
    const TemporaryPath folder;
    const Cluster cluster{.folder = folder.path()};
    write(cluster, {7, 8});
    for (const int node : {0, 1}) {
      const std::string one = shard(cluster, node, 8, 2);
      if (torn)
        fs::remove(one + "/index.json");
      else
        fs::resize_file(file_of(one, 2), fs::file_size(file_of(one, 2)) - 1);
    }
    const Found found = find(cluster);
    EXPECT_EQ(found.step, 7);
    EXPECT_EQ(found.difference, "");
    EXPECT_THAT(found.told, Contains(HasSubstr("step-8 is not whole: no node has an intact shard "
                                               "of rank 2")));
  }
}

TEST(LocalCheckpoint, OfWhichNodesAreMissingIsRefusedWithTheRanks) {
  const TemporaryPath folder;
  const Cluster cluster{.folder = folder.path(), .node_ranks = 1};
  write(cluster, {7, 8});
  fs::remove_all(cluster.node(1));
  fs::remove_all(cluster.node(2));
  const Found found = find(cluster);
  EXPECT_EQ(found.step, -1);
  EXPECT_THAT(found.told, ElementsAre("local checkpoint step-8 is not whole: no node has an intact "
                                      "shard of rank 1",
                                      "local checkpoint step-7 is not whole: no node has an intact "
                                      "shard of rank 1"));
  fs::remove_all(cluster.node(3));
  // Node 0 has its own and the copy of rank 3's.
  EXPECT_THAT(find(cluster).told, Contains(HasSubstr("shard of ranks 1 and 2")));
}

TEST(LocalCheckpoint, IsNotMadeOfShardsOfTwoStarts) {
  const TemporaryPath folder;
  const Cluster cluster{.folder = folder.path()};
  write(cluster, {8});
  for (const int node : {0, 1}) fs::remove_all(shard(cluster, node, 8, 1));
  const auto first = [&] {
    std::vector<std::string> names;
    for (const int node : {0, 1})
      for (const int rank : {0, 2, 3}) names.push_back(shard(cluster, node, 8, rank));
    return names;
  }();
  write(cluster, {8});
  for (const int node : {0, 1})
    for (const std::string& name : names_in(concat(cluster.node(node), '/', kRun, "/step-8"))) {
      const std::string one = concat(cluster.node(node), '/', kRun, "/step-8/", name);
      const bool old = std::ranges::count(first, one) > 0;
      if (!old && !name.starts_with("rank-00001")) fs::remove_all(one);
    }
  const Found found = find(cluster);
  EXPECT_EQ(found.step, -1);
  EXPECT_THAT(found.told, SizeIs(2));  // of either start
}

TEST(LocalCheckpoint, OfAnotherRunOrAnotherNumberOfRanksIsNotTaken) {
  const TemporaryPath folder;
  Cluster cluster{.folder = folder.path()};
  write(cluster, {8});
  Cluster fewer = cluster;
  fewer.shape = {1, 1, 2, 1};
  for (const int ranks : {0, 3}) {  // fewer than there were
    const Found found = find(fewer, {.other_ranks = ranks});
    EXPECT_EQ(found.step, -1);
    EXPECT_THAT(found.told, Contains(HasSubstr("is of another step, rank or number of ranks")));
  }
  for (const std::string& node : names_in(folder.path()))
    for (const std::string& run : names_in(folder / node))
      fs::rename(concat(folder / node, '/', run), folder / node + "/fedcba9876543210");
  EXPECT_EQ(find(cluster).step, -1);
}

TEST(LocalCheckpoint, StaysUntilTheNextOneIsWholeAndNoLonger) {
  const TemporaryPath folder;
  const Cluster cluster{.folder = folder.path()};
  write(cluster, {1, 2, 3, 4});
  for (const int node : {0, 1}) {
    EXPECT_THAT(names_in(concat(cluster.node(node), '/', kRun)), ElementsAre("step-3", "step-4"));
    // Those of its two ranks and of two others.
    EXPECT_THAT(names_in(concat(cluster.node(node), '/', kRun, "/step-4")), SizeIs(4));
  }
}

TEST(LocalCheckpoint, IsGoneAfterSeveralRanksHaveRemovedIt) {
  const TemporaryPath folder;
  const std::string shared = folder / "step-1";
  std::vector<std::string> shards;
  for (int shard = 0; shard < 20; ++shard) shards.push_back(concat(shared, "/rank-", shard));
  for (int round = 0; round < 50; ++round) {
    for (const std::string& shard : shards) {
      fs::create_directories(shard);
      for (const char* const file : {"/values", "/index.json"}) spill(shard + file, "x");
    }
    {
      const std::jthread all([&] { remove_beside_others(shared); });
      const std::jthread each([&] {
        for (const std::string& shard : shards) remove_beside_others(shard);
      });
    }
    ASSERT_FALSE(fs::exists(shared)) << "round " << round;
  }
}

TEST(LocalCheckpoint, ThatCannotBeWrittenFailsOnAllRanksAndLeavesTheOneBefore) {
  const TemporaryPath folder;
  const Cluster cluster{.folder = folder.path()};
  run_ranks(4, [&](Communicator& world) {
    ModelState state(cluster.shape, world.rank());
    LocalSaver saver(world, cluster.store(world.rank()), -1);
    const std::string step = concat(cluster.node(1), '/', kRun, "/step-");
    const auto save = [&](std::int64_t number) {
      state.fill(static_cast<float>(number));
      saver.begin(number, state.blocks(), {{"state.json", concat("step ", number)}, {"none", ""}});
      saver.finish();
    };
    save(1);
    if (world.rank() == 0) spill(step + "2", "a file in place of the folder");
    world.barrier();
    EXPECT_THAT([&] { save(2); },
                testing::ThrowsMessage<AgreedError>(AllOf(
                    HasSubstr("local checkpoint step-2 failed on rank"), HasSubstr(step + "2"))));
    if (world.rank() == 0) fs::remove(step + "2");
    world.barrier();
    EXPECT_THAT(names_in(concat(cluster.node(0), '/', kRun)), Contains("step-1"));
    save(3);
    EXPECT_EQ(saver.cost().written, 2);
    EXPECT_THAT([&] { saver.check_room(std::int64_t{1} << 60); },
                testing::ThrowsMessage<AgreedError>(HasSubstr("has room for")));
  });
  EXPECT_EQ(find(cluster).step, 3);
}

TEST(LocalCheckpoint, OfRanksWithSeveralPiecesOfDifferentNumbersArrivesWhole) {
  const TemporaryPath folder;
  const auto block = [](int rank, std::vector<float>& values) {
    const std::int64_t each = 2'500'000, count = each * (rank + 1),
                       begin = each * rank * (rank + 1) / 2;
    values.resize(count);
    for (std::int64_t i = 0; i < count; ++i) values[i] = static_cast<float>(begin + i) / 8;
    const Slice mine = {.row = 0,
                        .rows = each * 10,
                        .col = 0,
                        .cols = 1,
                        .begin = begin,
                        .end = begin + count,
                        .offset = 0,
                        .owned = rank != 3};  // it writes all that it has
    return std::vector<StateBlock>{{.name = "block",
                                    .count = count,
                                    .parameters = {{{"v", each * 10, 1}, {mine}}},
                                    .buffers = {{"master", values.data()}}}};
  };
  const Cluster cluster{.folder = folder.path(), .node_ranks = 1};
  run_ranks(4, [&](Communicator& world) {
    std::vector<float> values;
    LocalSaver saver(world, cluster.store(world.rank()), -1);
    saver.begin(5, block(world.rank(), values), {{"state.json", "x"}});
    saver.finish();
    EXPECT_GT(saver.cost().bytes, 10'000'000 * (world.rank() + 1));  // up to three messages
    world.barrier();
    if (world.rank() == 3) fs::remove_all(cluster.node(3));
    world.barrier();
    std::vector<std::string> told;
    const auto reader = newest_local(world, cluster.store(world.rank()), {}, told);
    ASSERT_TRUE(reader);
    const std::vector<float> wanted = values;
    const auto blocks = block(world.rank(), values);
    std::ranges::fill(values, -1.0F);
    load_blocks(*reader, blocks);
    EXPECT_EQ(values, wanted);
    world.barrier();
    remove_shards(cluster.store(world.rank()));
    world.barrier();
    EXPECT_THAT(names_in(cluster.node(world.rank())), IsEmpty());
  });
}

TEST(LocalCheckpoint, ThatArrivesAlteredOrCutShortIsNotThere) {
  const TemporaryPath folder;
  const std::string bytes(100, 'b');
  const auto data = std::as_bytes(std::span(bytes));
  CheckpointIndex index{.step = 1, .ranks = 1};
  index.files.push_back({rank_file(0), 100, {xxh3(data)}, {}});
  const std::string tail = tail_of(index, {{"state.json", "text"}});
  const auto fault = [&](std::span<const std::byte> arrived, const std::string& with) {
    ShardWriter writer(folder / "shard", 0);
    writer.append(arrived.first(60));
    writer.append(arrived.subspan(60));
    writer.publish(with);
    EXPECT_EQ(fs::exists(folder / "shard"), writer.fault().empty());
    return writer.fault();
  };
  std::string other = bytes, altered = tail;
  other[70] ^= 1;
  altered.back() ^= 1;
  EXPECT_THAT(fault(std::as_bytes(std::span(other)), tail), HasSubstr("arrived altered"));
  EXPECT_THAT(fault(data.first(90), tail), HasSubstr("arrived altered"));
  EXPECT_THAT(fault(data, altered), HasSubstr("state.json arrived altered"));
  EXPECT_THAT(fault(data, tail.substr(0, tail.size() - 1)), HasSubstr("state.json is cut short"));
  EXPECT_THAT(fault(data, tail.substr(0, 40)), HasSubstr("cut short"));
  EXPECT_THAT(fault(data, ""), HasSubstr("cut short"));
  EXPECT_THAT(fault(data, fault_tail("no disk")), HasSubstr("no disk"));
  EXPECT_EQ(fault(data, tail), "");
  EXPECT_EQ(CheckpointReader(folder / "shard").text("state.json"), "text");
}

TEST(LocalCheckpoint, FoldersInOneThatAllUsersShareAreShared) {
  const TemporaryPath folder;
  const auto permissions_of = [](const std::string& path) {
    return fs::status(path).permissions();
  };
  const fs::perms shared = fs::perms::sticky_bit | fs::perms::all;
  for (const bool all : {true, false}) {
    fs::permissions(folder.path(), all ? shared : fs::perms::owner_all);
    const Cluster cluster{.folder = folder / (all ? "of all" : "of one")};
    write(cluster, {1});
    EXPECT_EQ(permissions_of(cluster.folder) == shared, all);
    EXPECT_EQ(permissions_of(cluster.node(0)) == shared, all);
    EXPECT_NE(permissions_of(concat(cluster.node(0), '/', kRun)), shared);
  }
}
