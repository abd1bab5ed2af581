#include "axonn/data/storage/checkpoint/local_shard.h"

#include <algorithm>
#include <filesystem>
#include <set>

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include "axonn/data/storage/checkpoint/state_snapshot.h"
#include "axonn/foundation/base/check.h"
#include "axonn/foundation/base/host.h"
#include "axonn/foundation/base/random.h"
#include "axonn/ranks/comm/texts.h"

namespace axonn {

namespace {

namespace fs = std::filesystem;

constexpr std::size_t kStartDigits = 16;
constexpr std::size_t kLengthDigits = 16;  // of an index in a tail, in hex
constexpr char kFaultMark = '!';           // begins a tail that is a fault

/// Bytes of a message. A round of messages takes about a millisecond beside its bytes.
constexpr std::int64_t kMessageBytes = 4 * kPieceBytes;

/// The names in a folder; none if it cannot be read.
std::vector<std::string> names_of(const std::string& folder) {
  std::vector<std::string> names;
  std::error_code error;
  for (fs::directory_iterator at(folder, error), end; !error && at != end; at.increment(error))
    names.push_back(at->path().filename());
  std::ranges::sort(names);
  return names;
}

/// "rank-00003-0123456789abcdef".
std::optional<LocalShard> shard_of(std::int64_t step, const std::string& name) {
  const std::size_t dash = name.rfind('-');
  if (dash == name.npos || name.size() - dash - 1 != kStartDigits) return {};
  LocalShard shard{.step = step, .start = name.substr(dash + 1)};
  const bool is_hex = parse_hex(shard.start).has_value();
  if (!is_hex || std::sscanf(name.c_str(), "rank-%d", &shard.rank) != 1) return {};
  return fmt::format("rank-{:05}-{}", shard.rank, shard.start) == name ? std::optional(shard)
                                                                       : std::nullopt;
}

std::size_t checked_length(const std::string& tail) {
  const auto length = parse_hex(tail.substr(0, std::min(tail.size(), kLengthDigits)));
  if (!length || *length > tail.size() - kLengthDigits) refuse("what came with it is cut short");
  return *length;
}

/// The hash of a text of each rank.
std::vector<std::uint64_t> hashes_of(Communicator& world, const std::string& text) {
  auto mine = static_cast<std::int64_t>(hash_text(text));
  std::vector<std::int64_t> all(world.size());
  world.all_gather(buffer(std::span(all)), buffer(std::span(&mine, 1)), "nodes").wait();
  return {all.begin(), all.end()};
}

/// What ranks have in common that see the same folder; tests give hosts folders of their own.
std::string host_of(const LocalStore& store) { return concat(host_name(), ':', store.folder); }

/// Moves the shards of one node into the folder of another, but for those that are there.
void move_shards(const LocalStore& from, const LocalStore& to) {
  std::error_code ignored;  // another node's rank may have moved it
  for (const LocalShard& shard : shards_in(from)) {
    const fs::path target = shard.folder(to);
    fs::create_directories(target.parent_path(), ignored);
    if (!fs::exists(target, ignored)) fs::rename(shard.folder(from), target, ignored);
  }
  remove_shards(from);
}

/// Starts the messages of one round and returns when all are there. An empty message is none.
class Round {
 public:
  Round(Communicator& group, const WaitForMessage& wait) : group_(group), wait_(wait) {}
  void send(int to, std::span<const std::byte> bytes) {
    if (to >= 0 && !bytes.empty()) works_.push_back(group_.send(buffer_of(bytes), to, kLabel));
  }
  void receive(int from, std::span<std::byte> bytes) {
    if (!bytes.empty()) works_.push_back(group_.recv(buffer_of(bytes), from, kLabel));
  }
  void finish() {
    for (Work& work : works_) wait_ ? wait_(work) : work.wait();
    works_.clear();
  }

 private:
  static constexpr const char* kLabel = "local checkpoint";
  static Buffer buffer_of(std::span<const std::byte> bytes) {
    return {const_cast<std::byte*>(bytes.data()), std::ssize(bytes), DType::u8};
  }
  Communicator& group_;
  const WaitForMessage& wait_;
  std::vector<Work> works_;
};

/// Sends a number, and receives one of each incoming shard.
std::vector<std::int64_t> exchange_numbers(Round& round, int to, std::int64_t mine,
                                           const std::vector<IncomingShard>& in) {
  std::vector<std::int64_t> numbers(in.size());
  round.send(to, std::as_bytes(std::span(&mine, 1)));
  for (std::size_t i = 0; i < in.size(); ++i)
    round.receive(in[i].from, std::as_writable_bytes(std::span(&numbers[i], 1)));
  round.finish();
  return numbers;
}

/// A text of each incoming shard, of a length that its sender knows.
std::vector<std::string> exchange_texts(Round& round, int to, const std::string& mine,
                                        const std::vector<IncomingShard>& in) {
  const std::vector<std::int64_t> lengths = exchange_numbers(round, to, std::ssize(mine), in);
  std::vector<std::string> texts(in.size());
  round.send(to, std::as_bytes(std::span(mine)));
  for (std::size_t i = 0; i < in.size(); ++i) {
    texts[i].resize(lengths[i]);
    round.receive(in[i].from, std::as_writable_bytes(std::span(texts[i])));
  }
  round.finish();
  return texts;
}

}  // namespace

std::string LocalShard::folder(const LocalStore& store) const {
  return fmt::format("{}/{}/rank-{:05}-{}", store.of_run(), step_name(step), rank, start);
}

std::vector<LocalShard> shards_in(const LocalStore& store) {
  std::vector<LocalShard> shards;
  for (const std::int64_t step : steps_in(store.of_run()))
    for (const std::string& name : names_of(store.of_run() + '/' + step_name(step)))
      if (const auto shard = shard_of(step, name)) shards.push_back(*shard);
  return shards;
}

void make_folders(const LocalStore& store) {
  std::error_code ignored;  // a writer that cannot use them says why
  const std::string above = fs::path(store.folder).parent_path();
  fault_of([&] { make_folders(above.empty() ? "." : above); });
  for (const fs::path& path : {fs::path(store.folder), fs::path(store.folder) / store.node}) {
    if (fs::exists(path, ignored)) continue;
    fs::create_directories(path, ignored);
    const fs::perms shared = fs::perms::sticky_bit | fs::perms::all;
    if (fs::status(path.parent_path(), ignored).permissions() == shared)
      fs::permissions(path, shared, ignored);
  }
  for (const std::string& path : {above.empty() ? "." : above, store.folder}) {
    const FileHandle names(::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
    if (names.get() >= 0) ::fsync(names.get());
  }
}

void remove_beside_others(const std::string& folder) {
  // What another rank removes first ends remove_all() before the rest is gone.
  constexpr int kMostAttempts = 100;
  std::error_code error;
  for (int attempt = 0; attempt < kMostAttempts && fs::exists(folder, error); ++attempt)
    fs::remove_all(folder, error);
}

void remove_shards(const LocalStore& store) {
  if (!store.run.empty()) remove_beside_others(store.of_run());
}

std::int64_t keep_step(const LocalStore& store, std::int64_t step) {
  const auto folder = [&](std::int64_t one) { return store.of_run() + '/' + step_name(one); };
  for (const std::int64_t other : steps_in(store.of_run()))
    if (other != step) remove_beside_others(folder(other));
  std::int64_t bytes = 0;
  std::error_code error;
  for (fs::recursive_directory_iterator at(folder(step), error), end; !error && at != end;
       at.increment(error))
    if (at->is_regular_file(error)) bytes += static_cast<std::int64_t>(at->file_size(error));
  return bytes;
}

Hosts nodes_of(Communicator& world, const std::string& node) {
  return Hosts(hashes_of(world, node));
}

Hosts views_of(Communicator& world, const LocalStore& store) {
  return Hosts(hashes_of(world, concat(host_of(store), '/', store.node)));
}

void adopt_shards(Communicator& world, const LocalStore& store) {
  const std::vector<std::uint64_t> nodes = hashes_of(world, store.node),
                                   names = hashes_of(world, host_name());
  const Hosts hosts(hashes_of(world, host_of(store))), views = views_of(world, store);
  std::set<std::uint64_t> of_others;
  for (int rank = 0; rank < world.size(); ++rank) {
    const bool here = hosts.of(rank) == hosts.of(world.rank());
    of_others.insert(here ? nodes[rank] : names[rank]);
  }
  if (views.ranks_on(views.of(world.rank())).front() == world.rank())
    for (const std::string& node : names_of(store.folder))
      if (!of_others.contains(hash_text(node))) move_shards({store.folder, node, store.run}, store);
  world.barrier("shards of other nodes");
}

int keeper_of(const Hosts& nodes, int rank) {
  return nodes.count() > 1 ? nodes.helper(rank, (nodes.of(rank) + 1) % nodes.count()) : -1;
}

ShardWriter::ShardWriter(std::string folder, int rank)
    : path_(std::move(folder)), name_(rank_file(rank)) {
  attempt([&] { folder_.emplace(path_); });
}

void ShardWriter::fail(const std::string& why) {
  if (fault_.empty()) fault_ = why;
  file_.reset();
  folder_.reset();
}

void ShardWriter::attempt(const std::function<void()>& work) {
  if (!fault_.empty()) return;
  if (const std::string fault = fault_of(work); !fault.empty()) fail(fault);
}

void ShardWriter::append(std::span<const std::byte> piece) {
  attempt([&] {
    if (!file_) file_.emplace(folder_->path() + '/' + name_);
    hasher_.append(piece);
    file_->append(piece);
  });
}

std::vector<std::uint64_t> ShardWriter::finish_file() {
  std::vector<std::uint64_t> checksums;
  attempt([&] {
    if (!file_) return;
    file_->finish();
    file_.reset();
    checksums = hasher_.finish();
  });
  return checksums;
}

void ShardWriter::publish(const CheckpointIndex& index, const StateTexts& texts) {
  attempt([&] {
    write_index(folder_->path(), index, texts);
    folder_->publish();
  });
}

void ShardWriter::publish(const std::string& tail) {
  const std::vector<std::uint64_t> checksums = finish_file();
  attempt([&] {
    const auto [index, texts] = parse_tail(tail, path_);
    if (index.files.empty() ? !checksums.empty() : index.files.front().checksums != checksums)
      refuse(path_, " arrived altered: it does not match its checksums");
    publish(index, texts);
  });
}

std::string tail_of(CheckpointIndex index, const StateTexts& texts) {
  std::string all;
  for (const auto& [name, contents] : texts) {
    index.texts[name] = {std::ssize(contents), xxh3(contents)};
    all += contents;
  }
  const std::string text = to_text(index);
  return hex_of(text.size()) + text + all;
}

std::pair<CheckpointIndex, StateTexts> parse_tail(const std::string& tail,
                                                  const std::string& path) {
  if (tail.starts_with(kFaultMark)) refuse(tail.substr(1));
  const std::size_t length = checked_length(tail);
  CheckpointIndex index = parse_index(tail.substr(kLengthDigits, length), path);
  StateTexts texts;
  std::size_t at = kLengthDigits + length;
  for (const auto& [name, stored] : index.texts) {
    if (stored.bytes > std::ssize(tail) - static_cast<std::int64_t>(at))
      refuse(name, " is cut short");
    texts[name] = tail.substr(at, stored.bytes);
    if (xxh3(texts[name]) != stored.checksum) refuse(name, " arrived altered");
    at += stored.bytes;
  }
  return {std::move(index), std::move(texts)};
}

std::string fault_tail(const std::string& fault) { return kFaultMark + fault; }

void exchange_shards(Communicator& group, const OutgoingShard* out, std::vector<IncomingShard>& in,
                     const WaitForMessage& wait) {
  const int to = out ? out->to : -1;
  Round round(group, wait);
  const std::int64_t bytes = out ? out->bytes : 0;
  const std::vector<std::int64_t> theirs = exchange_numbers(round, to, bytes, in);
  std::int64_t most = bytes;
  for (const std::int64_t one : theirs) most = std::max(most, one);
  std::vector<std::vector<std::byte>> pieces(in.size());
  const auto piece_at = [](std::int64_t at, std::int64_t all) {
    return std::clamp<std::int64_t>(all - at, 0, kMessageBytes);
  };
  for (std::int64_t at = 0; at < most; at += kMessageBytes) {
    std::span<const std::byte> mine;
    if (const std::int64_t count = piece_at(at, bytes); count > 0) mine = out->piece(at, count);
    round.send(to, mine);
    for (std::size_t i = 0; i < in.size(); ++i) {
      pieces[i].resize(piece_at(at, theirs[i]));
      round.receive(in[i].from, pieces[i]);
    }
    if (out && out->meanwhile && !mine.empty()) out->meanwhile(mine);
    round.finish();
    for (std::size_t i = 0; i < in.size(); ++i)
      if (!pieces[i].empty()) in[i].writer->append(pieces[i]);
  }
  const std::vector<std::string> tails =
      exchange_texts(round, to, out ? out->tail() : std::string(), in);
  for (std::size_t i = 0; i < in.size(); ++i) in[i].writer->publish(tails[i]);
}

}  // namespace axonn
