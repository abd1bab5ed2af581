#include "axonn/data/storage/checkpoint/local_reader.h"

#include <algorithm>
#include <map>
#include <set>
#include <sstream>

#include "axonn/data/storage/checkpoint/state_snapshot.h"
#include "axonn/foundation/base/check.h"
#include "axonn/ranks/comm/texts.h"

namespace axonn {

namespace {

/// A local checkpoint: its step and the start that wrote it.
struct Generation {
  std::int64_t step = 0;
  std::string start;
  auto operator<=>(const Generation&) const = default;
  bool has(const LocalShard& shard) const { return shard.step == step && shard.start == start; }
};

/// "2, 3 and 5".
std::string list_of(const std::vector<int>& ranks) {
  std::string text;
  for (std::size_t i = 0; i < ranks.size(); ++i)
    text += concat(i == 0 ? "" : i + 1 == ranks.size() ? " and " : ", ", ranks[i]);
  return text;
}

/// The ranks below `size` for which `has` is false.
std::vector<int> ranks_without(int size, const auto& has) {
  std::vector<int> ranks;
  for (int rank = 0; rank < size; ++rank)
    if (!has(rank)) ranks.push_back(rank);
  return ranks;
}

std::string not_whole(const Generation& generation, const std::vector<int>& missing) {
  return concat("local checkpoint ", step_name(generation.step),
                " is not whole: no node has an intact shard of rank",
                missing.size() > 1 ? "s " : " ", list_of(missing));
}

class LocalFinder {
 public:
  LocalFinder(Communicator& world, const LocalStore& store, std::vector<std::string>& told)
      : world_(world),
        store_(store),
        nodes_(nodes_of(world, store.node)),
        here_(nodes_.ranks_on(nodes_.of(world.rank()))),
        shards_(shards_in(store)),
        told_(told) {}

  std::optional<CheckpointReader> find(std::int64_t after) {
    for (const Generation& generation : candidates(after)) {
      const std::vector<int> holders = holders_of(generation);
      const std::vector<int> missing =
          ranks_without(world_.size(), [&](int rank) { return holders[rank] < world_.size(); });
      if (missing.empty()) return open(generation, holders);
      told_.push_back(not_whole(generation, missing));
    }
    return {};
  }

 private:
  /// Those of which shards of all ranks are there by their names, newest first.
  std::vector<Generation> candidates(std::int64_t after) {
    std::ostringstream mine;  // a node's first rank speaks for it
    if (here_.front() == world_.rank())
      for (const LocalShard& shard : shards_)
        mine << shard.step << ' ' << shard.start << ' ' << shard.rank << '\n';
    std::map<Generation, std::set<int>, std::greater<>> ranks_of;
    gather_texts(world_, mine.str(), [&](const std::string& text) {
      std::istringstream lines(text);
      Generation of;
      for (int rank = 0; lines >> of.step >> of.start >> rank;)
        if (of.step > after) ranks_of[of].insert(rank);
    });
    std::vector<std::string> whole, partial;
    for (const auto& [generation, ranks] : ranks_of) {
      const std::vector<int> missing =
          ranks_without(world_.size(), [&, &of = ranks](int rank) { return of.contains(rank); });
      if (missing.empty())
        whole.insert(whole.end(), {concat(generation.step), generation.start});
      else if (whole.empty())
        partial.push_back(not_whole(generation, missing));
    }
    for (const std::string& line : broadcast_texts(world_, std::move(partial)))
      told_.push_back(line);
    whole = broadcast_texts(world_, std::move(whole));
    std::vector<Generation> found;
    for (std::size_t i = 0; i < whole.size(); i += 2)
      found.push_back({std::stoll(whole[i]), whole[i + 1]});
    return found;
  }

  /// Verifies all shards, which the ranks of a node share among them. Returns for each rank the
  /// rank that has its shard: on its own node if it is there; world.size() if nobody has.
  std::vector<int> holders_of(const Generation& generation) {
    const int size = world_.size(), me = world_.rank();
    const auto own = std::ranges::find(here_, me) - here_.begin();
    std::vector<std::int32_t> holders(2 * size, size);  // on any node, on the rank's own
    std::string faults;
    std::ptrdiff_t number = 0;
    for (const LocalShard& shard : shards_) {
      if (!generation.has(shard) || shard.rank >= size) continue;
      if (number++ % std::ssize(here_) != own) continue;
      const std::string fault = fault_of_shard(shard);
      if (!fault.empty()) faults += fault + '\n';
      if (!fault.empty()) continue;
      holders[shard.rank] = me;
      if (nodes_.of(shard.rank) == nodes_.of(me)) holders[size + shard.rank] = me;
    }
    tell(faults);
    world_.all_reduce(buffer(std::span(holders)), "holders of shards", ReduceOp::min).wait();
    std::vector<int> found(size);
    for (int rank = 0; rank < size; ++rank)
      found[rank] = holders[size + rank] < size ? holders[size + rank] : holders[rank];
    return found;
  }

  std::string fault_of_shard(const LocalShard& shard) const {
    return fault_of([&] {
      const CheckpointReader reader(shard.folder(store_));
      const CheckpointIndex& index = reader.index();
      if (index.step != shard.step || index.ranks != world_.size() || index.files.size() > 1 ||
          (!index.files.empty() && index.files.front().name != rank_file(shard.rank)))
        refuse(reader.folder(), " is of another step, rank or number of ranks");
      reader.verify_files();
      world_.note_progress();
    });
  }

  /// Adds the lines of all ranks to what is told. Collective.
  void tell(const std::string& mine) {
    std::vector<std::string> all;
    gather_texts(world_, mine, [&](const std::string& text) {
      std::istringstream lines(text);
      for (std::string line; std::getline(lines, line);)
        all.push_back("a local shard is not used: " + line);
    });
    for (const std::string& line : broadcast_texts(world_, std::move(all))) told_.push_back(line);
  }

  std::optional<CheckpointReader> open(const Generation& generation,
                                       const std::vector<int>& holders) {
    const auto shard = [&](int rank) {
      return LocalShard{generation.step, rank, generation.start};
    };
    // All pairs in one order: so none waits for one that waits for it.
    std::string fault;
    for (int rank = 0; rank < world_.size(); ++rank) {
      if (nodes_.of(holders[rank]) == nodes_.of(rank)) continue;
      if (world_.rank() == holders[rank]) send(shard(rank));
      if (world_.rank() == rank) fault = receive(shard(rank), holders[rank]);
    }
    const std::string folder = shard(world_.rank()).folder(store_);
    std::optional<CheckpointReader> reader;
    if (fault.empty()) fault = fault_of([&] { reader.emplace(folder); });
    agree(world_, "opening local checkpoint " + step_name(generation.step), fault);
    reader->share_texts(world_);
    return reader;
  }

  void send(const LocalShard& shard) {
    const CheckpointReader reader(shard.folder(store_));
    const CheckpointIndex& index = reader.index();
    std::optional<InputFile> file;
    if (!index.files.empty()) file.emplace(concat(reader.folder(), '/', index.files.front().name));
    StateTexts texts;
    for (const auto& [name, stored] : index.texts) texts[name] = reader.text(name);
    std::vector<std::byte> piece;
    const OutgoingShard out{.to = shard.rank,
                            .bytes = file ? file->bytes() : 0,
                            .piece =
                                [&](std::int64_t at, std::int64_t count) {
                                  piece.resize(count);
                                  file->read(at, piece);
                                  return std::span<const std::byte>(piece);
                                },
                            .tail = [&] { return tail_of(index, texts); }};
    std::vector<IncomingShard> none;
    exchange_shards(world_, &out, none);
  }

  std::string receive(const LocalShard& shard, int from) {
    std::vector<IncomingShard> in;
    in.push_back({from, std::make_unique<ShardWriter>(shard.folder(store_), shard.rank)});
    exchange_shards(world_, nullptr, in);
    return in.front().writer->fault();
  }

  Communicator& world_;
  const LocalStore& store_;
  Hosts nodes_;
  std::vector<int> here_;           // the ranks of this node
  std::vector<LocalShard> shards_;  // on this node
  std::vector<std::string>& told_;
};

}  // namespace

std::optional<CheckpointReader> newest_local(Communicator& world, const LocalStore& store,
                                             std::int64_t after, std::vector<std::string>& told) {
  return LocalFinder(world, store, told).find(after);
}

}  // namespace axonn
