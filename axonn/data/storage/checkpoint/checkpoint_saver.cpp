#include "axonn/data/storage/checkpoint/checkpoint_saver.h"

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <unordered_map>
#include <unordered_set>

#include <fmt/format.h>

#include "axonn/foundation/base/check.h"
#include "axonn/foundation/base/clock.h"
#include "axonn/foundation/base/hash.h"
#include "axonn/ranks/comm/texts.h"

namespace axonn {

namespace {

namespace fs = std::filesystem;

/// Bytes after which a file is synced, so that no sync takes long compared to a watchdog's timeout.
constexpr std::int64_t kSyncBytes = 256 << 20;

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

/// Copies the owned elements of every buffer: block after block, and kind after kind.
void copy_owned(std::span<const StateBlock> blocks, std::vector<std::byte>& data) {
  std::byte* to = data.data();
  for (const StateBlock& block : blocks)
    for (const StateBuffer& buffer : block.buffers)
      for_owned(block, buffer, [&](const std::byte* from, std::int64_t bytes) {
        if (block.device)
          block.device->copy_to_host(to, from, bytes);
        else
          std::copy_n(from, bytes, to);
        to += bytes;
      });
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

/// Removes the temporary files and folders of jobs that died. Never throws; skips those that it
/// cannot remove.
void remove_leftovers(const std::string& folder) {
  std::vector<fs::path> leftovers;
  std::error_code error;
  for (fs::directory_iterator at(folder, error), end; !error && at != end; at.increment(error)) {
    const std::string name = at->path().filename().string(), base = name.substr(0, name.find('.'));
    if ((step_of(base) >= 0 || base == kLatestName || base == kBestName) &&
        is_temporary_name(name, base))
      leftovers.push_back(at->path());
  }
  for (const fs::path& path : leftovers) fs::remove_all(path, error);
}

/// Removes older checkpoints but for steps_to_keep(), counting `step` itself, and the best one.
/// Checkpoints of later steps, which a run has skipped as damaged, stay. Returns one warning for
/// each checkpoint that could not be removed.
std::vector<std::string> prune(std::int64_t step, const SaverOptions& options) {
  const std::string& folder = options.folder;
  std::vector<std::string> warnings;
  auto steps = steps_in(folder);
  std::erase_if(steps, [&](std::int64_t other) { return other > step; });
  const std::vector<std::int64_t> stay = steps_to_keep(steps, options.keep, options.keep_factor);
  const std::int64_t best = best_step(folder);
  for (const std::int64_t one : steps) {
    if (one == best || std::ranges::binary_search(stay, one)) continue;
    std::string fault = fault_of([&] { remove_folder(concat(folder, '/', step_name(one))); });
    if (!fault.empty()) warnings.push_back(std::move(fault));
  }
  return warnings;
}

}  // namespace

std::vector<std::int64_t> steps_to_keep(std::vector<std::int64_t> steps, std::int64_t keep,
                                        double factor) {
  std::ranges::sort(steps);
  if (keep == 0 || std::ssize(steps) <= keep) return steps;
  std::vector<std::int64_t> stay(steps.end() - keep, steps.end());
  if (factor <= 1) return stay;
  const auto newest = static_cast<double>(steps.back());
  std::vector<std::int64_t> older;
  for (std::size_t i = 0; i + static_cast<std::size_t>(keep) < steps.size(); ++i) {
    const std::int64_t before = older.empty() ? 0 : older.back(), next = steps[i + 1];
    if (static_cast<double>(next - before) > (factor - 1) * (newest - static_cast<double>(next)))
      older.push_back(steps[i]);
  }
  stay.insert(stay.begin(), older.begin(), older.end());
  return stay;
}

std::int64_t most_spaced(std::int64_t steps, std::int64_t every, double factor) {
  if (factor <= 1 || steps <= every) return 0;
  const double intervals = static_cast<double>(steps) / static_cast<double>(every);
  return 2 + static_cast<std::int64_t>(std::ceil(2 * std::log(intervals) / std::log(factor)));
}

/// At its end the saver is ready for another begin(), also after an error.
struct CheckpointSaver::Forget {
  CheckpointSaver& saver;
  ~Forget() {
    saver.temporary_.reset();
    saver.pending_ = false;
    saver.written_ = true;
  }
};

CheckpointSaver::CheckpointSaver(SaverOptions options) : options_(std::move(options)) {
  AXONN_CHECK(!options_.folder.empty(), "a CheckpointSaver needs a folder");
  AXONN_CHECK(options_.keep >= 0, "checkpoint.keep is ", options_.keep, "; it must be 0 or more");
  while (options_.folder.size() > 1 && options_.folder.back() == '/') options_.folder.pop_back();
}

void CheckpointSaver::take_snapshot(std::span<const StateBlock> blocks, int rank) {
  check_blocks(blocks);
  part_ = {};
  StoredFile file;
  file.name = fmt::format("rank-{:05}.safetensors", rank);
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
  header_ = make_safetensors_header(entries);
  const auto begin = std::ssize(header_);
  for (StoredBlock& block : file.blocks) {
    for (auto& [kind, offset] : block.offsets) offset += begin;
    for (auto& [kind, coded] : block.coded)
      if (has_absmax(coded.code)) coded.absmax += begin;
  }
  data_.resize(total);
  copy_owned(blocks, data_);
  file.bytes = begin + total;
  // A rank that owns nothing writes nothing.
  if (total > 0) part_.files.push_back(std::move(file));
}

/// A rank's part of the index. It exists, beside the rank's file, as soon as that file is on disk,
/// and until the checkpoint is published.
std::string CheckpointSaver::part_file(int rank) const {
  return fmt::format("{}/rank-{:05}.part", unfinished_, rank);
}

/// Rank 0 creates the folder that all ranks write to.
void CheckpointSaver::make_folder(Communicator& world) {
  std::string path;
  const std::string failed = world.rank() != 0 ? "" : fault_of([&] {
    make_folders(options_.folder);
    remove_leftovers(options_.folder);
    const std::int64_t room = free_bytes(options_.folder);
    AXONN_CHECK(room >= bytes_, "it needs ", bytes_, " bytes and ", options_.folder,
                " has room for ", room, "; free space there, or write to another disk");
    temporary_.emplace(name());
    path = temporary_->path();
  });
  agree(world, task(), failed);
  unfinished_ = broadcast_text(world, path, 0);
}

std::string CheckpointSaver::doing() const {
  return fmt::format("saving {}, rank {}", step_name(step_), rank_);
}

void CheckpointSaver::wait_for_writer() {
  ProgressLine line(options_.progress, doing());
  while (options_.progress.out && !written_) {
    line(done_, part_.files.empty() ? 0 : part_.files.front().bytes);
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  if (writer_.joinable()) writer_.join();
}

/// Writes this rank's file piece by piece, so that a piece is hashed while it is in cache.
void CheckpointSaver::write(Communicator& world) {
  ProgressLine line(options_.async ? ProgressTarget{} : options_.progress, doing());
  const double begin = now_seconds();
  const auto write_data = [&] {
    OutputFile file(unfinished_ + '/' + part_.files.front().name);
    PieceHasher hasher;
    std::int64_t synced = 0;
    for (auto rest : {std::as_bytes(std::span(header_)), std::span<const std::byte>(data_)})
      while (!rest.empty()) {
        const auto piece = rest.first(std::min<std::size_t>(rest.size(), kPieceBytes));
        hasher.append(piece);
        file.append(piece);
        if (file.bytes() - synced >= kSyncBytes) {
          file.sync();
          synced = file.bytes();
        }
        world.note_progress();
        done_ += std::ssize(piece);
        line(done_, part_.files.front().bytes);
        rest = rest.subspan(piece.size());
      }
    file.finish();
    part_.files.front().checksums = hasher.finish();
  };
  fault_ = fault_of([&] {
    if (!part_.files.empty()) write_data();
    const std::string part = part_file(rank_);
    std::ofstream file(part + ".tmp");  // not synced: it need not survive the machine
    file << to_text(part_) << std::flush;
    AXONN_CHECK(file.good(), "cannot write ", part, ": ", cause_and_remedy(errno));
    fs::rename(part + ".tmp", part);  // so that it is whole as soon as it exists
  });
  write_seconds_ = now_seconds() - begin;
  written_ = true;
}

/// Rank 0 writes the texts and the index, and gives the folder its final name.
SaveCost CheckpointSaver::publish(CheckpointIndex whole) {
  SaveCost cost;
  cost.bytes = bytes_ + write_index(temporary_->path(), std::move(whole), texts_);
  temporary_->publish();
  write_file_atomically(concat(options_.folder, '/', kLatestName), step_name(step_) + "\n");
  if (best_ == step_)
    write_file_atomically(concat(options_.folder, '/', kBestName), step_name(step_) + "\n");
  cost.warnings = prune(step_, options_);
  return cost;
}

void CheckpointSaver::begin(Communicator& world, std::int64_t step,
                            std::span<const StateBlock> blocks, const StateTexts& texts) {
  AXONN_CHECK(!pending_, "checkpoint ", name(), " is not finished; call finish() first");
  AXONN_CHECK(step >= 0, "a checkpoint of step ", step, "; steps count from 0");
  const double begin = now_seconds();
  step_ = step;
  rank_ = world.rank();
  ranks_ = world.size();
  texts_.clear();
  const std::string fault = fault_of([&] {
    if (world.rank() == 0) texts_ = texts;
    for (const auto& [text, contents] : texts_)
      AXONN_CHECK(!text.empty() && text.find('/') == text.npos && !text.starts_with('.') &&
                      !text.starts_with("rank-") && text != kIndexName,
                  "a checkpoint's text cannot be named ", text);
    take_snapshot(blocks, world.rank());
  });
  agree(world, task(), fault);
  bytes_ = part_.files.empty() ? 0 : part_.files.front().bytes;
  world.all_reduce(buffer<std::int64_t>({&bytes_, 1}), "checkpoint bytes").wait();
  make_folder(world);
  pending_ = true;
  written_ = false;
  done_ = 0;
  fault_.clear();
  try {
    if (options_.async)
      writer_ = std::jthread([this, &world] { write(world); });
    else
      write(world);
  } catch (const std::system_error& error) {
    fault_ = concat("cannot start a thread to write the file: ", error.what(),
                    "; set checkpoint.async = false");
    written_ = true;
  }
  stall_seconds_ = now_seconds() - begin;
}

SaveCost CheckpointSaver::finish(Communicator& world) {
  AXONN_CHECK(pending_, "no checkpoint was begun; call begin() before finish()");
  const double begin = now_seconds();
  wait_for_writer();
  const Forget forget{*this};
  agree(world, task(), fault_);
  std::error_code ignored;  // a part that stays does no harm
  fs::remove(part_file(rank_), ignored);

  CheckpointIndex whole{.step = step_, .ranks = world.size()};
  std::string fault;
  gather_texts(world, to_text(part_), [&](const std::string& part) {
    if (!fault.empty()) return;
    fault = fault_of([&] { merge(whole, parse_index(part, "a rank's part")); });
  });
  SaveCost cost;
  if (world.rank() == 0 && fault.empty())
    fault = fault_of([&] { cost = publish(std::move(whole)); });
  agree(world, task(), fault);

  cost.step = step_;
  cost.folder = name();
  world.broadcast(buffer<std::int64_t>({&cost.bytes, 1}), 0, "checkpoint bytes").wait();
  std::vector seconds = {write_seconds_, stall_seconds_ + now_seconds() - begin};
  world.all_reduce({seconds.data(), 2, DType::f64}, "checkpoint seconds", ReduceOp::max).wait();
  cost.write_seconds = seconds[0];
  cost.stall_seconds = seconds[1];
  return cost;
}

bool CheckpointSaver::finish_alone() {
  if (!pending_) return false;
  if (writer_.joinable()) writer_.join();
  const Forget forget{*this};
  if (!fault_.empty()) return false;
  // All ranks write about as many bytes. Once the folder has its final name, rank 0 is done.
  constexpr double kPatience = 10;  // seconds
  const double until = now_seconds() + kPatience + write_seconds_;
  CheckpointIndex whole{.step = step_, .ranks = ranks_};
  const std::string fault = fault_of([&] {
    for (int rank = 0; rank < ranks_; ++rank) {
      const std::string part = part_file(rank);
      while (!path_exists(part)) {
        if (rank_ != 0 && !path_exists(unfinished_)) return;
        AXONN_CHECK(now_seconds() < until, part, " is missing");
        std::this_thread::sleep_for(std::chrono::milliseconds(10));
      }
      if (rank_ != 0) continue;
      merge(whole, parse_index(read_text(part), part));
      fs::remove(part);
    }
    if (rank_ == 0) publish(std::move(whole));
  });
  return rank_ == 0 && fault.empty();
}

}  // namespace axonn
