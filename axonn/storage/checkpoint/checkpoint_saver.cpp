#include "axonn/storage/checkpoint/checkpoint_saver.h"

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <optional>
#include <thread>
#include <unordered_set>

#include "axonn/base/check.h"
#include "axonn/base/clock.h"
#include "axonn/base/files.h"
#include "axonn/base/hash.h"
#include "axonn/comm/texts.h"
#include "axonn/storage/checkpoint/checkpoint_folder.h"
#include "axonn/storage/safetensors/safetensors.h"

namespace axonn {

namespace {

/// One rank's file before it is written: its header, its data, and its part of the index.
struct Snapshot {
  std::string header;
  std::vector<float> data;  // kept from one checkpoint to the next
  CheckpointIndex part;

  StoredFile& file() { return part.files.front(); }
};

std::string file_name(int rank) {
  char name[48];
  std::snprintf(name, sizeof name, "rank-%05d.safetensors", rank);
  return name;
}

/// The slices of a block that the rank owns; adds the block's parameters to the index.
StoredBlock owned_of(const StateBlock& block, CheckpointIndex& part) {
  StoredBlock out;
  for (const StateParameter& parameter : block.parameters) {
    const auto place = static_cast<std::int64_t>(part.parameters.size());
    part.parameters.push_back(parameter.stored);
    for (const Slice& s : parameter.slices)
      if (s.owned && s.count() > 0)
        out.slices.push_back({place, {s.row, s.rows, s.col, s.cols, s.begin, s.end}});
  }
  return out;
}

/// Copies values from the block's memory to host memory. Returns the end of the copy.
float* copy_values(const StateBlock& block, const float* from, std::int64_t count, float* to) {
  if (!block.device) return std::copy_n(from, count, to);
  block.device->copy_to_host(to, from, count * bytes_of(DType::f32));
  return to + count;
}

/// Copies the owned elements of every buffer: block after block, and kind after kind.
void copy_owned(std::span<const StateBlock> blocks, std::vector<float>& data) {
  float* to = data.data();
  for (const StateBlock& block : blocks)
    for (const StateBuffer& buffer : block.buffers)
      for (const StateParameter& parameter : block.parameters)
        for (const Slice& s : parameter.slices)
          if (s.owned) to = copy_values(block, buffer.data + s.offset, s.count(), to);
}

/// Throws Error, naming the parameter, if slices reach beyond its shape or the block's buffers.
void check_parameter(const StateBlock& block, const StateParameter& p) {
  const auto& [name, rows, cols] = p.stored;
  std::int64_t elements = 0;
  AXONN_CHECK(rows >= 0 && cols >= 0 && !__builtin_mul_overflow(rows, cols, &elements),
              "parameter ", name, " has the shape (", rows, ',', cols, ')');
  for (const Slice& s : p.slices) {
    AXONN_CHECK(lies_in(s, rows, cols), "a slice of ", name, " reaches beyond its shape (", rows,
                ',', cols, "): rows ", s.row, " + ", s.rows, ", columns ", s.col, " + ", s.cols,
                ", elements ", s.begin, " to ", s.end);
    AXONN_CHECK(s.offset >= 0 && s.count() <= block.count && s.offset <= block.count - s.count(),
                "a slice of ", name, " reaches beyond the ", block.count, " elements of ",
                block.name, ": ", s.offset, " + ", s.count());
  }
}

/// Throws Error also if blocks or parameters share a name, or if buffers are missing.
void check_blocks(std::span<const StateBlock> blocks) {
  std::unordered_set<std::string> names, parameters;
  for (const StateBlock& block : blocks) {
    AXONN_CHECK(names.insert(block.name).second, "two blocks are named ", block.name);
    std::unordered_set<std::string> kinds;
    for (const StateBuffer& buffer : block.buffers) {
      AXONN_CHECK(kinds.insert(buffer.kind).second, "block ", block.name, " has two buffers of ",
                  buffer.kind);
      AXONN_CHECK(buffer.data != nullptr || block.count == 0, "block ", block.name, " has no ",
                  buffer.kind);
    }
    for (const StateParameter& parameter : block.parameters) {
      AXONN_CHECK(parameters.insert(parameter.stored.name).second, "two parameters are named ",
                  parameter.stored.name);
      check_parameter(block, parameter);
    }
  }
}

void take_snapshot(Snapshot& snapshot, std::span<const StateBlock> blocks, int rank) {
  check_blocks(blocks);
  CheckpointIndex& part = snapshot.part;
  StoredFile file{.name = file_name(rank), .bytes = 0, .checksums = {}, .blocks = {}};
  std::vector<SafetensorsEntry> entries;
  std::int64_t total = 0;
  for (const StateBlock& block : blocks) {
    for (const StateBuffer& buffer : block.buffers)
      if (std::ranges::find(part.kinds, buffer.kind) == part.kinds.end())
        part.kinds.push_back(buffer.kind);
    StoredBlock owned = owned_of(block, part);
    std::int64_t count = 0;
    for (const StoredSlice& slice : owned.slices) count += slice.part.count();
    if (count == 0) continue;
    for (const StateBuffer& buffer : block.buffers) {
      entries.push_back({.name = concat(block.name, '.', buffer.kind),
                         .type = StoredType::f32,
                         .shape = {count}});
      owned.offsets[buffer.kind] = total * std::int64_t{sizeof(float)};
      total += count;
    }
    file.blocks.push_back(std::move(owned));
  }
  snapshot.header = make_safetensors_header(entries);
  const auto begin = static_cast<std::int64_t>(snapshot.header.size());
  for (StoredBlock& block : file.blocks)
    for (auto& [kind, offset] : block.offsets) offset += begin;
  snapshot.data.resize(static_cast<std::size_t>(total));
  copy_owned(blocks, snapshot.data);
  file.bytes = begin + total * std::int64_t{sizeof(float)};
  // A rank that owns nothing writes nothing.
  if (total > 0) part.files.push_back(std::move(file));
}

/// Writes the file piece by piece, so that a piece is hashed while it is in cache.
std::vector<std::uint64_t> write_snapshot(const Snapshot& snapshot, const std::string& path) {
  OutputFile file(path);
  PieceHasher hasher;
  for (auto rest :
       {std::as_bytes(std::span(snapshot.header)), std::as_bytes(std::span(snapshot.data))})
    while (!rest.empty()) {
      const auto piece = rest.first(std::min<std::size_t>(rest.size(), kPieceBytes));
      hasher.append(piece);
      file.append(piece);
      rest = rest.subspan(piece.size());
    }
  file.finish();
  return hasher.finish();
}

void check_texts(const StateTexts& texts) {
  for (const auto& [name, contents] : texts)
    AXONN_CHECK(!name.empty() && name.find('/') == name.npos && !name.starts_with('.') &&
                    !name.starts_with("rank-") && name != kIndexName,
                "a checkpoint's text cannot be named ", name);
}

}  // namespace

struct CheckpointSaver::Impl {
  SaverOptions options;

  bool pending = false;
  std::int64_t step = 0;
  std::int64_t bytes = 0;  // of all ranks' files
  Snapshot snapshot;
  StateTexts texts;                          // rank 0
  std::optional<TemporaryFolder> temporary;  // rank 0
  double stall_seconds = 0;

  std::thread writer;
  std::atomic<bool> written = true;
  std::string fault;  // of the writer thread; read after join()
  double write_seconds = 0;

  std::string name() const { return concat(options.folder, '/', step_name(step)); }
  std::string asked() const { return concat("writing checkpoint ", name()); }

  /// Rank 0 creates the folder that all ranks write to.
  std::string make_folder(Communicator& world);
  void write(const std::string& path);
  void start(const std::string& path);
  void join() {
    if (writer.joinable()) writer.join();
  }
  /// Rank 0 writes the texts and the index, and gives the folder its final name.
  SaveCost publish(CheckpointIndex whole);
  void forget() {
    temporary.reset();
    pending = false;
    written = true;
  }
};

std::string CheckpointSaver::Impl::make_folder(Communicator& world) {
  std::string path;
  const std::string failed = world.rank() != 0 ? "" : fault_of([&] {
    make_folders(options.folder);
    remove_leftovers(options.folder);
    const std::int64_t room = free_bytes(options.folder);
    AXONN_CHECK(room >= bytes, "it needs ", bytes, " bytes and ", options.folder, " has room for ",
                room, "; free space there, or write to another disk");
    temporary.emplace(name());
    path = temporary->path();
  });
  agree(world, asked(), failed);
  return broadcast_texts(world, {path}).front();
}

void CheckpointSaver::Impl::write(const std::string& path) {
  const double begin = now_seconds();
  fault = fault_of([&] {
    if (!snapshot.part.files.empty())
      snapshot.file().checksums = write_snapshot(snapshot, path + '/' + snapshot.file().name);
  });
  write_seconds = now_seconds() - begin;
  written = true;
}

void CheckpointSaver::Impl::start(const std::string& path) {
  written = false;
  fault.clear();
  if (!options.async) return write(path);
  try {
    writer = std::thread([this, path] { write(path); });
  } catch (const std::system_error& error) {
    fault = concat("cannot start a thread to write the file: ", error.what(),
                   "; set checkpoint.async = false");
    written = true;
  }
}

SaveCost CheckpointSaver::Impl::publish(CheckpointIndex whole) {
  SaveCost cost;
  cost.bytes = bytes;
  const std::string& folder = temporary->path();
  for (const auto& [name_of_text, contents] : texts) {
    whole.texts[name_of_text] = {static_cast<std::int64_t>(contents.size()), xxh3(contents)};
    write_text(concat(folder, '/', name_of_text), contents);
    cost.bytes += static_cast<std::int64_t>(contents.size());
  }
  const std::string index = to_text(whole);
  write_text(concat(folder, '/', kIndexName), index);
  cost.bytes += static_cast<std::int64_t>(index.size());
  temporary->publish();
  write_file_atomically(concat(options.folder, '/', kLatestName), step_name(step) + "\n");
  cost.warnings = prune(options.folder, step, options.keep);
  return cost;
}

CheckpointSaver::CheckpointSaver(SaverOptions options) : impl_(std::make_unique<Impl>()) {
  AXONN_CHECK(!options.folder.empty(), "a CheckpointSaver needs a folder");
  AXONN_CHECK(options.keep >= 0, "checkpoint.keep is ", options.keep, "; it must be 0 or more");
  while (options.folder.size() > 1 && options.folder.back() == '/') options.folder.pop_back();
  impl_->options = std::move(options);
}

CheckpointSaver::~CheckpointSaver() { impl_->join(); }

bool CheckpointSaver::pending() const { return impl_->pending; }
bool CheckpointSaver::written() const { return impl_->written; }

void CheckpointSaver::begin(Communicator& world, std::int64_t step,
                            std::span<const StateBlock> blocks, const StateTexts& texts) {
  AXONN_CHECK(!pending(), "checkpoint ", impl_->name(), " is not finished; call finish() first");
  AXONN_CHECK(step >= 0, "a checkpoint of step ", step, "; steps count from 0");
  const double begin = now_seconds();
  Impl& to = *impl_;
  to.step = step;
  to.texts.clear();
  to.snapshot.part = {};
  const std::string fault = fault_of([&] {
    if (world.rank() == 0) {
      check_texts(texts);
      to.texts = texts;
    }
    take_snapshot(to.snapshot, blocks, world.rank());
  });
  agree(world, to.asked(), fault);
  to.bytes = to.snapshot.part.files.empty() ? 0 : to.snapshot.file().bytes;
  world.all_reduce(buffer<std::int64_t>({&to.bytes, 1}), "checkpoint bytes").wait();
  const std::string folder = to.make_folder(world);
  to.pending = true;
  to.start(folder);
  to.stall_seconds = now_seconds() - begin;
}

SaveCost CheckpointSaver::finish(Communicator& world) {
  AXONN_CHECK(pending(), "no checkpoint was begun; call begin() before finish()");
  const double begin = now_seconds();
  Impl& from = *impl_;
  from.join();
  struct Forget {  // also after an error, the saver is ready for another begin()
    Impl& impl;
    ~Forget() { impl.forget(); }
  } forget{from};
  agree(world, from.asked(), from.fault);

  CheckpointIndex whole;
  whole.step = from.step;
  whole.ranks = world.size();
  std::string fault;
  gather_texts(world, to_text(from.snapshot.part), [&](const std::string& part) {
    if (!fault.empty()) return;
    fault = fault_of([&] { merge(whole, parse_index(part, "a rank's part")); });
  });
  SaveCost cost;
  if (world.rank() == 0 && fault.empty())
    fault = fault_of([&] { cost = from.publish(std::move(whole)); });
  agree(world, from.asked(), fault);

  cost.step = from.step;
  cost.folder = from.name();
  world.broadcast(buffer<std::int64_t>({&cost.bytes, 1}), 0, "checkpoint bytes").wait();
  std::vector seconds = {from.write_seconds, from.stall_seconds + now_seconds() - begin};
  world.all_reduce({seconds.data(), 2, DType::f64}, "checkpoint seconds", ReduceOp::max).wait();
  cost.write_seconds = seconds[0];
  cost.stall_seconds = seconds[1];
  return cost;
}

}  // namespace axonn
