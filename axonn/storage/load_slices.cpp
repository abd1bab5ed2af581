// A rank holds the elements [begin, end) of a rectangle, its slice. The slice is read a few rows at
// a time. If it has all columns of the matrix, these rows are one range of the file. If columns are
// cut over ranks, those ranks need the same rows: each reads some of the rows whole, and an
// all-to-all gives every rank its columns.
#include "axonn/storage/load_slices.h"

#include <algorithm>
#include <cstring>

#include "axonn/base/clock.h"

namespace axonn {

namespace {

constexpr std::int64_t kBytesAtOnce = 4 << 20;   // of rows that the ranks read together
constexpr std::int64_t kBytesInCache = 1 << 19;  // read or passed to the callback at once

using Bytes = std::vector<std::byte>;

Buffer buffer_of(Bytes& bytes) { return {bytes.data(), std::ssize(bytes), DType::u8}; }

/// out[i * stride] = run[i], counted in elements of T.
template <typename T>
void spread(const Bytes& run, std::byte* out, std::int64_t stride) {
  const std::int64_t count = std::ssize(run) / std::int64_t{sizeof(T)};
  for (std::int64_t i = 0; i < count; ++i)
    std::memcpy(out + i * stride * std::int64_t{sizeof(T)}, run.data() + i * sizeof(T), sizeof(T));
}

/// Loads the slices of one matrix. Elements keep their stored type, of each_ bytes.
class SliceLoader {
 public:
  using Take = std::function<void(std::int64_t offset, std::span<const std::byte>)>;

  /// `bytes` is a buffer that the loaders of all matrices share.
  SliceLoader(const WantedSlices& wanted, Bytes& bytes, Take take)
      : wanted_(wanted),
        each_(bytes_of(wanted.tensor.entry->type)),
        bytes_(bytes),
        take_(std::move(take)) {}

  void load(const Slice& slice);
  std::int64_t bytes_read() const { return bytes_read_; }

 private:
  void load_whole_rows(const Slice& slice);
  Bytes rows_of(const Slice& slice, std::int64_t first, std::int64_t count);
  Bytes together(const Slice& slice, std::int64_t first, std::int64_t count);
  Bytes columns_of(const Slice& slice, std::int64_t first, std::int64_t count);
  void read(std::int64_t element, std::span<std::byte> out);

  const WantedSlices& wanted_;
  std::int64_t each_;
  Bytes& bytes_;
  Take take_;
  std::int64_t bytes_read_ = 0;
};

/// Fills `out` with elements of the stored matrix from `element` on.
void SliceLoader::read(std::int64_t element, std::span<std::byte> out) {
  wanted_.tensor.file->read(*wanted_.tensor.entry, element * each_, out);
  bytes_read_ += std::ssize(out);
}

/// Returns (count, slice.cols): the slice's columns of rows [first, first + count) of the matrix.
/// Each rank of `across` reads some of the rows whole.
Bytes SliceLoader::together(const Slice& slice, std::int64_t first, std::int64_t count) {
  Communicator& across = *wanted_.across;
  const std::int64_t ways = across.size(), rows = (count + ways - 1) / ways,
                     begin = std::min(count, across.rank() * rows),
                     mine = std::min(count, begin + rows) - begin, row_bytes = wanted_.cols * each_,
                     part = slice.cols * each_;
  Bytes sent(ways * rows * part), got(sent.size());
  bytes_.resize(mine * row_bytes);
  if (mine > 0) read((first + begin) * wanted_.cols, bytes_);
  for (std::int64_t to = 0; to < ways; ++to)
    for (std::int64_t row = 0; row < mine; ++row)
      std::copy_n(bytes_.begin() + row * row_bytes + to * part, part,
                  sent.begin() + (to * rows + row) * part);
  across.all_to_all(buffer_of(got), buffer_of(sent), "loading").wait();
  got.resize(count * part);
  return got;
}

/// The same for a matrix that is stored transposed: its columns are rows of the file.
Bytes SliceLoader::columns_of(const Slice& slice, std::int64_t first, std::int64_t count) {
  Bytes out(count * slice.cols * each_);
  bytes_.resize(count * each_);
  const auto spread_one = each_ == 2 ? spread<std::uint16_t> : spread<std::uint32_t>;
  for (std::int64_t col = 0; col < slice.cols; ++col) {
    read((slice.col + col) * wanted_.rows + first, bytes_);
    spread_one(bytes_, out.data() + col * each_, slice.cols);
  }
  return out;
}

Bytes SliceLoader::rows_of(const Slice& slice, std::int64_t first, std::int64_t count) {
  if (wanted_.transposed) return columns_of(slice, first, count);
  if (wanted_.across && wanted_.across->size() > 1) return together(slice, first, count);
  const std::int64_t part = slice.cols * each_;
  Bytes out(count * part);
  for (std::int64_t row = 0; row < count; ++row)
    read((first + row) * wanted_.cols + slice.col, std::span(out).subspan(row * part, part));
  return out;
}

/// For a slice that is one range of the file. It passes on pieces small enough to stay in cache.
void SliceLoader::load_whole_rows(const Slice& slice) {
  const std::int64_t at_once = kBytesInCache / each_;
  for (std::int64_t at = slice.begin; at < slice.end; at += at_once) {
    bytes_.resize(std::min(at_once, slice.end - at) * each_);
    read(slice.row * wanted_.cols + at, bytes_);
    take_(slice.offset + at - slice.begin, bytes_);
  }
}

void SliceLoader::load(const Slice& slice) {
  if (slice.count() <= 0) return;
  const bool whole = !wanted_.transposed && slice.cols == wanted_.cols;
  if (whole && (!wanted_.across || wanted_.across->size() == 1)) return load_whole_rows(slice);
  const std::int64_t at_once = std::max<std::int64_t>(1, kBytesAtOnce / (slice.cols * each_)),
                     last = (slice.end - 1) / slice.cols;
  for (std::int64_t row = slice.begin / slice.cols; row <= last; row += at_once) {
    const std::int64_t count = std::min(at_once, last + 1 - row),
                       end = std::min(slice.end, (row + count) * slice.cols);
    const Bytes rows = rows_of(slice, slice.row + row, count);
    for (std::int64_t at = std::max(slice.begin, row * slice.cols), next; at < end; at = next) {
      next = std::min(end, at + kBytesInCache / each_);
      take_(slice.offset + at - slice.begin,
            std::span(rows).subspan((at - row * slice.cols) * each_, (next - at) * each_));
    }
  }
}

}  // namespace

LoadCost load_slices(std::span<const WantedSlices> wanted, const TakeStored& take,
                     const CheckpointReader::Progress& progress) {
  const double began = now_seconds();
  LoadCost cost;
  std::int64_t total = 0, done = 0;
  for (const WantedSlices& one : wanted)
    for (const Slice& slice : one.slices) total += slice.count() * bytes_of(one.tensor.entry->type);
  Bytes bytes;
  for (std::size_t i = 0; i < wanted.size(); ++i) {
    SliceLoader loader(wanted[i], bytes,
                       [&](std::int64_t offset, std::span<const std::byte> stored) {
                         take(i, offset, stored);
                         done += std::ssize(stored);
                         if (progress) progress(done, total);
                       });
    for (const Slice& slice : wanted[i].slices) loader.load(slice);
    cost.bytes += loader.bytes_read();
  }
  cost.seconds = now_seconds() - began;
  return cost;
}

}  // namespace axonn
