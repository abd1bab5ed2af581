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
  LocalFinder(Communicator& world, const LocalStore& store, const LocalSearch& search,
              std::vector<std::string>& told)
      : world_(world),
        store_(store),
        search_(search),
        ranks_(search.other_ranks > 0 ? search.other_ranks : world.size()),
        nodes_(views_of(world, store)),
        here_(nodes_.ranks_on(nodes_.of(world.rank()))),
        shards_(shards_in(store)),
        told_(told) {}

  std::optional<CheckpointReader> find() {
    for (const Generation& generation : candidates()) {
      const std::vector<std::int32_t> mine = verified(generation), holders = lowest(world_, mine);
      const std::vector<int> missing =
          ranks_without(ranks_, [&](int rank) { return holders[rank] < world_.size(); });
      if (missing.empty())
        return search_.other_ranks > 0 ? open_all(generation, mine, holders)
                                       : open_own(generation, mine, holders);
      told_.push_back(not_whole(generation, missing));
    }
    return {};
  }

 private:
  /// Those of which shards of all ranks are there by their names, newest first.
  std::vector<Generation> candidates() {
    std::ostringstream mine;  // a node's first rank speaks for it
    if (here_.front() == world_.rank())
      for (const LocalShard& shard : shards_)
        mine << shard.step << ' ' << shard.start << ' ' << shard.rank << '\n';
    std::map<Generation, std::set<int>, std::greater<>> ranks_of;
    gather_texts(world_, mine.str(), [&](const std::string& text) {
      std::istringstream lines(text);
      Generation of;
      for (int rank = 0; lines >> of.step >> of.start >> rank;)
        if (of.step > search_.after && of.step <= search_.until) ranks_of[of].insert(rank);
    });
    std::vector<std::string> whole, partial;
    for (const auto& [generation, ranks] : ranks_of) {
      const std::vector<int> missing =
          ranks_without(ranks_, [&, &of = ranks](int rank) { return of.contains(rank); });
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

  /// Verifies all shards, which the ranks of a node share among them. Returns for each shard this
  /// rank if it has found it intact, and else world.size().
  std::vector<std::int32_t> verified(const Generation& generation) {
    const int me = world_.rank();
    const auto own = std::ranges::find(here_, me) - here_.begin();
    std::vector<std::int32_t> mine(ranks_, world_.size());
    std::string faults;
    std::ptrdiff_t number = 0;
    for (const LocalShard& shard : shards_) {
      if (!generation.has(shard) || shard.rank >= ranks_) continue;
      if (number++ % std::ssize(here_) != own) continue;
      const std::string fault = fault_of_shard(shard);
      if (fault.empty())
        mine[shard.rank] = me;
      else
        faults += fault + '\n';
    }
    tell(faults);
    return mine;
  }

  /// For each shard the lowest rank of the group that has one; world.size() if nobody has.
  static std::vector<std::int32_t> lowest(Communicator& group, std::vector<std::int32_t> mine) {
    group.all_reduce(buffer(std::span(mine)), "holders of shards", ReduceOp::min).wait();
    return mine;
  }

  std::string fault_of_shard(const LocalShard& shard) const {
    return fault_of([&] {
      const CheckpointReader reader(shard.folder(store_));
      const CheckpointIndex& index = reader.index();
      if (index.step != shard.step || index.ranks != ranks_ || index.files.size() > 1 ||
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

  LocalShard shard_of(const Generation& generation, int rank) const {
    return {generation.step, rank, generation.start};
  }

  std::optional<CheckpointReader> open_own(const Generation& generation,
                                           std::vector<std::int32_t> mine,
                                           std::vector<std::int32_t> holders) {
    for (int rank = 0; rank < ranks_; ++rank)  // those on the ranks' own nodes come first
      if (nodes_.of(rank) != nodes_.of(world_.rank())) mine[rank] = world_.size();
    const std::vector<std::int32_t> at_home = lowest(world_, std::move(mine));
    for (int rank = 0; rank < ranks_; ++rank)
      if (at_home[rank] < world_.size()) holders[rank] = at_home[rank];
    // All pairs in one order: so none waits for one that waits for it.
    std::string fault;
    for (int rank = 0; rank < world_.size(); ++rank) {
      if (nodes_.of(holders[rank]) == nodes_.of(rank)) continue;
      if (world_.rank() == holders[rank]) send(shard_of(generation, rank));
      if (world_.rank() == rank) fault = receive(shard_of(generation, rank), holders[rank]);
    }
    const std::string folder = shard_of(generation, world_.rank()).folder(store_);
    std::optional<CheckpointReader> reader;
    if (fault.empty()) fault = fault_of([&] { reader.emplace(folder); });
    agree(world_, "opening local checkpoint " + step_name(generation.step), fault);
    reader->share_texts(world_);
    return reader;
  }

  std::optional<CheckpointReader> open_all(const Generation& generation,
                                           const std::vector<std::int32_t>& mine,
                                           const std::vector<std::int32_t>& holders) {
    CheckpointIndex part;  // of the shards that this rank speaks for
    StateTexts texts;
    const std::string fault = fault_of([&] {
      for (int rank = 0; rank < ranks_; ++rank) {
        if (holders[rank] != world_.rank()) continue;
        const CheckpointReader reader(shard_of(generation, rank).folder(store_));
        for (const auto& [name, stored] : reader.index().texts) texts[name] = reader.text(name);
        merge(part, reader.index());
      }
    });
    agree(world_, "opening local checkpoint " + step_name(generation.step), fault);
    auto [index, all_texts] = whole_of(generation, tail_of(std::move(part), texts));
    const auto node = world_.split(nodes_.of(world_.rank()), "shards of a node");
    const std::vector<std::int32_t> here = lowest(*node, mine);
    FilePlaces places{.world = &world_, .paths = {}, .holders = {}};
    std::map<std::string, int> ranks_by_file;
    for (int rank = 0; rank < ranks_; ++rank) ranks_by_file[rank_file(rank)] = rank;
    for (const StoredFile& file : index.files) {
      const int rank = ranks_by_file.at(file.name);
      const bool is_here = here[rank] < world_.size();
      places.paths.push_back(
          is_here ? concat(shard_of(generation, rank).folder(store_), '/', file.name) : "");
      places.holders.push_back(holders[rank]);
    }
    return CheckpointReader(concat(store_.of_run(), '/', step_name(generation.step)),
                            std::move(index), std::move(all_texts), std::move(places));
  }

  /// The index and the texts of a checkpoint, from those of its shards.
  std::pair<CheckpointIndex, StateTexts> whole_of(const Generation& generation,
                                                  const std::string& part) {
    const std::string path = concat(store_.of_run(), '/', step_name(generation.step));
    CheckpointIndex whole{.step = generation.step, .ranks = ranks_};
    StateTexts texts;
    gather_texts(world_, part, [&](const std::string& tail) {
      auto [index, more] = parse_tail(tail, path);
      merge(whole, std::move(index));
      texts.merge(more);
    });
    return parse_tail(broadcast_text(world_, tail_of(std::move(whole), texts), 0), path);
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
  const LocalSearch& search_;
  int ranks_;                       // of the grid that wrote them
  Hosts nodes_;                     // of one host each
  std::vector<int> here_;           // the ranks of this node
  std::vector<LocalShard> shards_;  // on this node
  std::vector<std::string>& told_;
};

}  // namespace

std::optional<CheckpointReader> newest_local(Communicator& world, const LocalStore& store,
                                             const LocalSearch& search,
                                             std::vector<std::string>& told) {
  adopt_shards(world, store);
  return LocalFinder(world, store, search, told).find();
}

}  // namespace axonn
