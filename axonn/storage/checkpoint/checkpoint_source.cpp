#include "axonn/storage/checkpoint/checkpoint_source.h"

#include <algorithm>
#include <set>
#include <string_view>

#include "axonn/base/check.h"
#include "axonn/base/hash.h"

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
Columns columns_at(const Slice& r, std::int64_t row) {
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

/// Lists the kinds that the checkpoint lacks, and the differences between its parameters, in
/// `places`, and the model's.
void compare(const CheckpointIndex& index,
             const std::map<std::string, std::int64_t, std::less<>>& places,
             std::span<const StoredParameter> model, const std::vector<std::string>& kinds,
             Differences& differences) {
  for (const std::string& kind : kinds)
    if (std::ranges::find(index.kinds, kind) == index.kinds.end())
      differences.add("it has no ", kind, " of its parameters");
  std::set<std::string_view> known;
  for (const auto& [name, rows, cols] : model) {
    known.insert(name);
    const auto found = places.find(name);
    if (found == places.end()) {
      differences.add("it has no ", name, " (", rows, ',', cols, ')');
      continue;
    }
    const auto& stored = index.parameters[static_cast<std::size_t>(found->second)];
    if (stored.rows != rows || stored.cols != cols)
      differences.add(name, " is (", stored.rows, ',', stored.cols, ") in the checkpoint and (",
                      rows, ',', cols, ") in the model");
  }
  for (const auto& [name, rows, cols] : index.parameters)
    if (!known.contains(name))
      differences.add("it has ", name, " (", rows, ',', cols, "), which the model does not have");
}

}  // namespace

CheckpointSource::CheckpointSource(const CheckpointReader& reader,
                                   std::vector<StoredParameter> parameters,
                                   const std::vector<std::string>& kinds)
    : ParameterSource(reader.folder(), std::move(parameters)),
      index_(reader.index()),
      locations_(index_.parameters.size()),
      verified_(index_.files.size()) {
  for (const StoredParameter& stored : index_.parameters)
    places_.emplace(stored.name, std::ssize(places_));
  Differences differences;
  compare(index_, places_, this->parameters(), kinds, differences);
  differences.refuse_if_any(path() + " is not a checkpoint of this model and optimizer");
  for (std::size_t file = 0; file < index_.files.size(); ++file)
    for (const StoredBlock& block : index_.files[file].blocks) {
      std::int64_t first = 0;
      for (const StoredSlice& slice : block.slices) {
        locations_[static_cast<std::size_t>(slice.parameter)].push_back(
            {&slice, &block, static_cast<std::int64_t>(file), first});
        first += slice.part.count();
      }
    }
}

/// Finds the parts of the files that hold one wanted slice.
void CheckpointSource::add_runs(const SliceRequest& wanted, const Slice& slice, std::size_t request,
                                std::vector<Run>& runs) const {
  const auto place = places_.find(wanted.parameter);
  AXONN_CHECK(place != places_.end(), path(), " has no ", wanted.parameter);
  const auto& stored = index_.parameters[static_cast<std::size_t>(place->second)];
  const auto& locations = locations_[static_cast<std::size_t>(place->second)];
  AXONN_CHECK(lies_in(slice, stored.rows, stored.cols), "a slice of ", stored.name,
              " reaches beyond its shape (", stored.rows, ',', stored.cols, ')');
  std::vector<Overlap> overlaps;
  for (std::size_t i = 0; i < locations.size(); ++i)
    intersect(slice, locations[i].slice->part, i, overlaps);
  check_cover(slice, overlaps, stored, path());
  for (const Overlap& overlap : overlaps) {
    const Location& at = locations[overlap.source];
    const auto offset = at.block->offsets.find(wanted.kind);
    if (offset == at.block->offsets.end())
      refuse(path(), " has no ", wanted.kind, " of ", stored.name);
    const std::int64_t element = at.first + overlap.stored - at.slice->part.begin;
    runs.push_back({.file = at.file,
                    .offset = offset->second + element * std::int64_t{sizeof(float)},
                    .count = overlap.count,
                    .request = request,
                    .to = slice.offset + overlap.wanted - slice.begin});
  }
}

std::int64_t CheckpointSource::read(std::span<const SliceRequest> wanted, const TakeValues& take) {
  const std::int64_t before = bytes_read_;
  std::vector<Run> runs;
  for (std::size_t i = 0; i < wanted.size(); ++i)
    for (const Slice& slice : wanted[i].slices) add_runs(wanted[i], slice, i, runs);
  std::ranges::sort(runs, {}, [](const Run& run) { return std::pair(run.file, run.offset); });
  for (const Run& run : runs) {
    open(run.file);
    const std::int64_t end = run.offset + run.count * std::int64_t{sizeof(float)};
    for (std::int64_t at = run.offset, next = 0; at < end; at = next) {
      next = std::min(end, (at / kPieceBytes + 1) * kPieceBytes);
      take(run.request, run.to + (at - run.offset) / std::int64_t{sizeof(float)}, StoredType::f32,
           bytes_at(at, next - at, wanted[run.request].parameter));
    }
  }
  return bytes_read_ - before;
}

/// Bytes of one piece of the open file. A verified piece that is no longer held is not read whole.
std::span<const std::byte> CheckpointSource::bytes_at(std::int64_t at, std::int64_t count,
                                                      const std::string& parameter) {
  const std::int64_t piece = at / kPieceBytes;
  if (!verified_[static_cast<std::size_t>(file_at_)][static_cast<std::size_t>(piece)])
    verify(piece, parameter);
  if (piece == piece_at_)
    return std::span(piece_).subspan(static_cast<std::size_t>(at % kPieceBytes),
                                     static_cast<std::size_t>(count));
  part_.resize(static_cast<std::size_t>(count));
  file_->read(at, part_);
  bytes_read_ += count;
  return part_;
}

void CheckpointSource::open(std::int64_t file) {
  if (file == file_at_) return;
  file_at_ = piece_at_ = -1;
  const StoredFile& stored = index_.files[static_cast<std::size_t>(file)];
  file_.emplace(concat(path(), '/', stored.name));
  if (file_->bytes() != stored.bytes)
    refuse(file_->path(), " has ", file_->bytes(), " bytes instead of ", stored.bytes,
           ": it is cut short or altered");
  verified_[static_cast<std::size_t>(file)].resize(stored.checksums.size());
  file_at_ = file;
}

/// Reads a piece of the open file and compares it with its checksum.
void CheckpointSource::verify(std::int64_t piece, const std::string& parameter) {
  piece_at_ = -1;
  const StoredFile& stored = index_.files[static_cast<std::size_t>(file_at_)];
  const std::int64_t begin = piece * kPieceBytes,
                     count = std::min(kPieceBytes, stored.bytes - begin);
  piece_.resize(static_cast<std::size_t>(count));
  file_->read(begin, piece_);
  bytes_read_ += count;
  if (xxh3(piece_) != stored.checksums[static_cast<std::size_t>(piece)])
    refuse(file_->path(), " is altered: bytes ", begin, " to ", begin + count,
           " do not match their checksum; they hold ", parameter, "; use an older checkpoint");
  verified_[static_cast<std::size_t>(file_at_)][static_cast<std::size_t>(piece)] = true;
  piece_at_ = piece;
}

}  // namespace axonn
