// A slice is a rectangle of which a rank holds the elements [begin, end). It is read some rows at a
// time. Where its columns are all there are, those rows are one range of the file; where they are
// cut, the ranks that hold the other columns want the same rows, so each reads a part of the rows
// whole, and an all-to-all gives everyone its columns.
#include "axonn/io/load_slices.h"

#include <algorithm>

#include "axonn/base/clock.h"
#include "axonn/io/stored_values.h"

namespace axonn {

namespace {

constexpr std::int64_t kFloatsAtOnce = 2 << 20;  // of a rank: 8 MiB

class SliceLoader {
 public:
  using Take = std::function<void(std::int64_t offset, std::span<const float>)>;

  SliceLoader(const WantedSlices& wanted, Take take) : wanted_(wanted), take_(std::move(take)) {}

  void load(const Slice& slice);
  std::int64_t bytes_read() const { return bytes_read_; }

 private:
  std::vector<float> rows_of(const Slice& slice, std::int64_t first, std::int64_t count);
  std::vector<float> together(const Slice& slice, std::int64_t first, std::int64_t count);
  std::vector<float> columns_of(const Slice& slice, std::int64_t first, std::int64_t count);
  void read(std::int64_t element, std::span<float> out);

  const WantedSlices& wanted_;
  Take take_;
  std::vector<std::byte> bytes_;
  std::int64_t bytes_read_ = 0;
};

/// out = elements of the stored matrix from `element` on.
void SliceLoader::read(std::int64_t element, std::span<float> out) {
  const SafetensorsEntry& entry = *wanted_.tensor.entry;
  const std::int64_t each = bytes_of(entry.type);
  bytes_.resize(out.size() * static_cast<std::size_t>(each));
  wanted_.tensor.file->read(entry, element * each, bytes_);
  bytes_read_ += std::ssize(bytes_);
  to_floats(entry.type, bytes_, out);
}

/// (count, slice.cols): the slice's columns of `count` rows from row `first` of the matrix on, each
/// rank of `across` reading whole rows.
std::vector<float> SliceLoader::together(const Slice& slice, std::int64_t first,
                                         std::int64_t count) {
  Communicator& across = *wanted_.across;
  const std::int64_t ways = across.size(), each = (count + ways - 1) / ways,
                     begin = std::min(count, across.rank() * each),
                     mine = std::min(count, begin + each) - begin;
  std::vector<float> whole(mine * wanted_.cols), sent(ways * each * slice.cols), got(sent.size());
  if (mine > 0) read((first + begin) * wanted_.cols, whole);
  for (std::int64_t to = 0; to < ways; ++to)
    for (std::int64_t row = 0; row < mine; ++row)
      std::copy_n(whole.begin() + row * wanted_.cols + to * slice.cols, slice.cols,
                  sent.begin() + (to * each + row) * slice.cols);
  across.all_to_all(buffer(std::span(got)), buffer(std::span(sent)), "loading").wait();
  got.resize(count * slice.cols);
  return got;
}

/// The same of a matrix that is stored transposed: its rows are columns of the file.
std::vector<float> SliceLoader::columns_of(const Slice& slice, std::int64_t first,
                                           std::int64_t count) {
  std::vector<float> out(count * slice.cols), run(count);
  for (std::int64_t col = 0; col < slice.cols; ++col) {
    read((slice.col + col) * wanted_.rows + first, run);
    for (std::int64_t row = 0; row < count; ++row) out[row * slice.cols + col] = run[row];
  }
  return out;
}

std::vector<float> SliceLoader::rows_of(const Slice& slice, std::int64_t first,
                                        std::int64_t count) {
  if (wanted_.transposed) return columns_of(slice, first, count);
  if (wanted_.across && wanted_.across->size() > 1) return together(slice, first, count);
  std::vector<float> out(count * slice.cols);
  if (slice.cols == wanted_.cols) {
    read(first * wanted_.cols, out);
    return out;
  }
  for (std::int64_t row = 0; row < count; ++row)
    read((first + row) * wanted_.cols + slice.col,
         std::span(out).subspan(row * slice.cols, slice.cols));
  return out;
}

void SliceLoader::load(const Slice& slice) {
  if (slice.count() <= 0) return;
  const std::int64_t at_once = std::max<std::int64_t>(1, kFloatsAtOnce / slice.cols),
                     last = (slice.end - 1) / slice.cols;
  for (std::int64_t row = slice.begin / slice.cols; row <= last; row += at_once) {
    const std::int64_t count = std::min(at_once, last + 1 - row),
                       begin = std::max(slice.begin, row * slice.cols),
                       end = std::min(slice.end, (row + count) * slice.cols);
    const std::vector<float> rows = rows_of(slice, slice.row + row, count);
    take_(slice.offset + begin - slice.begin,
          std::span(rows).subspan(begin - row * slice.cols, end - begin));
  }
}

}  // namespace

LoadCost load_slices(
    std::span<const WantedSlices> wanted,
    const std::function<void(std::size_t, std::int64_t, std::span<const float>)>& take,
    const CheckpointReader::Progress& progress) {
  const double began = now_seconds();
  LoadCost cost;
  std::int64_t total = 0, done = 0;
  for (const WantedSlices& one : wanted)
    for (const Slice& slice : one.slices) total += slice.count() * bytes_of(one.tensor.entry->type);
  for (std::size_t i = 0; i < wanted.size(); ++i) {
    SliceLoader loader(wanted[i], [&](std::int64_t offset, std::span<const float> values) {
      take(i, offset, values);
      done += std::ssize(values) * bytes_of(wanted[i].tensor.entry->type);
      if (progress) progress(done, total);
    });
    for (const Slice& slice : wanted[i].slices) loader.load(slice);
    cost.bytes += loader.bytes_read();
  }
  cost.seconds = now_seconds() - began;
  return cost;
}

}  // namespace axonn
