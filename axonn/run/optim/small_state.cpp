#include "axonn/run/optim/small_state.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "axonn/compute/tensor/address.h"
#include "axonn/foundation/base/check.h"
#include "axonn/foundation/base/random.h"
#include "axonn/run/optim/factors.h"
#include "axonn/run/optim/state_sums.h"

namespace axonn {

namespace {

constexpr std::int64_t kStateBlock = DynamicMap::kBlock;

std::int64_t whole_blocks(std::int64_t n) {
  return (n + kStateBlock - 1) / kStateBlock * kStateBlock;
}

const DynamicMap& map_of(StateSign sign) {
  return sign == StateSign::any ? DynamicMap::of_signed() : DynamicMap::of_unsigned();
}

/// Elements [first, first + count) of a slice.
Slice part_of(Slice slice, std::int64_t first, std::int64_t count) {
  slice.begin += first;
  slice.end = slice.begin + count;
  return slice;
}

void put_part_away(const StateViews& state, const StatePart& part) {
  if (!state.offloaded()) return;
  for (const Tensor& one : *state.offloaded()) {
    const bool read = !one.empty() && one.use() == MemoryUse::gradients;
    one.col_range(part.begin, part.count).put_away(read ? FileAccess::read : FileAccess::changed);
  }
}

}  // namespace

SmallLayout::SmallLayout(const ParameterGroup& group, MomentType type, const Coords& at)
    : type_(type) {
  const FlatLayout& layout = group.layout();
  for (const auto& [spec, slice] : layout.piece_slices(at, layout.sizes(at))) {
    if (slice.count() == 0) continue;
    const Layout& whole = spec->layout;
    const bool small =
        type == MomentType::bf16 || (whole.cols > 1 && whole.rows * whole.cols >= kLeast);
    std::int64_t& end = count_[small ? 1 : 0];
    runs_.push_back({spec, slice, small, end});
    Slice stored = slice;
    stored.offset = end;
    slices_[small ? 1 : 0].push_back({spec, stored});
    end += whole_blocks(slice.count());
  }
}

std::int64_t SmallLayout::bytes_of(std::int64_t small, std::int64_t full) const {
  constexpr std::int64_t kFloat = sizeof(float);
  const std::int64_t each =
      type_ == MomentType::bf16 ? 2 * small : small + small / kStateBlock * kFloat;
  return each + full * kFloat;
}

std::int64_t SmallLayout::stored_bytes() const {
  std::int64_t small = 0, full = 0;
  for (const Run& run : runs_)
    if (run.slice.owned) {
      if (run.small)
        small += whole_blocks(run.slice.count());
      else
        full += run.slice.count();
    }
  return bytes_of(small, full);
}

SmallState::SmallState(const Context& ctx, const ParameterGroup& group, MomentType type,
                       const std::vector<StateSign>& signs)
    : type_(type), layout_(group, type, group.grid().coords()) {
  const std::int64_t small = layout_.count(true), full = layout_.count(false);
  const bool coded = type == MomentType::eight_bits;
  const auto zeros = [&](std::int64_t n, DType dtype) {
    return n == 0 ? Tensor() : ctx.long_lived(1, n, dtype, MemoryUse::optimizer);
  };
  for (const StateSign sign : signs) {
    buffers_.push_back({.sign = sign,
                        .small = zeros(small, coded ? DType::u8 : DType::bf16),
                        .absmax = zeros(coded ? small / kStateBlock : 0, DType::f32),
                        .full = zeros(full, DType::f32)});
    Tensor& table = tables_[static_cast<std::size_t>(sign)];
    if (!coded || small == 0 || !table.empty()) continue;
    const auto values = map_of(sign).table();
    table = ctx.empty(1, DynamicMap::kTable, DType::f32, MemoryUse::optimizer);
    ctx.device().copy_from_host(table.raw_view().data, values.data(), std::ssize(values) * 4);
  }
}

void SmallState::begin(std::uint64_t seed, std::int64_t step) {
  seed_ = seed;
  step_ = step;
}

ops::DynamicBlocks SmallState::blocks(std::size_t i, std::int64_t at, std::int64_t count) const {
  const Buffers& of = buffers_[i];
  return {.codes = of.small.view().col_range(at, count),
          .absmax = of.absmax.view().col_range(at / kStateBlock, whole_blocks(count) / kStateBlock),
          .table = tables_[static_cast<std::size_t>(of.sign)].view()};
}

void SmallState::read(const Context& ctx, std::size_t i, const View& out, std::int64_t at) const {
  if (type_ == MomentType::bf16)
    ctx.backend.run(ops::Cast{out, buffers_[i].small.view().col_range(at, out.cols)});
  else
    ctx.backend.run(ops::DecodeDynamic{out, blocks(i, at, out.cols)});
}

void SmallState::write(const Context& ctx, std::size_t i, const View& values, std::int64_t at,
                       const SmallLayout::Run& run) const {
  const Buffers& of = buffers_[i];
  if (type_ == MomentType::eight_bits) {
    ctx.backend.run(
        ops::EncodeDynamic{blocks(i, at, values.cols), values, of.sign == StateSign::any});
    return;
  }
  const View to = of.small.view().col_range(at, values.cols);
  // Each state of each parameter has random numbers of its own in each update.
  const std::uint64_t key = mix_bits(
      mix_bits(mix_bits(seed_ ^ hash_text(run.spec->name)) + static_cast<std::uint64_t>(step_)) +
      i);
  const bool vector = run.slice.cols == 1;  // its elements make one row, not a row each
  for_rectangles(part_of(run.slice, at - run.begin, values.cols), [&](const Rectangle& part) {
    const auto in = [&](const View& flat) {
      return vector ? flat.col_range(part.offset, part.rows) : part.in(flat);
    };
    ctx.backend.run(ops::RoundAtRandom{.out = in(to),
                                       .inp = in(values),
                                       .key = key,
                                       .first_row = vector ? part.col : part.row,
                                       .first_col = vector ? part.row : part.col});
  });
}

void SmallState::for_parts(const Context& ctx, const UpdateRange& range, std::size_t count,
                           const TakePart& f, const StateViews& state) const {
  const GroupSums* const sums = state.sums();
  for (const SmallLayout::Run& run : layout_.runs()) {
    const std::int64_t begin = std::max(run.slice.offset, range.begin),
                       end = std::min(run.end(), range.begin + range.count);
    for (std::int64_t at = begin, next = 0; at < end; at = next) {
      next = std::min(end, at + kAtOnce);
      const std::int64_t n = next - at, stored = run.begin + at - run.slice.offset;
      AXONN_CHECK(stored % kStateBlock == 0, run.spec->name,
                  ": an update begins within a block of its state");
      const StatePart part{.begin = at, .count = n, .stored = stored, .small = run.small};
      if (sums) sums->sums->check(sums->group, part);
      std::vector<Tensor> held;
      std::vector<View> views;
      for (std::size_t i = 0; i < count; ++i) {
        if (!run.small) {
          views.push_back(buffers_[i].full.view().col_range(stored, n));
          continue;
        }
        held.push_back(ctx.empty(1, n, DType::f32, MemoryUse::optimizer));
        views.push_back(held.back().view());
        read(ctx, i, views.back(), stored);
      }
      f({.begin = at,
         .count = n,
         .decayed = std::clamp<std::int64_t>(range.decayed - (at - range.begin), 0, n),
         .rate = range.rate},
        views);
      for (std::size_t i = 0; i < held.size(); ++i) write(ctx, i, views[i], stored, run);
      if (sums) sums->sums->keep(sums->group, part);
      put_away(stored, n, run.small);
      put_part_away(state, part);
    }
  }
}

void SmallState::put_away(std::int64_t at, std::int64_t count, bool small) const {
  for (const Buffers& of : buffers_) {
    if (!small) {
      of.full.col_range(at, count).put_away();
      continue;
    }
    of.small.col_range(at, count).put_away();
    if (!of.absmax.empty())
      of.absmax.col_range(at / kStateBlock, whole_blocks(count) / kStateBlock).put_away();
  }
}

std::vector<Tensor> SmallState::buffers() const {
  std::vector<Tensor> all;
  for (const Buffers& of : buffers_)
    for (const Tensor& one : {of.small, of.absmax, of.full})
      if (!one.empty()) all.push_back(one);
  return all;
}

std::vector<Tensor> SmallState::parts_at_once() const {
  std::vector<Tensor> parts;
  for (const Tensor& one : buffers())
    parts.push_back(one.col_range(0, std::min(one.count(), kAtOnce)));
  return parts;
}

void SmallState::set(const Context& ctx, std::size_t i, std::span<const float> values,
                     std::span<const float> absmax) const {
  const Buffers& to = buffers_[i];
  if (type_ == MomentType::bf16) {
    std::vector<bf16> rounded(values.size());
    for (std::size_t k = 0; k < values.size(); ++k) put(rounded[k], values[k]);
    ctx.device().copy_from_host(to.small.view().data, rounded.data(), std::ssize(rounded) * 2);
    return;
  }
  std::vector<std::uint8_t> codes(values.size());
  std::vector<float> largest(values.size() / kStateBlock);
  for (std::size_t block = 0; block < largest.size(); ++block) {
    const auto part = values.subspan(block * kStateBlock, kStateBlock);
    const auto from = absmax.subspan(block * kStateBlock, kStateBlock);
    float& most = largest[block];
    for (const float value : part) most = std::max(most, std::abs(value));
    // Behind the last element of a slice there are zeros of no block.
    const float first = from.front();
    const auto end = std::ranges::find(from, 0.0F);
    const bool one = std::all_of(from.begin(), end, [&](float m) { return m == first; }) &&
                     std::all_of(part.begin() + (end - from.begin()), part.end(),
                                 [](float value) { return value == 0; });
    if (one && first >= most) most = first;
    map_of(to.sign).encode(part, most, std::span(codes).subspan(block * kStateBlock, kStateBlock));
  }
  ctx.device().copy_from_host(to.small.view().data, codes.data(), std::ssize(codes));
  ctx.device().copy_from_host(to.absmax.view().data, largest.data(), std::ssize(largest) * 4);
}

void for_parts(const Context& ctx, const StateViews& state, const UpdateRange& range,
               std::size_t count, const SmallState::TakePart& f) {
  const GroupSums* const of = state.sums();
  if (state.small()) return state.small()->for_parts(ctx, range, count, f, state);
  const std::int64_t end = range.begin + range.count;
  for (std::int64_t at = range.begin, next = 0; at < end; at = next) {
    next = state.offloaded() ? std::min(end, at + SmallState::kAtOnce) : end;
    if (of) next = of->sums->part_end(of->group, at, end);
    const std::int64_t n = next - at;
    std::vector<View> views;
    for (std::size_t i = 0; i < count; ++i) views.push_back(state[i].col_range(at, n));
    if (of) of->sums->check(of->group, StatePart{.begin = at, .count = n});
    f({.begin = at,
       .count = n,
       .decayed = std::clamp<std::int64_t>(range.decayed - (at - range.begin), 0, n),
       .rate = range.rate},
      views);
    const StatePart part{.begin = at, .count = n};
    if (of) of->sums->keep(of->group, part);
    put_part_away(state, part);
  }
}

}  // namespace axonn
