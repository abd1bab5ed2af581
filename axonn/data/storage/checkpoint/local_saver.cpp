#include "axonn/data/storage/checkpoint/local_saver.h"

#include <algorithm>
#include <filesystem>

#include "axonn/foundation/base/check.h"
#include "axonn/foundation/base/clock.h"
#include "axonn/ranks/comm/texts.h"

namespace axonn {

namespace {

namespace fs = std::filesystem;

/// Blocks of which the rank counts as the owner of all that it has.
std::vector<StateBlock> all_owned(std::span<const StateBlock> given) {
  std::vector<StateBlock> blocks(given.begin(), given.end());
  for (StateBlock& block : blocks)
    for (StateParameter& parameter : block.parameters)
      for (Slice& slice : parameter.slices) slice.owned = true;
  return blocks;
}

}  // namespace

LocalSaver::LocalSaver(Communicator& world, LocalStore store, std::int64_t kept)
    : world_(world),
      store_(std::move(store)),
      rank_(world.rank()),
      nodes_(nodes_of(world, store_.node)),
      views_(views_of(world, store_)),
      group_(world.split(0, "local checkpoints")),
      start_(broadcast_text(world, random_hex(), 0)),
      kept_(kept) {
  make_folders(store_);
  for (int rank = 0; rank < world.size(); ++rank)
    if (keeper_of(nodes_, rank) == rank_) clients_.push_back(rank);
}

void LocalSaver::check_room(std::int64_t bytes, std::int64_t replaced) const {
  std::vector<std::int64_t> all(world_.size());
  world_.all_gather(buffer(std::span(all)), buffer(std::span(&bytes, 1)), "local bytes").wait();
  std::int64_t need = 0;
  for (int rank = 0; rank < world_.size(); ++rank)
    for (const int holder : {rank, keeper_of(nodes_, rank)})
      if (holder >= 0 && views_.of(holder) == views_.of(rank_)) need += all[rank];
  if (kept_ < 0) need = std::max(need, 2 * need - replaced);  // otherwise one is there
  const std::int64_t room = free_bytes(store_.folder);
  agree(world_, "local checkpoints",
        room >= need ? ""
                     : concat("they need ", need, " bytes on this node, and ", store_.folder,
                              " has room for ", room,
                              "; set checkpoint.local_folder to another disk, or local_every = 0"));
}

void LocalSaver::begin(std::int64_t step, std::span<const StateBlock> blocks,
                       const StateTexts& texts, const IsWhole& is_whole) {
  AXONN_CHECK(!pending_, "local checkpoint ", step_name(step_), " is not finished");
  const double begin = now_seconds();
  step_ = step;
  texts_.clear();
  const std::string fault = fault_of([&] {
    if (rank_ == 0) texts_ = texts;
    snapshot_.take_whole(all_owned(blocks), rank_, is_whole);
    index_ = snapshot_.part();
    index_.step = step;
    index_.ranks = world_.size();
  });
  agree(world_, "local checkpoint " + step_name(step), fault);
  pending_ = true;
  fault_.clear();
  waits_.begin();
  writer_ = std::jthread([this] { write(); });
  cost_.stall_seconds += now_seconds() - begin;
}

/// Removes all but the checkpoint that is whole and the one that is written now.
void LocalSaver::remove_older() const {
  const auto stays = [&](std::int64_t step) { return step == kept_ || step == step_; };
  for (const LocalShard& shard : shards_in(store_)) {
    const bool own = shard.rank == rank_ || std::ranges::count(clients_, shard.rank) > 0;
    if (own && !stays(shard.step)) remove_beside_others(shard.folder(store_));
  }
  for (const std::int64_t step : steps_in(store_.of_run()))
    if (leads_view() && !stays(step)) remove_beside_others(store_.of_run() + '/' + step_name(step));
}

void LocalSaver::write() {
  const double begin = now_seconds();
  try {
    remove_older();
    ShardWriter own(shard_of(rank_).folder(store_), rank_);
    std::vector<IncomingShard> copies;
    for (const int client : clients_)
      copies.push_back(
          {client, std::make_unique<ShardWriter>(shard_of(client).folder(store_), client)});
    const std::span<const std::byte> bytes = snapshot_.bytes();
    const OutgoingShard out{
        .to = keeper_of(nodes_, rank_),
        .bytes = std::ssize(bytes),
        .piece = [&](std::int64_t at, std::int64_t count) { return bytes.subspan(at, count); },
        .meanwhile =
            [&](std::span<const std::byte> piece) {
              own.append(piece);
              world_.note_progress();
            },
        .tail =
            [&] {
              if (!bytes.empty()) index_.files.front().checksums = own.finish_file();
              own.publish(index_, texts_);
              return own.fault().empty() ? tail_of(index_, texts_) : fault_tail(own.fault());
            }};
    exchange_shards(*group_, &out, copies, [this](Work& work) { waits_.wait(work); });
    fault_ = own.fault();
    for (const IncomingShard& copy : copies)
      if (fault_.empty() && !copy.writer->fault().empty())
        fault_ = concat("the copy of rank ", copy.from, "'s: ", copy.writer->fault());
  } catch (const std::exception& error) {  // also the end of the world
    fault_ = error.what();
  }
  cost_.write_seconds += now_seconds() - begin;
  waits_.end();
}

void LocalSaver::finish() {
  AXONN_CHECK(pending_, "no local checkpoint was begun");
  const double begin = now_seconds();
  waits_.follow();
  if (writer_.joinable()) writer_.join();
  pending_ = false;
  agree(world_, "local checkpoint " + step_name(step_), fault_);
  kept_ = step_;
  ++cost_.written;
  cost_.bytes = std::ssize(snapshot_.bytes());
  cost_.stall_seconds += now_seconds() - begin;
}

}  // namespace axonn
