#include "axonn/parallel/gradients.h"

namespace axonn {

namespace {

void sum_partial(const Context& ctx, std::span<ParameterGroup* const> groups, Axis axis) {
  if (ctx.grid.extent(axis) == 1) return;
  std::vector<View> runs;
  std::int64_t count = 0;
  for (ParameterGroup* group : groups) {
    for (const auto& [spec, slice] : group->piece_slices()) {
      if (!spec->layout.partial.has(axis)) continue;
      runs.push_back(group->gradient().col_range(slice.offset, slice.count()));
      count += slice.count();
    }
  }
  if (runs.empty()) return;
  const Tensor sums = ctx.empty(1, count, DType::f32, MemoryUse::block_gradients);
  const auto each = [&](const auto& copy) {
    std::int64_t at = 0;
    for (const View& run : runs) {
      copy(sums.raw_view().col_range(at, run.cols), run);
      at += run.cols;
    }
  };
  each([&](const View& sum, const View& run) { ctx.backend.run(ops::Cast{sum, run}); });
  ctx.grid.along(axis).all_reduce(buffer_of(sums.view()), "partial gradients").wait();
  each([&](const View& sum, const View& run) { ctx.backend.run(ops::Cast{run, sum}); });
}

}  // namespace

void finish_gradients(const Context& ctx, std::span<ParameterGroup* const> groups) {
  for (ParameterGroup* group : groups) group->reduce_over_data(ctx);
  for (Axis axis : {Axis::x, Axis::y}) sum_partial(ctx, groups, axis);
}

}  // namespace axonn
