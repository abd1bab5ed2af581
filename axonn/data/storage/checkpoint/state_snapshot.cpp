#include "axonn/data/storage/checkpoint/state_snapshot.h"

#include <algorithm>
#include <unordered_map>
#include <unordered_set>

#include <fmt/format.h>

#include "axonn/compute/tensor/file_memory.h"
#include "axonn/data/storage/safetensors/safetensors.h"
#include "axonn/foundation/base/check.h"

namespace axonn {

namespace {

/// Where the index lists parameters, by name.
using Places = std::unordered_map<std::string, std::int64_t>;

/// The slices of a block that the rank owns; adds the block's parameters to the index.
StoredBlock owned_of(const StateBlock& block, Places& places, CheckpointIndex& part) {
  StoredBlock out;
  for (const StateParameter& parameter : block.parameters) {
    const auto [found, added] = places.emplace(parameter.stored.name, std::ssize(places));
    if (added) part.parameters.push_back(parameter.stored);
    const std::int64_t place = found->second;
    for (const Slice& s : parameter.slices)
      if (s.owned && s.count() > 0)
        out.slices.push_back({place, {s.row, s.rows, s.col, s.cols, s.begin, s.end}});
  }
  return out;
}

/// The values that a block's file has of a slice.
std::int64_t stored_count(const Slice& slice, ValueCode code) {
  return code == ValueCode::f32 ? slice.count() : code_blocks(slice.count()) * kCodeBlock;
}

/// Calls f(from, bytes) for the owned parts of a buffer, in the order of the file; of codes, first
/// their absmax.
void for_owned(const StateBlock& block, const StateBuffer& buffer, const auto& f) {
  const auto each = [&](const void* data, std::int64_t bytes, std::int64_t per, auto count) {
    for (const StateParameter& parameter : block.parameters)
      for (const Slice& s : parameter.slices)
        if (s.owned)
          f(static_cast<const std::byte*>(data) + s.offset / per * bytes, count(s) * bytes);
  };
  if (has_absmax(buffer.code))
    each(buffer.absmax, kElementBytes, kCodeBlock,
         [](const Slice& s) { return code_blocks(s.count()); });
  each(buffer.data, bytes_of(buffer.code), 1,
       [&](const Slice& s) { return stored_count(s, buffer.code); });
}

/// Adds the places of a kind's values in the data, from byte `at` on, and their entries in the
/// header. Returns where they end.
std::int64_t place_kind(const StateBlock& block, const StateBuffer& buffer, std::int64_t at,
                        StoredBlock& stored, std::vector<SafetensorsEntry>& entries) {
  const std::string name = concat(block.name, '.', buffer.kind);
  std::int64_t count = 0, blocks = 0;
  for (const StoredSlice& slice : stored.slices) {
    count += stored_count(slice.part, buffer.code);
    blocks += code_blocks(slice.part.count());
  }
  if (has_absmax(buffer.code)) {
    entries.push_back({.name = name + ".absmax", .type = StoredType::f32, .shape = {blocks}});
    stored.coded[buffer.kind] = {buffer.code, at};
    at += blocks * kElementBytes;
  } else if (buffer.code != ValueCode::f32) {
    stored.coded[buffer.kind] = {buffer.code};
  }
  const StoredType type = buffer.code == ValueCode::f32    ? StoredType::f32
                          : buffer.code == ValueCode::bf16 ? StoredType::bf16
                                                           : StoredType::u8;
  entries.push_back({.name = name, .type = type, .shape = {count}});
  stored.offsets[buffer.kind] = at;
  return at + count * bytes_of(buffer.code);
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

/// Throws Error also if blocks or parameters with the same kind share a name, if blocks disagree on
/// the shape of a parameter, or if buffers are missing.
void check_blocks(std::span<const StateBlock> blocks) {
  std::unordered_set<std::string> entries, parameters;
  std::unordered_map<std::string, StoredParameter> stored;
  for (const StateBlock& block : blocks) {
    for (const auto& [kind, data, code, absmax] : block.buffers) {
      AXONN_CHECK(entries.insert(concat(block.name, '.', kind)).second, "two buffers are named ",
                  block.name, '.', kind);
      AXONN_CHECK(data != nullptr || block.count == 0, "block ", block.name, " has no ", kind);
      for (const StateParameter& parameter : block.parameters)
        AXONN_CHECK(parameters.insert(concat(kind, ' ', parameter.stored.name)).second,
                    "two parameters are named ", parameter.stored.name);
    }
    for (const StateParameter& parameter : block.parameters) {
      check_parameter(block, parameter);
      const auto& before = stored.emplace(parameter.stored.name, parameter.stored).first->second;
      AXONN_CHECK(before == parameter.stored, "blocks disagree on the shape of ",
                  parameter.stored.name);
    }
  }
}

}  // namespace

std::string rank_file(int rank) { return fmt::format("rank-{:05}.safetensors", rank); }

StateSnapshot::StateSnapshot(std::string folder) : folder_(std::move(folder)) {}

StateSnapshot::~StateSnapshot() {
  if (file_) file_->release(in_file_.data(), std::ssize(in_file_));
}

void StateSnapshot::resize(std::int64_t bytes) {
  if (folder_.empty()) {
    in_memory_.resize(bytes);
    bytes_ = in_memory_;
    return;
  }
  if (bytes > std::ssize(in_file_)) {
    if (file_) file_->release(in_file_.data(), std::ssize(in_file_));
    file_.reset();
    auto file = std::make_unique<FileMemory>(folder_);
    in_file_ = {static_cast<std::byte*>(file->allocate(bytes)), static_cast<std::size_t>(bytes)};
    file_ = std::move(file);
  }
  bytes_ = in_file_.first(bytes);
}

/// Copies the owned elements of every buffer. Returns the end of the copies.
std::byte* StateSnapshot::copy_owned(const StateBlock& block, std::byte* to) const {
  constexpr std::int64_t kAtOnce = std::int64_t{16} << 20;
  for (const StateBuffer& buffer : block.buffers)
    for_owned(block, buffer, [&](const std::byte* from, std::int64_t bytes) {
      for (const std::byte* const end = from + bytes; from < end;) {
        const std::int64_t count = std::min<std::int64_t>(kAtOnce, end - from);
        if (block.device)
          block.device->copy_to_host(to, from, count);
        else
          std::copy_n(from, count, to);
        if (block.put_away) block.put_away(from, count);
        if (file_) file_->put_away(to, count);
        from += count;
        to += count;
      }
    });
  return to;
}

void StateSnapshot::put_away() const {
  if (file_) file_->put_away(in_file_.data(), std::ssize(in_file_));
}

void StateSnapshot::take_whole(std::span<const StateBlock> blocks, int rank,
                               const IsWhole& is_whole) {
  constexpr int kTries = 3;
  for (int tries = 0; tries < kTries; ++tries) {
    take(blocks, rank);
    if (!is_whole || is_whole()) return;
  }
  fail(Where::here(), "the values of a checkpoint have changed in memory while each of ", kTries,
       " snapshots of them was taken; faulty memory is likely");
}

void StateSnapshot::take(std::span<const StateBlock> blocks, int rank) {
  check_blocks(blocks);
  part_ = {};
  StoredFile file;
  file.name = rank_file(rank);
  std::vector<SafetensorsEntry> entries;
  Places places;
  std::int64_t total = 0;  // bytes
  for (const StateBlock& block : blocks) {
    for (const StateBuffer& buffer : block.buffers)
      if (std::ranges::find(part_.kinds, buffer.kind) == part_.kinds.end())
        part_.kinds.push_back(buffer.kind);
    StoredBlock owned = owned_of(block, places, part_);
    std::int64_t count = 0;
    for (const StoredSlice& slice : owned.slices) count += slice.part.count();
    if (count == 0) continue;
    for (const StateBuffer& buffer : block.buffers)
      total = place_kind(block, buffer, total, owned, entries);
    file.blocks.push_back(std::move(owned));
  }
  bytes_ = {};
  if (total == 0) return;
  const std::string header = make_safetensors_header(entries);
  const auto begin = std::ssize(header);
  for (StoredBlock& block : file.blocks) {
    for (auto& [kind, offset] : block.offsets) offset += begin;
    for (auto& [kind, coded] : block.coded)
      if (has_absmax(coded.code)) coded.absmax += begin;
  }
  file.bytes = begin + total;
  resize(file.bytes);
  std::ranges::copy(std::as_bytes(std::span(header)), bytes_.begin());
  std::byte* to = bytes_.data() + begin;
  for (const StateBlock& block : blocks) to = copy_owned(block, to);
  part_.files.push_back(std::move(file));
}

}  // namespace axonn
