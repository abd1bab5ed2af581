#include "axonn/run/train/corruption.h"

#include <algorithm>
#include <limits>
#include <map>

#include <fmt/format.h>

#include "axonn/data/corpus/batches.h"
#include "axonn/foundation/base/check.h"
#include "axonn/foundation/base/hash.h"
#include "axonn/ranks/comm/texts.h"
#include "axonn/run/optim/small_state.h"
#include "axonn/run/train/watching_backend.h"

namespace axonn {

namespace {

/// Hashes values in the device's memory.
class Checksum {
 public:
  explicit Checksum(const Context& ctx) : ctx_(ctx) {}

  void add(const View& view) {
    if (view.contiguous()) return add_run(view);
    const Tensor packed = ctx_.empty(view.rows, view.cols, view.dtype);
    ctx_.backend.run(ops::Cast{packed.view(), view});
    add_run(packed.view());
  }
  /// Returns the checksum of what was added, and begins another.
  std::int64_t finish() {
    const std::vector<std::uint64_t> pieces = hasher_.finish();
    return static_cast<std::int64_t>(xxh3(std::as_bytes(std::span(pieces))));
  }

 private:
  void add_run(const View& view) {
    const auto* bytes = static_cast<const std::byte*>(view.data);
    const std::int64_t count = view.count() * bytes_of(view.dtype);
    if (!ctx_.device().holds(bytes))
      return hasher_.append({bytes, static_cast<std::size_t>(count)});
    for (std::int64_t at = 0; at < count; at += kPieceBytes) {
      host_.resize(static_cast<std::size_t>(std::min(kPieceBytes, count - at)));
      ctx_.device().copy_to_host(host_.data(), bytes + at, std::ssize(host_));
      hasher_.append(host_);
    }
  }

  Context ctx_;
  PieceHasher hasher_;
  std::vector<std::byte> host_;
};

/// Something that ranks hold or compute alike along some axes.
struct Replica {
  std::string name;
  AxisSet axes;
  std::int64_t checksum = 0;
  std::int64_t when = 0;  ///< grows in the order of computation; 0: there is none
};

/// How strongly a rank is suspected. The one with the smallest `when` comes first, then the one
/// with the largest `weight`.
struct Suspicion {
  std::int64_t when = std::numeric_limits<std::int64_t>::max();
  std::int64_t weight = 0;
  std::string what = {};
};

constexpr std::int64_t kOneOfTwo = 1, kMinority = 4, kCertain = 100;

/// Compares the replicas. Collective.
Suspicion suspicion_of(const Grid& grid, const std::vector<Replica>& replicas) {
  std::vector<std::int64_t> mine;
  for (const Replica& replica : replicas) mine.push_back(replica.checksum);
  Suspicion found;
  for (const Axis axis : kAxes) {
    if (std::ranges::none_of(replicas, [&](auto& replica) { return replica.axes.has(axis); }))
      continue;
    // After a fault, a router may choose other experts, which do other operations.
    std::int64_t n = std::ssize(replicas);
    Communicator& along = grid.along(axis);
    along.all_reduce(buffer(std::span(&n, 1)), "verify", ReduceOp::min).wait();
    const std::size_t extent = grid.extent(axis);
    std::vector<std::int64_t> all(extent * n);
    along.all_gather(buffer(std::span(all)), buffer(std::span(mine).first(n)), "verify").wait();
    for (std::int64_t i = 0; i < n; ++i) {
      if (!replicas[i].axes.has(axis)) continue;
      std::map<std::int64_t, int> votes;
      for (std::size_t r = 0; r < extent; ++r) ++votes[all[r * n + i]];
      const int own = votes.at(mine[i]);
      const bool minority = std::ranges::any_of(votes, [&](auto&v) { return v.second > own; }),
                 majority = std::ranges::none_of(
                     votes, [&](auto&v) { return v.first != mine[i] && v.second >= own; });
      if (majority) continue;
      const std::int64_t when = replicas[i].when;
      if (when > found.when) break;
      if (when < found.when) found = {.when = when};
      found.weight += minority ? kMinority : kOneOfTwo;
      if (found.what.empty())
        found.what = concat(replicas[i].name, " from other ranks on ", name_of(axis));
      break;
    }
  }
  return found;
}

/// The ranks that are suspected most, on all ranks; "" if none is. Collective.
std::string verdict(const Grid& grid, const Suspicion& mine) {
  Communicator& world = grid.world();
  std::vector<std::int64_t> here{mine.when, mine.weight};
  std::vector<std::int64_t> all(here.size() * world.size());
  world.all_gather(buffer(std::span(all)), buffer(std::span(here)), "verify").wait();
  std::pair<std::int64_t, std::int64_t> first{std::numeric_limits<std::int64_t>::max(), 0};
  std::vector<int> ranks;
  for (int r = 0; r < world.size(); ++r) {
    const std::pair<std::int64_t, std::int64_t> theirs{all[2 * r], -all[2 * r + 1]};
    if (theirs.second == 0 || theirs > first) continue;
    if (theirs < first) ranks.clear();
    first = theirs;
    ranks.push_back(r);
  }
  if (ranks.empty()) return {};
  const std::string what = broadcast_text(world, mine.what, ranks.front());
  std::string names;
  for (const int r : ranks) {
    const auto [x, y, z, data] = coords_of(grid.shape(), r).at_axis;
    names += fmt::format("{}rank {} (x {}, y {}, z {}, data {})", names.empty() ? "" : " or ", r, x,
                         y, z, data);
  }
  return concat(names, " differs in ", what);
}

/// The values that other ranks hold alike: first the compute copy of a block, then the master copy
/// and optimizer state of its parameters.
std::vector<Replica> state_replicas(Training& training) {
  const Grid& grid = training.model.grid();
  AxisSet single;
  for (const Axis axis : kAxes)
    if (grid.extent(axis) == 1) single = single | axis;
  Checksum checksum(training.model.context());
  std::vector<Replica> replicas;
  const auto add = [&](const std::string& name, AxisSet axes, const auto& each_view) {
    axes = axes.without(single);
    if (axes == AxisSet()) return;
    each_view([&](const View& view) { checksum.add(view); });
    replicas.push_back({name, axes, checksum.finish()});
  };
  for (const ParameterGroup* group : training.model.model().groups())
    add("the weights of " + group->name(), Axis::data,
        [&](const auto& take) { take(group->shard()); });
  const auto& trained = training.optimizer.groups();
  for (std::size_t i = 0; i < trained.size(); ++i) {
    const auto add_state = [&](const std::string& kind, const View& values,
                               const std::vector<NamedSlice>& slices) {
      for (const auto& parameter : trained[i]->parameters()) {
        const ParameterSpec& spec = parameter->spec();
        AxisSet axes = {Axis::x, Axis::y};
        for (const auto& cut : {spec.layout.row_axis, spec.layout.col_axis})
          if (cut) axes = axes.without(*cut);
        add(concat(kind, " of ", spec.name), axes, [&](const auto& take) {
          for (const auto& [of, slice] : slices)
            if (of == &spec) take(values.col_range(slice.offset, slice.count()));
        });
      }
    };
    for (const auto& [kind, data] : training.optimizer.buffers(i))
      add_state(kind, data, trained[i]->piece_slices());
    const SmallState* const small = training.optimizer.small(i);
    const std::vector<std::string> names = training.optimizer.state_names();
    for (std::size_t k = 0; small && k < small->size(); ++k) {
      add_state(names[k], (*small)[k].small.view(), small->layout().slices(true));
      add_state(names[k], (*small)[k].full.view(), small->layout().slices(false));
    }
  }
  return replicas;
}

/// The first micro-batch of the first (z, data) coordinate, on all ranks. Collective.
MicroBatch common_micro_batch(Training& training, std::int64_t step) {
  MicroBatch micro = training.batches->at(step)->micro_batches.front();
  auto& [ids, targets, positions, starts, branches] = micro.rows;
  for (const Axis axis : {Axis::z, Axis::data})
    for (auto* values : {&ids, &targets, &positions, &starts, &branches})
      if (!values->empty())
        training.model.grid().along(axis).broadcast(buffer(std::span(*values)), 0, "verify").wait();
  micro.first = 0;
  return micro;
}

/// The results of the forward pass of a micro-batch.
std::vector<Replica> result_replicas(Training& training, const MicroBatch& micro) {
  const LoadedModel& model = training.model;
  const Context ctx = model.context();
  const Grid& grid = model.grid();
  const bool alike =
      !grid.world().on_streams() || (grid.extent(Axis::x) <= 2 && grid.extent(Axis::y) <= 2);
  AxisSet axes = alike ? AxisSet{Axis::z, Axis::data} : AxisSet{};
  // Ranks along z that have other positions, or other experts.
  if (grid.shape().context > 1 || grid.shape().experts > 1) axes = axes.without(Axis::z);
  Checksum checksum(ctx);
  std::vector<Replica> results;
  WatchingBackend watch(model.backend(), [&](const WatchingBackend::Operation& operation) {
    checksum.add(operation.result);
    results.push_back({fmt::format("the result of {} in layer {}", operation.name, operation.layer),
                       axes, checksum.finish(), operation.number});
  });
  training.step.forward(model.context_on(watch), make_tokens(ctx, micro));
  return results;
}

}  // namespace

std::string find_corruption(Training& training, std::int64_t step) {
  const Grid& grid = training.model.grid();
  const std::string state = verdict(grid, suspicion_of(grid, state_replicas(training)));
  if (!state.empty()) return state;
  const MicroBatch micro = common_micro_batch(training, step);
  const std::vector<Replica> first = result_replicas(training, micro),
                             second = result_replicas(training, micro);
  Suspicion mine = suspicion_of(grid, first);
  for (std::size_t i = 0; i < std::min(first.size(), second.size()); ++i) {
    if (first[i].checksum == second[i].checksum) continue;
    if (first[i].when <= mine.when)
      mine = {first[i].when, kCertain, concat(first[i].name, " when it computes it twice")};
    break;
  }
  return verdict(grid, mine);
}

}  // namespace axonn
