// Local checkpoints: shards on the nodes of their ranks and on others, the newest one that is
// whole, and what is taken after a node is lost or a file is damaged.
#include <filesystem>
#include <mutex>
#include <thread>

#include <gmock/gmock.h>

#include "axonn/data/storage/checkpoint/checkpoint_saver.h"
#include "axonn/data/storage/checkpoint/local_reader.h"
#include "axonn/data/storage/checkpoint/local_saver.h"
#include "axonn/foundation/base/check.h"
#include "axonn/ranks/comm/texts.h"
#include "axonn/ranks/comm/threads/threads.h"

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

namespace {

constexpr const char* kRun = "0123456789abcdef";

/// Ranks of a grid on nodes of so many, which a new start may have in another order.
struct Cluster {
  std::string folder;
  GridShape shape = {1, 1, 2, 2};
  int node_ranks = 2;
  int shift = 0;  ///< of the nodes' names

  std::string node(int number) const { return folder + "/node-" + std::to_string(number); }
  LocalStore store(int rank) const {
    const int nodes = (shape.ranks() + node_ranks - 1) / node_ranks;
    return {folder, "node-" + std::to_string((rank / node_ranks + shift) % nodes), kRun};
  }
};

/// Writes the local checkpoints of these steps, in one start.
void write(const Cluster& cluster, const std::vector<std::int64_t>& steps) {
  run_ranks(cluster.shape.ranks(), [&](Communicator& world) {
    ModelState state(cluster.shape, world.rank());
    LocalSaver saver(world, cluster.store(world.rank()), -1);
    for (const std::int64_t step : steps) {
      state.fill(static_cast<float>(step));
      saver.begin(step, state.blocks(), {{"state.json", concat("step ", step)}, {"none", ""}});
      state.clear();  // the snapshot is a copy
      saver.finish();
    }
  });
}

struct Found {
  std::int64_t step = -1;
  std::string difference;  ///< of any rank's values from those of the step
  std::vector<std::string> told;
};

/// What a new start finds, of this grid or of another one with so many ranks.
Found find(const Cluster& cluster, const LocalSearch& search = {}) {
  Found found;
  std::mutex mutex;
  run_ranks(cluster.shape.ranks(), [&](Communicator& world) {
    std::vector<std::string> told;
    const auto reader = newest_local(world, cluster.store(world.rank()), search, told);
    ModelState state(cluster.shape, world.rank());
    std::string difference;
    if (reader) {
      EXPECT_EQ(reader->text("state.json"), concat("step ", reader->step()));
      EXPECT_TRUE(reader->has_text("none"));
      load_blocks(*reader, state.blocks());
      difference = state.difference(static_cast<float>(reader->step()));
    }
    const std::lock_guard lock(mutex);
    if (reader) found.step = reader->step();
    if (!difference.empty()) found.difference = concat("rank ", world.rank(), ": ", difference);
    EXPECT_TRUE(found.told.empty() || found.told == told) << "ranks are told different things";
    found.told = told;
  });
  return found;
}

/// The folder of a rank's only shard of a step on a node.
std::string shard(const Cluster& cluster, int node, std::int64_t step, int rank) {
  const std::string folder = concat(cluster.node(node), '/', kRun, "/step-", step);
  const std::string name = concat("rank-0000", rank, '-');
  std::string found;
  for (const std::string& one : names_in(folder)) {
    if (!one.starts_with(name)) continue;
    EXPECT_EQ(found, "") << "two shards of a rank";
    found = folder + '/' + one;
  }
  EXPECT_NE(found, "") << "no shard of rank " << rank << " in " << folder;
  return found;
}

std::string file_of(const std::string& shard, int rank) {
  return concat(shard, "/rank-0000", rank, ".safetensors");
}

/// The nodes that are left become those of another cluster, in turn.
void move_nodes(const Cluster& from, const Cluster& to) {
  const int nodes = (to.shape.ranks() + to.node_ranks - 1) / to.node_ranks;
  int number = 0;
  for (const std::string& node : names_in(from.folder)) {
    const fs::path at = from.folder + '/' + node, target = to.node(number++ % nodes);
    for (const auto& step : fs::directory_iterator(at / kRun))
      for (const auto& one : fs::directory_iterator(step)) {
        const fs::path moved = target / fs::relative(one, at);
        fs::create_directories(moved.parent_path());
        if (!fs::exists(moved)) fs::rename(one, moved);
      }
  }
}

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
  for (const int node : {0, 1})
    fs::rename(concat(cluster.node(node), '/', kRun), cluster.node(node) + "/fedcba9876543210");
  EXPECT_EQ(find(cluster).step, -1);
}

TEST(LocalCheckpoint, OfAnyGridGivesEachRankOfAnotherOneItsValues) {
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

TEST(LocalCheckpoint, OfAnotherGridWithADamagedShardIsTakenFromItsCopy) {
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

TEST(LocalCheckpoint, OfAnotherGridOfWhichNodesAreMissingIsRefusedWithTheRanks) {
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

TEST(LocalCheckpoint, OfManyPiecesAlsoInFewBitsHasOnAnotherGridTheBitsOfACheckpoint) {
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

TEST(LocalCheckpoint, OfAnotherGridThatIsDamagedWhileItIsReadEndsAllRanksAlike) {
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
