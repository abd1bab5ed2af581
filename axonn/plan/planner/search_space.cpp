#include "axonn/plan/planner/search_space.h"

#include <algorithm>
#include <array>
#include <iterator>
#include <map>
#include <numeric>
#include <tuple>
#include <utility>

namespace axonn {

namespace {

/// Positions from which on context parallelism is tried on every grid.
constexpr std::int64_t kLong = 8192;

}  // namespace

SearchSpace::SearchSpace(const PreparedRun& run, const Machine& machine,
                         const SearchOptions& options)
    : run_(run), devices_per_node_(machine.devices_per_node), options_(options) {}

std::vector<GridShape> SearchSpace::grids() const {
  std::vector<GridShape> grids;
  for (const GridShape& grid : grids_of(options_.devices))
    if (wanted(grid)) std::ranges::copy(with_all_factors(grid), std::back_inserter(grids));
  return grids;
}

std::vector<GridFamily> SearchSpace::families_of(const std::vector<GridShape>& grids,
                                                 bool by_factors) {
  std::map<std::array<int, 4>, GridFamily> families;
  for (const GridShape& grid : grids)
    families[{grid.x, grid.y, by_factors ? grid.context : 0, by_factors ? grid.experts : 0}]
        .grids.push_back(grid);
  std::vector<GridFamily> all;
  for (auto& [key, family] : families) all.push_back({std::move(family.grids), by_factors});
  return all;
}

const GridShape& SearchSpace::least_of(const GridFamily& family) const {
  return *std::ranges::min_element(family.grids, {}, [&](const GridShape& grid) {
    const std::int64_t rows = share(grid) * run_->training.seq_len / grid.context;
    return std::tuple(rows, grid.context, -grid.experts, grid.z == 1 || grid.data == 1, -grid.z);
  });
}

bool SearchSpace::wanted(const GridShape& grid) const {
  for (const Axis axis : kAxes)
    if (const int fixed = options_.fixed.extent(axis); fixed > 0 && fixed != grid.extent(axis))
      return false;
  return allows(options_.strategy, grid, devices_per_node_);
}

std::int64_t SearchSpace::share(const GridShape& grid) const {
  return batch_share(run_->training.global_batch, batch_coordinates(grid));
}

/// The possible sizes, ascending. A free size needs no more padding than the grid: it divides the
/// share of a batch coordinate.
std::vector<std::int64_t> SearchSpace::micro_batch_sizes(const GridShape& grid) const {
  const std::int64_t local = share(grid), given = options_.micro_batch;
  std::vector<std::int64_t> sizes;
  for (std::int64_t size = 1; size <= local; ++size)
    if ((given > 0 ? size == given : local % size == 0) && size % run_->parallelism.chunks == 0)
      sizes.push_back(size);
  return sizes;
}

std::vector<std::int64_t> SearchSpace::useful_sizes(const GridShape& grid) const {
  std::vector<std::int64_t> sizes = micro_batch_sizes(grid);
  if (options_.micro_batch > 0 || grid.context == 1) return sizes;
  const std::vector<int> all = contexts(grid);
  std::erase_if(sizes, [&](std::int64_t size) {
    return std::ranges::any_of(all, [&](int fewer) {
      const std::int64_t times = grid.context / fewer;
      return fewer < grid.context && grid.context % fewer == 0 && size % times == 0 &&
             size / times % run_->parallelism.chunks == 0;
    });
  });
  return sizes;
}

std::vector<GridShape> SearchSpace::with_all_factors(GridShape grid) const {
  std::vector<GridShape> all;
  for (const int context : contexts(grid))
    for (const int experts : holders_of_experts(grid)) {
      grid.context = context;
      grid.experts = experts;
      all.push_back(grid);
    }
  return all;
}

/// Numbers of ranks that may share sequences. A free one is more than 1 for long sequences, or if
/// there are fewer of them than (z, data) coordinates.
std::vector<int> SearchSpace::contexts(const GridShape& grid) const {
  const int fixed = options_.fixed.context;
  const std::int64_t length = run_->training.seq_len;
  const bool useful =
      length >= kLong || run_->training.global_batch < std::int64_t{grid.z} * grid.data;
  std::vector<int> all;
  for (const int context : divisors_of(grid.z)) {
    const bool chosen = fixed > 0 ? context == fixed : context == 1 || useful;
    if (chosen && (context == 1 || trouble_of_cut(length, context).empty())) all.push_back(context);
  }
  return all;
}

std::vector<int> SearchSpace::holders_of_experts(const GridShape& grid) const {
  const std::int64_t experts = std::max<std::int64_t>(run_->model.experts, 1);
  std::vector<int> all = divisors_of(static_cast<int>(std::gcd<std::int64_t>(grid.z, experts)));
  if (const int fixed = options_.fixed.experts; fixed > 0)
    std::erase_if(all, [&](int holders) { return holders != fixed; });
  return all;
}

bool allows(Strategy strategy, const GridShape& grid, int devices_per_node) {
  if (strategy == Strategy::grid_4d) return true;
  const bool x = strategy == Strategy::megatron ? devices_per_node % grid.x == 0 : grid.x == 1;
  return x && grid.y == 1 && (grid.data == 1 || strategy != Strategy::fsdp);
}

}  // namespace axonn
