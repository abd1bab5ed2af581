#include "axonn/storage/checkpoint/checkpoint_plan.h"

#include <algorithm>
#include <unordered_map>
#include <unordered_set>

#include "axonn/base/check.h"

namespace axonn {

namespace {

/// Elements common to a wanted and a stored slice; positions count within each one's rectangle.
struct Overlap {
  std::int64_t wanted = 0, stored = 0, count = 0;
  std::size_t source = 0;
};

/// The columns of row `row` that the elements [begin, end) of a rectangle cover.
struct Columns {
  std::int64_t begin = 0, end = 0;
};
template <typename Rectangle>
Columns columns_at(const Rectangle& r, std::int64_t row) {
  const std::int64_t before = (row - r.row) * r.cols;  // elements of the rows above
  return {r.col + std::clamp<std::int64_t>(r.begin - before, 0, r.cols),
          r.col + std::clamp<std::int64_t>(r.end - before, 0, r.cols)};
}

/// Appends the common elements of the two slices, row by row; joins rows that are contiguous in
/// both.
void intersect(const Slice& wanted, const StoredSlice& stored, std::size_t source,
               std::vector<Overlap>& out) {
  if (wanted.count() <= 0 || stored.count() <= 0) return;
  const std::int64_t first =
      std::max(wanted.row + wanted.begin / wanted.cols, stored.row + stored.begin / stored.cols);
  const std::int64_t last = std::min(wanted.row + (wanted.end - 1) / wanted.cols,
                                     stored.row + (stored.end - 1) / stored.cols);
  bool continues = false;
  for (std::int64_t row = first; row <= last; ++row) {
    const Columns a = columns_at(wanted, row), b = columns_at(stored, row);
    const std::int64_t begin = std::max(a.begin, b.begin), end = std::min(a.end, b.end);
    if (begin >= end) continue;
    const Overlap next = {.wanted = (row - wanted.row) * wanted.cols + begin - wanted.col,
                          .stored = (row - stored.row) * stored.cols + begin - stored.col,
                          .count = end - begin,
                          .source = source};
    if (continues && out.back().wanted + out.back().count == next.wanted &&
        out.back().stored + out.back().count == next.stored)
      out.back().count += next.count;
    else
      out.push_back(next);
    continues = true;
  }
}

/// "(2,5)": row and column of an element of a slice's rectangle.
std::string place_text(const Slice& slice, std::int64_t element) {
  return concat('(', slice.row + element / slice.cols, ',', slice.col + element % slice.cols, ')');
}

/// Sorts the overlaps. Throws UsageError unless they cover each wanted element exactly once.
void check_cover(const Slice& wanted, std::vector<Overlap>& overlaps,
                 const CheckpointParameter& parameter, const std::string& folder) {
  std::ranges::sort(overlaps, {}, &Overlap::wanted);
  std::int64_t at = wanted.begin;
  const auto refuse_at = [&](std::int64_t begin, std::int64_t end, const char* what) {
    refuse(folder, ": elements ", place_text(wanted, begin), " to ", place_text(wanted, end - 1),
           " of ", parameter.name, " (", parameter.rows, ',', parameter.cols, ") are in ", what);
  };
  for (const Overlap& overlap : overlaps) {
    if (overlap.wanted > at) refuse_at(at, overlap.wanted, "none of its files");
    if (overlap.wanted < at)
      refuse_at(overlap.wanted, std::min(at, overlap.wanted + overlap.count), "its files twice");
    at += overlap.count;
  }
  if (at < wanted.end) refuse_at(at, wanted.end, "none of its files");
}

/// Collects faults, a line each; the message shows the first few.
class Faults {
 public:
  template <typename... Parts>
  void add(const Parts&... parts) {
    if (++count_ <= kShown) text_ += concat("\n  ", parts...);
  }
  void refuse_if_any(const std::string& folder) const {
    if (count_ == 0) return;
    const auto more = count_ > kShown ? concat("\n  and ", count_ - kShown, " more") : "";
    refuse(folder, " is not a checkpoint of this model and optimizer:", text_, more);
  }

 private:
  static constexpr int kShown = 8;
  int count_ = 0;
  std::string text_;
};

using Places = std::unordered_map<std::string, std::int64_t>;

/// Maps the name of each parameter in the checkpoint to its index.
Places places_of(const CheckpointIndex& index) {
  Places places;
  for (const CheckpointParameter& stored : index.parameters)
    places.emplace(stored.name, static_cast<std::int64_t>(places.size()));
  return places;
}

/// Adds the differences between the checkpoint's parameters and the model's.
void compare(const CheckpointIndex& index, std::span<const CheckpointParameter> model,
             Faults& faults) {
  const Places places = places_of(index);
  std::unordered_set<std::string> known;
  for (const CheckpointParameter& wanted : model) {
    known.insert(wanted.name);
    const auto found = places.find(wanted.name);
    if (found == places.end()) {
      faults.add("it has no ", wanted.name, " (", wanted.rows, ',', wanted.cols, ')');
      continue;
    }
    const auto& stored = index.parameters[static_cast<std::size_t>(found->second)];
    if (stored.rows != wanted.rows || stored.cols != wanted.cols)
      faults.add(wanted.name, " is (", stored.rows, ',', stored.cols, ") in the checkpoint and (",
                 wanted.rows, ',', wanted.cols, ") in the model");
  }
  for (const CheckpointParameter& stored : index.parameters)
    if (!known.contains(stored.name))
      faults.add("it has ", stored.name, " (", stored.rows, ',', stored.cols,
                 "), which the model does not have");
}

void check_fit(const CheckpointIndex& index, std::span<const StateBlock> blocks,
               const std::string& folder) {
  Faults faults;
  std::vector<CheckpointParameter> model;
  for (const StateBlock& block : blocks) {
    for (const StateBuffer& buffer : block.buffers)
      if (std::ranges::find(index.kinds, buffer.kind) == index.kinds.end())
        faults.add("it has no ", buffer.kind, " (asked for by ", block.name, ')');
    for (const StateParameter& wanted : block.parameters)
      model.push_back({wanted.name, wanted.rows, wanted.cols});
  }
  compare(index, model, faults);
  faults.refuse_if_any(folder);
}

void check_parameter(const StateBlock& block, const StateParameter& p) {
  std::int64_t elements = 0;
  AXONN_CHECK(p.rows >= 0 && p.cols >= 0 && !__builtin_mul_overflow(p.rows, p.cols, &elements),
              "parameter ", p.name, " has the shape (", p.rows, ',', p.cols, ')');
  for (const Slice& s : p.slices) {
    const bool in_shape = s.row >= 0 && s.rows >= 0 && s.col >= 0 && s.cols >= 0 &&
                          s.rows <= p.rows && s.row <= p.rows - s.rows && s.cols <= p.cols &&
                          s.col <= p.cols - s.cols && s.begin >= 0 && s.begin <= s.end &&
                          s.end <= s.rows * s.cols;
    AXONN_CHECK(in_shape, "a slice of ", p.name, " reaches beyond its shape (", p.rows, ',', p.cols,
                "): rows ", s.row, " + ", s.rows, ", columns ", s.col, " + ", s.cols, ", elements ",
                s.begin, " to ", s.end);
    AXONN_CHECK(s.offset >= 0 && s.count() <= block.count && s.offset <= block.count - s.count(),
                "a slice of ", p.name, " reaches beyond the ", block.count, " elements of ",
                block.name, ": ", s.offset, " + ", s.count());
  }
}

}  // namespace

void check_parameters(const CheckpointIndex& index, std::span<const CheckpointParameter> model,
                      const std::string& folder) {
  Faults faults;
  compare(index, model, faults);
  faults.refuse_if_any(folder);
}

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
      AXONN_CHECK(parameters.insert(parameter.name).second, "two parameters are named ",
                  parameter.name);
      check_parameter(block, parameter);
    }
  }
}

ReadPlanner::ReadPlanner(const CheckpointIndex& index, std::string folder)
    : index_(index), folder_(std::move(folder)), sources_(index.parameters.size()) {
  for (std::size_t file = 0; file < index.files.size(); ++file)
    for (const StoredBlock& block : index.files[file].blocks) {
      std::int64_t first = 0;
      for (const StoredSlice& slice : block.slices) {
        sources_[static_cast<std::size_t>(slice.parameter)].push_back(
            {&slice, &block, static_cast<std::int64_t>(file), first});
        first += slice.count();
      }
    }
}

void ReadPlanner::add(std::int64_t parameter, const Slice& wanted, const StateBlock& block,
                      std::vector<ReadRun>& runs) const {
  const auto& stored = sources_[static_cast<std::size_t>(parameter)];
  const auto& named = index_.parameters[static_cast<std::size_t>(parameter)];
  std::vector<Overlap> overlaps;
  for (std::size_t i = 0; i < stored.size(); ++i) intersect(wanted, *stored[i].slice, i, overlaps);
  check_cover(wanted, overlaps, named, folder_);
  for (const Overlap& overlap : overlaps) {
    const Source& source = stored[overlap.source];
    const std::int64_t element = source.first + overlap.stored - source.slice->begin;
    for (const StateBuffer& buffer : block.buffers) {
      const auto offset = source.block->offsets.find(buffer.kind);
      if (offset == source.block->offsets.end())
        refuse(folder_, " has no ", buffer.kind, " of ", named.name);
      runs.push_back({.file = source.file,
                      .offset = offset->second + element * std::int64_t{sizeof(float)},
                      .count = overlap.count,
                      .to = buffer.data + wanted.offset + overlap.wanted - wanted.begin,
                      .device = block.device,
                      .parameter = parameter});
    }
  }
}

void sort_runs(std::vector<ReadRun>& runs) {
  std::ranges::sort(runs, {}, [](const ReadRun& run) { return std::pair(run.file, run.offset); });
}

std::vector<ReadRun> plan_reads(const CheckpointIndex& index, std::span<const StateBlock> blocks,
                                const std::string& folder) {
  check_blocks(blocks);
  check_fit(index, blocks, folder);
  const Places places = places_of(index);
  const ReadPlanner planner(index, folder);
  std::vector<ReadRun> runs;
  for (const StateBlock& block : blocks)
    for (const StateParameter& parameter : block.parameters)
      for (const Slice& wanted : parameter.slices)
        planner.add(places.at(parameter.name), wanted, block, runs);
  sort_runs(runs);
  return runs;
}

}  // namespace axonn
