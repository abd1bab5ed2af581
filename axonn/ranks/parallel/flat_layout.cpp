#include "axonn/ranks/parallel/flat_layout.h"

#include <algorithm>

#include "axonn/foundation/base/check.h"

namespace axonn {

namespace {

std::int64_t round_up(std::int64_t n, std::int64_t to) { return (n + to - 1) / to * to; }

}  // namespace

std::int64_t rows_at(const Layout& layout, const GridShape& shape, const Coords& at) {
  return layout.held_at(shape, at) ? layout.local_rows(shape) : 0;
}

std::int64_t FlatLayout::room(const Layout& layout, const Coords& at) const {
  return rows_at(layout, shape_, at) * layout.local_cols(shape_);
}

std::int64_t FlatLayout::block_size(const Layout& layout, const Coords& at) const {
  return rows_at(layout, shape_, at) * layout.cols_at(shape_, at);
}

FlatSizes FlatLayout::sizes(const Coords& at) const {
  FlatSizes sizes;
  sizes.offsets.resize(parameters_.size());
  std::int64_t end = 0;
  for (const bool decays : {true, false}) {
    for (std::size_t i = 0; i < parameters_.size(); ++i) {
      const auto& [spec, follows] = parameters_[i];
      if (spec->decays != decays) continue;
      if (!follows) end = round_up(end, align_);
      sizes.offsets[i] = end;
      end += room(spec->layout, at);
    }
    end = round_up(end, align_);
    if (decays) sizes.decayed = end;
  }
  const std::int64_t z = holders_ == Holders::all_of_z ? shape_.z : shape_.z / shape_.experts,
                     data = shape_.data;
  sizes.flat = round_up(end, z * data * align_);
  sizes.shard = sizes.flat / z;
  sizes.piece = sizes.shard / data;
  return sizes;
}

std::int64_t FlatLayout::piece_begin(const Coords& at, const FlatSizes& sizes) const {
  const int z = at.at(Axis::z), holder = holders_ == Holders::all_of_z ? z : z / shape_.experts;
  return holder * sizes.shard + at.at(Axis::data) * sizes.piece;
}

std::vector<Slice> FlatLayout::slices(const Coords& at, const FlatSizes& sizes,
                                      std::size_t i) const {
  AXONN_CHECK(i < parameters_.size(), "there is no parameter ", i, " of ", parameters_.size());
  std::vector<Slice> slices = parameters_[i].spec->layout.slices(shape_, at);
  for (Slice& slice : slices) slice.offset += sizes.offsets[i];
  const std::int64_t begin = piece_begin(at, sizes);
  return clip(slices, begin, begin + sizes.piece);
}

std::vector<NamedSlice> FlatLayout::piece_slices(const Coords& at, const FlatSizes& sizes) const {
  std::vector<NamedSlice> all;
  for (std::size_t i = 0; i < parameters_.size(); ++i)
    for (const Slice& slice : slices(at, sizes, i)) all.push_back({parameters_[i].spec, slice});
  std::ranges::sort(all, {}, [](const NamedSlice& s) { return s.slice.offset; });
  return all;
}

Ranges FlatLayout::gaps(const Coords& at, const FlatSizes& sizes) const {
  Ranges blocks;
  for (std::size_t i = 0; i < parameters_.size(); ++i)
    blocks.emplace_back(sizes.offsets[i],
                        sizes.offsets[i] + block_size(parameters_[i].spec->layout, at));
  std::ranges::sort(blocks);
  Ranges gaps;
  std::int64_t last = 0;
  for (const auto& [begin, end] : blocks) {
    if (last < begin) gaps.emplace_back(last, begin);
    last = end;
  }
  if (last < sizes.flat) gaps.emplace_back(last, sizes.flat);
  return gaps;
}

Ranges owned_ranges(const std::vector<NamedSlice>& piece) {
  Ranges owned;
  for (const auto& [parameter, slice] : piece) {
    if (!slice.owned) continue;
    if (!owned.empty() && owned.back().second == slice.offset)
      owned.back().second += slice.count();
    else
      owned.emplace_back(slice.offset, slice.offset + slice.count());
  }
  return owned;
}

}  // namespace axonn
