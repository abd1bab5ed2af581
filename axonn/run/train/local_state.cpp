#include "axonn/run/train/local_state.h"

#include <algorithm>
#include <filesystem>
#include <functional>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "axonn/data/storage/checkpoint/local_reader.h"
#include "axonn/foundation/base/check.h"
#include "axonn/foundation/base/files.h"
#include "axonn/foundation/base/hash.h"
#include "axonn/foundation/base/host.h"
#include "axonn/foundation/base/log.h"
#include "axonn/ranks/comm/texts.h"
#include "axonn/run/records/run_folder.h"

namespace axonn {

namespace {

std::string file_of(const Config& config) { return concat(config.output.dir, '/', kLocalRunFile); }

/// The run and the grid that a local.json names; empty texts if it cannot be read.
std::pair<std::string, std::string> named_in(const std::string& file) {
  if (!path_exists(file)) return {};
  std::string text;
  if (!fault_of([&] { text = read_text(file); }).empty()) return {};
  const auto json = nlohmann::json::parse(text, nullptr, false);
  const auto of = [&](const char* key) {
    return json.is_object() && json.contains(key) && json[key].is_string()
               ? json[key].get<std::string>()
               : std::string();
  };
  std::string run = of("run");
  if (!parse_hex(run)) run.clear();  // it becomes a part of paths
  return {run, of("grid")};
}

/// The message of an error that all ranks got alike; "" if there is none.
std::string fault_in(const std::function<void()>& work) {
  try {
    work();
    return {};
  } catch (const AgreedError& error) {
    return error.what();
  }
}

}  // namespace

LocalBytes local_bytes(const Config& config, std::int64_t shard) {
  const CheckpointConfig& options = config.checkpoint;
  if (options.local_every == 0) return {};
  const std::int64_t ranks = config.parallelism.grid().ranks(), together = options.local_node_ranks;
  const bool copies = ranks > std::max<std::int64_t>(together, 1);
  LocalBytes bytes{.stored = (copies ? 4 : 2) * shard, .sent = copies ? shard : 0};
  const bool is_memory = (options.local_folder + '/').starts_with("/dev/shm/");
  bytes.memory = shard + (is_memory ? bytes.stored : 0);
  return bytes;
}

LocalState::LocalState(const Config& config, Communicator& world) : config_(config), world_(world) {
  const CheckpointConfig& options = config.checkpoint;
  const std::int64_t ranks = options.local_node_ranks;
  store_.folder = options.local_folder;
  store_.node = ranks > 0 ? fmt::format("node-{}", world.rank() / ranks) : host_name();
}

std::optional<CheckpointReader> LocalState::find(std::int64_t after,
                                                 std::vector<std::string>& told) {
  if (config_.checkpoint.local_every == 0) return {};
  std::vector<std::string> named;
  if (world_.rank() == 0 && config_.checkpoint.resume == "auto") {
    const auto [run, grid] = named_in(file_of(config_));
    named = {run, grid};
  }
  named = broadcast_texts(world_, std::move(named));
  if (named.empty() || named[0].empty()) return {};
  earlier_ = named[0];
  const std::string grid = with_factors(config_.parallelism.grid());
  if (named[1] != grid) {
    told.push_back(concat("the local checkpoints of this run are of the grid ", named[1],
                          ", and its grid is ", grid, " now: they are not used"));
    return {};
  }
  store_.run = earlier_;
  auto reader = newest_local(world_, store_, after, told);
  if (reader)
    resumed_ = reader->step();
  else
    told.push_back(
        fmt::format("no local checkpoint after step {} is whole on the nodes of this run", after));
  return reader;
}

std::string LocalState::start(std::int64_t bytes) {
  if (config_.checkpoint.local_every == 0) return {};
  if (!resumed()) {
    store_.run = broadcast_text(world_, random_hex(), 0);
    if (world_.rank() == 0)
      write_file_atomically(
          file_of(config_),
          nlohmann::json{{"run", store_.run}, {"grid", with_factors(config_.parallelism.grid())}}
                  .dump() +
              '\n');
  }
  saver_ = std::make_unique<LocalSaver>(world_, store_, resumed_);
  if (!resumed()) remove_shards({store_.folder, store_.node, earlier_});
  saver_->check_room(bytes);
  return fmt::format("local checkpoints: {} of this rank in {}/{}, {}", format_bytes(bytes),
                     store_.folder, store_.node,
                     saver_->has_copies()
                         ? fmt::format("and a copy on another of {} nodes", saver_->node_count())
                         : "without copies, as all ranks are on one node");
}

bool LocalState::is_due(std::int64_t steps_done) const {
  return saver_ && steps_done % config_.checkpoint.local_every == 0;
}

std::string LocalState::finish() {
  return saver_ && saver_->pending() ? fault_in([&] { saver_->finish(); }) : "";
}

std::string LocalState::begin(std::int64_t step, std::span<const StateBlock> blocks,
                              const StateTexts& texts, const std::function<void()>& compare) {
  return fault_in([&] { saver_->begin(step, blocks, texts, compare); });
}

std::string LocalState::end() {
  finish();                 // there is a checkpoint now, so a fault does no harm
  std::error_code ignored;  // another run does not take what is gone
  if (!store_.run.empty() && world_.rank() == 0) std::filesystem::remove(file_of(config_), ignored);
  remove_shards(store_);
  if (!saver_) return {};
  const LocalCost& cost = saver_->cost();
  if (cost.written == 0) return {};
  const auto each = static_cast<double>(cost.written);
  return fmt::format("local checkpoints: {} written, each in {:.4f} s; training waited {:.4f} s",
                     cost.written, cost.write_seconds / each, cost.stall_seconds / each);
}

}  // namespace axonn
