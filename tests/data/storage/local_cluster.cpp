#include "tests/data/storage/local_cluster.h"

#include <filesystem>
#include <mutex>

#include <gtest/gtest.h>

#include "axonn/data/storage/checkpoint/local_saver.h"
#include "axonn/foundation/base/check.h"
#include "axonn/ranks/comm/threads/threads.h"

#include "tests/data/storage/model_state.h"
#include "tests/support/temporary_path.h"

namespace axonn::test {

namespace fs = std::filesystem;
using namespace testing_support;

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

Found find(const Cluster& cluster, const LocalSearch& search) {
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

}  // namespace axonn::test
