#include "axonn/data/storage/checkpoint/checkpoint_saver.h"

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cmath>
#include <filesystem>
#include <fstream>

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

CheckpointSaver::CheckpointSaver(SaverOptions options)
    : options_(std::move(options)), snapshot_(options_.offload_folder) {
  AXONN_CHECK(!options_.folder.empty(), "a CheckpointSaver needs a folder");
  AXONN_CHECK(options_.keep >= 0, "checkpoint.keep is ", options_.keep, "; it must be 0 or more");
  while (options_.folder.size() > 1 && options_.folder.back() == '/') options_.folder.pop_back();
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
    for (auto rest = snapshot_.bytes(); !rest.empty();) {
      const auto piece = rest.first(std::min<std::size_t>(rest.size(), kPieceBytes));
      hasher.append(piece);
      file.append(piece);
      if (file.bytes() - synced >= kSyncBytes) {
        file.sync();
        synced = file.bytes();
        snapshot_.put_away();
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
                            std::span<const StateBlock> blocks, const StateTexts& texts,
                            const IsWhole& is_whole) {
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
    snapshot_.take_whole(blocks, world.rank(), is_whole);
    part_ = snapshot_.part();
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
