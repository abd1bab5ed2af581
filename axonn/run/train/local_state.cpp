#include "axonn/run/train/local_state.h"

#include <algorithm>
#include <filesystem>
#include <utility>

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

/// The number of ranks of a grid with its factors; 0 if the text is none.
int ranks_of(const std::string& grid) {
  int ranks = 0;
  fault_of([&] { ranks = parse_grid(grid.substr(0, grid.find(' '))).ranks(); });
  return ranks;
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
  LocalBytes bytes{.shard = shard, .stored = (copies ? 4 : 2) * shard, .sent = copies ? shard : 0};
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

/// On rank 0: the runs that local.json names; none if it cannot be read.
std::vector<LocalState::OnGrid> LocalState::named_in_file() const {
  const std::string file = file_of(config_);
  std::string text;
  if (!path_exists(file) || !fault_of([&] { text = read_text(file); }).empty()) return {};
  const nlohmann::json json = nlohmann::json::parse(text, nullptr, false);
  std::vector<OnGrid> named;
  const auto add = [&](const nlohmann::json& one) {
    if (!one.is_object() || !one.contains("run") || !one.contains("grid")) return;
    OnGrid on{.run = one["run"], .grid = one["grid"]};
    if (one.contains("step")) on.until = one["step"];
    if (parse_hex(on.run)) named.push_back(on);  // it becomes a part of paths
  };
  const std::string fault = fault_of([&] {
    add(json);
    if (json.contains("earlier")) add(json["earlier"]);
  });
  return fault.empty() ? named : std::vector<OnGrid>();
}

std::optional<CheckpointReader> LocalState::find(std::int64_t after,
                                                 std::vector<std::string>& told) {
  if (config_.checkpoint.local_every == 0) return {};
  std::vector<std::string> texts;
  if (world_.rank() == 0 && config_.checkpoint.resume == "auto")
    for (const OnGrid& one : named_in_file())
      texts.insert(texts.end(), {one.run, one.grid, concat(one.until)});
  texts = broadcast_texts(world_, std::move(texts));
  for (std::size_t i = 0; i < texts.size(); i += 3)
    named_.push_back({texts[i], texts[i + 1], std::stoll(texts[i + 2])});
  for (const OnGrid& one : named_)
    if (auto reader = find(one, after, told)) return reader;
  if (!named_.empty())
    told.push_back(
        fmt::format("no local checkpoint after step {} is whole on the nodes of this run", after));
  return {};
}

std::optional<CheckpointReader> LocalState::find(const OnGrid& one, std::int64_t after,
                                                 std::vector<std::string>& told) {
  const bool same = one.grid == with_factors(config_.parallelism.grid());
  const LocalSearch search{
      .after = after, .until = one.until, .other_ranks = same ? 0 : ranks_of(one.grid)};
  if (!same && search.other_ranks == 0) return {};
  auto reader = newest_local(world_, store_of(one.run), search, told);
  if (!reader) return {};
  resumed_ = reader->step();
  from_ = {one.run, one.grid, resumed_};
  return reader;
}

std::string LocalState::start(std::int64_t bytes) {
  if (config_.checkpoint.local_every == 0) return {};
  const bool goes_on = resumed() && same_grid();
  store_.run = goes_on ? from_.run : broadcast_text(world_, random_hex(), 0);
  if (world_.rank() == 0 && (!goes_on || named_.front().run != store_.run)) {
    nlohmann::json json{{"run", store_.run}, {"grid", with_factors(config_.parallelism.grid())}};
    if (resumed() && !goes_on)
      json["earlier"] = {{"run", from_.run}, {"grid", from_.grid}, {"step", from_.until}};
    write_file_atomically(file_of(config_), json.dump() + '\n');
  }
  saver_ = std::make_unique<LocalSaver>(world_, store_, goes_on ? resumed_ : -1);
  for (const OnGrid& one : named_)
    if (one.run != from_.run) remove_shards(store_of(one.run));
  std::int64_t replaced = 0;  // of the shards of another grid
  if (resumed() && !goes_on) {
    until_whole_ = from_.run;
    replaced = keep_step(store_of(until_whole_), resumed_);
  }
  saver_->check_room(bytes, replaced);
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
  if (!saver_ || !saver_->pending()) return "";
  const std::string fault = fault_in([&] { saver_->finish(); });
  if (fault.empty() && !until_whole_.empty())
    remove_shards(store_of(std::exchange(until_whole_, "")));
  return fault;
}

std::string LocalState::begin(std::int64_t step, std::span<const StateBlock> blocks,
                              const StateTexts& texts, const IsWhole& is_whole) {
  return fault_in([&] { saver_->begin(step, blocks, texts, is_whole); });
}

std::string LocalState::end() {
  finish();  // there is a checkpoint now, so a fault does no harm
  remove_shards(store_);
  for (const OnGrid& one : named_) remove_shards(store_of(one.run));
  if (!store_.run.empty() || !named_.empty()) {
    world_.barrier("local checkpoints are removed");
    std::error_code ignored;  // until then a start that has nothing to do removes the rest
    if (world_.rank() == 0) std::filesystem::remove(file_of(config_), ignored);
  }
  if (!saver_) return {};
  const LocalCost& cost = saver_->cost();
  if (cost.written == 0) return {};
  const auto each = static_cast<double>(cost.written);
  return fmt::format("local checkpoints: {} written, each in {:.4f} s; training waited {:.4f} s",
                     cost.written, cost.write_seconds / each, cost.stall_seconds / each);
}

}  // namespace axonn
