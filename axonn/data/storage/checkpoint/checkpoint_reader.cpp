#include "axonn/data/storage/checkpoint/checkpoint_reader.h"

#include <algorithm>
#include <filesystem>
#include <set>
#include <utility>

#include "axonn/compute/tensor/dynamic_map.h"
#include "axonn/foundation/base/check.h"
#include "axonn/foundation/base/hash.h"
#include "axonn/ranks/comm/self.h"
#include "axonn/ranks/comm/texts.h"

namespace axonn {

namespace {

namespace fs = std::filesystem;

// 10,000 ranks with 300 slices each make an index of about 150 MB.
constexpr std::int64_t kMostIndexBytes = std::int64_t{8} << 30;
constexpr std::string_view kAbsmax = ".absmax";

std::string last_name(const std::string& path) {
  fs::path at(path);
  return (at.has_filename() ? at : at.parent_path()).filename().string();
}

std::string without_slash(std::string path) {
  while (path.size() > 1 && path.back() == '/') path.pop_back();
  return path;
}

/// A path of this name in the same folder.
std::string sibling(const std::string& path, const std::string& name) {
  return (fs::path(path).parent_path() / name).string();
}

/// The steps below `before` to try, best first: the one that `latest` names and those before it.
/// Later steps belong to an abandoned run and are tried only if `latest` is missing or unusable.
std::vector<std::int64_t> candidates(const std::string& folder, std::int64_t before,
                                     std::vector<std::string>& warnings) {
  std::vector<std::int64_t> steps = steps_in(folder);
  std::erase_if(steps, [&](std::int64_t step) { return step >= before; });
  const std::string path = concat(folder, '/', kLatestName);
  if (before != CheckpointReader::kAnyStep || !path_exists(path)) return steps;
  std::int64_t latest = -1;
  const std::string fault = fault_of([&] { latest = step_named_in(path); });
  if (!fault.empty())
    warnings.push_back(fault);
  else if (std::ranges::find(steps, latest) == steps.end())
    warnings.push_back(concat(path, " names ", step_name(latest), ", which does not exist"));
  else
    std::erase_if(steps, [&](std::int64_t step) { return step > latest; });
  return steps;
}

/// Elements common to a wanted and a stored slice; positions count within each one's rectangle.
struct Overlap {
  std::int64_t wanted = 0, stored = 0, count = 0;
  std::size_t source = 0;
};

/// The columns [begin, end) of row `row` that the elements of a slice cover.
std::pair<std::int64_t, std::int64_t> columns_at(const Slice& r, std::int64_t row) {
  const std::int64_t before = (row - r.row) * r.cols;  // elements of the rows above
  return {r.col + std::clamp<std::int64_t>(r.begin - before, 0, r.cols),
          r.col + std::clamp<std::int64_t>(r.end - before, 0, r.cols)};
}

/// Appends the common elements of the two slices, row by row; joins rows that are contiguous in
/// both.
void intersect(const Slice& wanted, const Slice& stored, std::size_t source,
               std::vector<Overlap>& out) {
  if (wanted.count() <= 0 || stored.count() <= 0) return;
  const std::int64_t first =
      std::max(wanted.row + wanted.begin / wanted.cols, stored.row + stored.begin / stored.cols);
  const std::int64_t last = std::min(wanted.row + (wanted.end - 1) / wanted.cols,
                                     stored.row + (stored.end - 1) / stored.cols);
  bool continues = false;
  for (std::int64_t row = first; row <= last; ++row) {
    const auto [a, a_end] = columns_at(wanted, row);
    const auto [b, b_end] = columns_at(stored, row);
    const std::int64_t begin = std::max(a, b), end = std::min(a_end, b_end);
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
                 const StoredParameter& parameter, const std::string& folder) {
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

/// Sorts the overlaps, and leaves out what another one has, too; of those that begin together it
/// keeps the one in a file on this node.
void drop_repeats(std::vector<Overlap>& overlaps, const auto& is_here) {
  std::ranges::sort(overlaps, {}, [&](const Overlap& overlap) {
    return std::pair(overlap.wanted, !is_here(overlap.source));
  });
  std::int64_t at = 0;
  for (Overlap& overlap : overlaps) {
    const std::int64_t known = std::clamp<std::int64_t>(at - overlap.wanted, 0, overlap.count);
    overlap.wanted += known;
    overlap.stored += known;
    overlap.count -= known;
    at = std::max(at, overlap.wanted + overlap.count);
  }
  std::erase_if(overlaps, [](const Overlap& overlap) { return overlap.count == 0; });
}

}  // namespace

/// Reads and checks index and texts of DIR/step-N, and the sizes of its files. Returns the index's
/// text.
std::string CheckpointReader::open_step(const std::string& folder) {
  const std::string path = concat(folder, '/', kIndexName);
  std::string text = read_text(path, kMostIndexBytes);
  folder_ = folder;
  index_ = parse_index(text, path);
  texts_.clear();
  for (const auto& [name, stored] : index_.texts) {
    const std::string file = concat(folder, '/', name);
    const std::string& contents = texts_[name] = read_text(file);
    if (std::ssize(contents) != stored.bytes || xxh3(contents) != stored.checksum)
      refuse(file, " is altered: its size or checksum is not the one in the index");
  }
  for (const StoredFile& stored : index_.files) {
    const std::string file = concat(folder, '/', stored.name);
    const std::int64_t bytes = InputFile(file).bytes();
    if (bytes != stored.bytes)
      refuse(file, " has ", bytes, " bytes instead of ", stored.bytes,
             bytes < stored.bytes ? ": it is cut short" : ": it is altered");
  }
  return text;
}

std::string CheckpointReader::open_newest(const std::string& folder, std::int64_t before) {
  const auto steps = candidates(folder, before, warnings_);
  if (steps.empty())
    refuse(folder, " holds no checkpoint (no folder step-N); give the path of another folder");
  for (std::int64_t step : steps) {
    std::string text;
    const std::string fault =
        fault_of([&] { text = open_step(concat(folder, '/', step_name(step))); });
    if (fault.empty()) return text;
    warnings_.push_back(concat("checkpoint ", step_name(step), " is skipped: ", fault));
  }
  std::string all;
  for (const std::string& warning : warnings_) all += "\n  " + warning;
  refuse(folder, " holds no intact checkpoint:", all);
}

/// Does the same for a path of either kind.
std::string CheckpointReader::open(std::string path, std::int64_t before) {
  path = without_slash(std::move(path));
  if (const std::string name = last_name(path);
      (name == kBestName || name == kLatestName) && is_plain_file(path))
    return open_step(sibling(path, step_name(step_named_in(path))));
  if (!is_folder(path))
    refuse(path, " is not a folder of checkpoints", path_exists(path) ? "" : ": no such path");
  path = checkpoints_of(path);
  const bool is_step = path_exists(concat(path, '/', kIndexName)) || step_of(last_name(path)) >= 0;
  return is_step ? open_step(path) : open_newest(path, before);
}

CheckpointReader::CheckpointReader(Communicator& world, const std::string& path,
                                   std::int64_t before) {
  std::vector<std::string> told;  // by rank 0: folder, index, texts and warnings, or its fault
  if (world.rank() == 0) {
    std::string index;
    const std::string fault = fault_of([&] { index = open(path, before); });
    told = fault.empty() ? std::vector{folder_, std::move(index)} : std::vector{fault};
    if (fault.empty()) {
      for (const auto& [name, text] : texts_) told.push_back(text);
      told.insert(told.end(), warnings_.begin(), warnings_.end());
    }
  }
  told = broadcast_texts(world, std::move(told));
  if (told.size() == 1) refuse(told.front());
  folder_ = told[0];
  one_of_several_ = folder_.starts_with(without_slash(path) + '/');
  if (world.rank() == 0) return;
  index_ = parse_index(told[1], folder_);
  auto next = told.begin() + 2;
  for (const auto& [name, stored] : index_.texts) texts_[name] = *next++;
  warnings_.assign(next, told.end());
}

CheckpointReader::CheckpointReader(const std::string& path)
    : CheckpointReader(*make_self(), path) {}

CheckpointReader::CheckpointReader(std::string folder, CheckpointIndex index, StateTexts texts,
                                   FilePlaces places)
    : folder_(std::move(folder)),
      index_(std::move(index)),
      texts_(std::move(texts)),
      places_(std::move(places)) {}

void CheckpointReader::verify_files() const {
  std::vector<std::byte> bytes;
  for (const StoredFile& stored : index_.files) {
    const InputFile file(concat(folder_, '/', stored.name));
    for (std::int64_t piece = 0; piece < std::ssize(stored.checksums); ++piece)
      read_piece(file, stored, piece, bytes);
  }
}

void CheckpointReader::share_texts(Communicator& world) {
  std::vector<std::string> told;
  for (const auto& [name, text] : texts_) told.insert(told.end(), {name, text});
  told = broadcast_texts(world, std::move(told));
  texts_.clear();
  for (std::size_t i = 0; i < told.size(); i += 2) texts_[told[i]] = told[i + 1];
}

const std::string& CheckpointReader::text(const std::string& name) const {
  const auto found = texts_.find(name);
  if (found == texts_.end()) refuse(folder_, " has no ", name);
  return found->second;
}

bool CheckpointReader::has_kind(std::string_view kind) const {
  return std::ranges::find(index_.kinds, kind) != index_.kinds.end();
}

std::string absmax_of(const std::string& kind) { return concat(kind, kAbsmax); }

CheckpointSource::CheckpointSource(const CheckpointReader& reader,
                                   std::vector<StoredParameter> parameters,
                                   const std::vector<std::string>& kinds,
                                   const std::function<bool(std::string_view)>& passed_over)
    : ParameterSource(reader.folder(), std::move(parameters)),
      index_(reader.index()),
      weights_(kinds.empty() ? kWeightsKind : kinds.front()),
      locations_(index_.parameters.size()),
      places_(reader.places()) {
  std::vector<std::string> paths;
  for (const StoredFile& file : index_.files) paths.push_back(concat(path(), '/', file.name));
  pieces_ = places_ ? pieces_of(index_, *places_) : pieces_of(index_, std::move(paths));
  for (const StoredParameter& stored : index_.parameters)
    indices_.emplace(stored.name, std::ssize(indices_));
  Differences differences;
  for (const std::string& kind : kinds)
    if (!reader.has_kind(kind)) differences.add("it has no ", kind, " of its parameters");
  std::set<std::string_view> known;
  for (const auto& [name, rows, cols] : this->parameters()) {
    known.insert(name);
    const auto found = indices_.find(name);
    if (found == indices_.end()) {
      differences.add("it has no ", name, " (", rows, ',', cols, ')');
      continue;
    }
    const StoredParameter& stored = index_.parameters[found->second];
    if (stored.rows != rows || stored.cols != cols)
      differences.add(name, " is (", stored.rows, ',', stored.cols, ") in the checkpoint and (",
                      rows, ',', cols, ") in the model");
  }
  for (const auto& [name, rows, cols] : index_.parameters)
    if (!known.contains(name) && !(passed_over && passed_over(name)))
      differences.add("it has ", name, " (", rows, ',', cols, "), which the model does not have");
  differences.refuse_if_any(path() + " is not a checkpoint of this model and optimizer");
  for (std::size_t file = 0; file < index_.files.size(); ++file)
    for (const StoredBlock& block : index_.files[file].blocks) {
      std::int64_t first = 0, blocks = 0;
      for (const StoredSlice& slice : block.slices) {
        locations_[slice.parameter].push_back(
            {&slice, &block, static_cast<std::int64_t>(file), first, blocks});
        first += slice.part.count();
        blocks += code_blocks(slice.part.count());
      }
    }
}

/// Finds the parts of the files that hold one wanted slice.
void CheckpointSource::add_runs(const SliceRequest& wanted, const Slice& slice, std::size_t request,
                                std::vector<Run>& runs) const {
  const auto place = indices_.find(wanted.parameter);
  AXONN_CHECK(place != indices_.end(), path(), " has no ", wanted.parameter);
  const auto& stored = index_.parameters[place->second];
  const auto& locations = locations_[place->second];
  const bool of_absmax = wanted.kind.ends_with(kAbsmax);
  const std::string kind =
      wanted.kind == kWeightsKind
          ? weights_
          : wanted.kind.substr(0, wanted.kind.size() - (of_absmax ? kAbsmax.size() : 0));
  AXONN_CHECK(lies_in(slice, stored.rows, stored.cols), "a slice of ", stored.name,
              " reaches beyond its shape (", stored.rows, ',', stored.cols, ')');
  std::vector<Overlap> overlaps;
  for (std::size_t i = 0; i < locations.size(); ++i)
    if (locations[i].block->offsets.contains(kind))
      intersect(slice, locations[i].slice->part, i, overlaps);
  if (places_)
    drop_repeats(overlaps, [&](std::size_t source) {
      return !places_->paths[locations[source].file].empty();
    });
  check_cover(slice, overlaps, stored, path());
  for (const Overlap& overlap : overlaps) {
    const Location& at = locations[overlap.source];
    const ValueCode code = at.block->code_of(kind);
    const std::int64_t within = overlap.stored - at.slice->part.begin,
                       before = code == ValueCode::f32 ? at.first : at.first_blocks * kCodeBlock;
    Run run{.file = at.file,
            .offset = at.block->offsets.at(kind) + (before + within) * bytes_of(code),
            .count = overlap.count,
            .code = code,
            .at = before + within,
            .of_absmax = of_absmax,
            .request = request,
            .to = slice.offset + overlap.wanted - slice.begin};
    if (has_absmax(code)) run.absmax = at.block->coded.at(kind).absmax;
    runs.push_back(run);
  }
}

std::int64_t CheckpointSource::read(std::span<const SliceRequest> wanted, const TakeValues& take) {
  const std::int64_t before = pieces_->bytes_read();
  std::vector<Run> runs;
  const auto find = [&] {
    for (std::size_t i = 0; i < wanted.size(); ++i)
      for (const Slice& slice : wanted[i].slices) add_runs(wanted[i], slice, i, runs);
    std::ranges::sort(runs, {}, [](const Run& run) { return std::pair(run.file, run.offset); });
  };
  pieces_->during([&](bool rehearsal) {
    if (runs.empty()) find();
    for (const Run& run : runs) {
      const std::string& parameter = wanted[run.request].parameter;
      if (has_absmax(run.code) || run.of_absmax)
        read_codes(run, parameter, rehearsal ? TakeValues() : take);
      else
        read_run(run, parameter, rehearsal ? TakeValues() : take);
    }
  });
  return pieces_->bytes_read() - before;
}

void CheckpointSource::read_run(const Run& run, const std::string& parameter,
                                const TakeValues& take) {
  const std::int64_t each = axonn::bytes_of(run.code), end = run.offset + run.count * each;
  const StoredType type = run.code == ValueCode::bf16 ? StoredType::bf16 : StoredType::f32;
  for (std::int64_t at = run.offset, next = 0; at < end; at = next) {
    next = std::min(end, (at / kPieceBytes + 1) * kPieceBytes);
    const auto values = pieces_->bytes_at(run.file, at, next - at, parameter);
    if (take) take(run.request, run.to + (at - run.offset) / each, type, values);
  }
}

/// Hands on the values of codes, or the absmax of their blocks.
void CheckpointSource::read_codes(const Run& run, const std::string& parameter,
                                  const TakeValues& take) {
  constexpr std::int64_t kAtOnce = std::int64_t{1} << 18;
  const DynamicMap& map =
      run.code == ValueCode::dynamic ? DynamicMap::of_signed() : DynamicMap::of_unsigned();
  std::vector<std::byte> codes;
  std::vector<float> absmax, values;
  for (std::int64_t done = 0, count = 0; done < run.count; done += count) {
    count = std::min(kAtOnce, run.count - done);
    values.assign(count, 0.0F);
    const std::int64_t first = run.at + done, block = first / kCodeBlock;
    if (has_absmax(run.code)) {
      absmax.resize((first + count - 1) / kCodeBlock - block + 1);
      read_bytes(run.file, run.absmax + block * kElementBytes,
                 std::as_writable_bytes(std::span(absmax)), parameter);
      if (!run.of_absmax) {
        codes.resize(count);
        read_bytes(run.file, run.offset + done, codes, parameter);
      }
      if (!take) continue;
      for (std::int64_t i = 0; i < count; ++i) {
        const float most = absmax[(first + i) / kCodeBlock - block];
        values[i] =
            run.of_absmax ? most : map.value(std::to_integer<std::uint8_t>(codes[i])) * most;
      }
    }
    if (take) take(run.request, run.to + done, StoredType::f32, std::as_bytes(std::span(values)));
  }
}

void CheckpointSource::read_bytes(std::int64_t file, std::int64_t at, std::span<std::byte> to,
                                  const std::string& parameter) {
  while (!to.empty()) {
    const std::int64_t count = std::min(std::ssize(to), kPieceBytes - at % kPieceBytes);
    std::ranges::copy(pieces_->bytes_at(file, at, count, parameter), to.begin());
    to = to.subspan(count);
    at += count;
  }
}

}  // namespace axonn
