#include "axonn/network/nn/experts/routing.h"

#include <algorithm>
#include <cstring>
#include <memory>
#include <string>

#include "axonn/foundation/base/check.h"
#include "axonn/ranks/comm/texts.h"
#include "axonn/ranks/parallel/scheduling.h"

namespace axonn {

void RoutingRecord::put(std::int64_t layer, std::int64_t first, std::int64_t per_row,
                        std::vector<std::int32_t> ids) {
  const std::lock_guard lock(mutex_);
  runs_[{layer, first}] = {per_row, std::move(ids)};
}

void RoutingRecord::get(std::int64_t layer, std::int64_t first, std::int64_t per_row,
                        std::span<std::int32_t> ids) const {
  const std::lock_guard lock(mutex_);
  while (!ids.empty()) {
    auto run = runs_.upper_bound({layer, first});
    const bool any = run != runs_.begin() && (--run)->first.first == layer;
    const std::int64_t skipped = any ? (first - run->first.second) * per_row : 0;
    AXONN_CHECK(any && skipped < std::ssize(run->second.ids), "replayed routing: row ", first,
                " of layer ", layer, " was not recorded");
    AXONN_CHECK(run->second.per_row == per_row, "replayed routing: recorded with ",
                run->second.per_row, " experts per token, wanted ", per_row);
    const auto count =
        std::min<std::int64_t>(std::ssize(ids), std::ssize(run->second.ids) - skipped);
    std::copy_n(run->second.ids.begin() + skipped, count, ids.begin());
    ids = ids.subspan(count);
    first += count / per_row;
  }
}

void RoutingRecord::share(Communicator& world) {
  // Each run as its layer, first row, experts per row and number of ids, then the ids.
  std::vector<std::int64_t> mine;
  for (const auto& [at, run] : runs_) {
    mine.insert(mine.end(), {at.first, at.second, run.per_row, std::ssize(run.ids)});
    mine.insert(mine.end(), run.ids.begin(), run.ids.end());
  }
  const std::string text(reinterpret_cast<const char*>(mine.data()), mine.size() * 8);
  for (int rank = 0; rank < world.size(); ++rank) {
    const std::string of_rank = broadcast_text(world, rank == world.rank() ? text : "", rank);
    std::vector<std::int64_t> all(of_rank.size() / 8);
    std::memcpy(all.data(), of_rank.data(), of_rank.size());
    for (auto at = all.begin(); at != all.end(); at += 4 + at[3])
      put(at[0], at[1], at[2], {at + 4, at + 4 + at[3]});
  }
}

void RoutingRecord::clear() {
  const std::lock_guard lock(mutex_);
  runs_.clear();
}

namespace {

constexpr std::string_view kLabel = "routing";

/// The number of the first of a chunk's rows on this rank among those of its coordinate.
std::int64_t first_here(const Context& ctx, const Chunk& inp) {
  return inp.placement.rows.has(Axis::x) ? ctx.grid.coord(Axis::x) * inp.value.rows() : 0;
}

/// Calls f(row, count, number) for runs of this rank's rows [row, row + count) of a chunk, of which
/// the first has that number among all of the training.
void for_each_run_here(const Context& ctx, const Chunk& inp, auto f) {
  const std::int64_t begin = first_here(ctx, inp), end = begin + inp.value.rows();
  inp.rows.for_each_run([&](std::int64_t row, std::int64_t count, std::int64_t number) {
    const std::int64_t from = std::max(row, begin), to = std::min(row + count, end);
    if (from < to) f(from - begin, to - from, number + from - row);
  });
}

/// Null from a device without values, on which only the copy counts.
std::unique_ptr<const std::int32_t[]> on_host(const Context& ctx, const Tensor& ids) {
  std::unique_ptr<std::int32_t[]> host;
  if (ctx.device().keeps_values())
    host = std::make_unique_for_overwrite<std::int32_t[]>(ids.count());
  ctx.device().copy_to_host(host.get(), ids.view().data, ids.bytes());
  return host;
}

}  // namespace

void Routing::set_records(RoutingRecord* replay, RoutingRecord* record) {
  options_.replay = replay;
  options_.record = record;
}

void Routing::begin_step(std::int64_t rows, std::int64_t end_row, double loss_scale) {
  rows_ = rows;
  end_row_ = end_row;
  loss_scale_ = loss_scale;
  sums_ = {.counts = std::vector<double>(options_.layers * options_.experts)};
}

void Routing::begin_pass(const Context& ctx, const Rows& rows) {
  pass_ = rows;
  rows_cut_ = false;
  first_run_.clear();
  kept_.clear();
  counts_ = ctx.zeros(options_.layers * rows.sequences, width(), DType::f64);
  balance_ = Tensor();
}

/// The coordinate of a chunk's first sequence among those of the pass.
std::int64_t Routing::first_sequence(const Rows& rows) const {
  return (rows.first - pass_.first) / pass_.whole();
}

bool Routing::recall(const Context& ctx, std::int64_t layer, const Chunk& inp,
                     const Tensor& ids) const {
  const bool again = ctx.scheduling().scope.rerun == Rerun::second_run;
  const RoutingRecord* from = again ? &first_run_ : options_.replay;
  if (!from || !ctx.device().keeps_values()) return false;
  std::vector<std::int32_t> host(ids.count());
  const std::int64_t k = options_.per_row;
  // Of padding, whose choices change nothing, a replay takes any k experts.
  for (std::int64_t i = 0; i < std::ssize(host); ++i) host[i] = static_cast<std::int32_t>(i % k);
  for_each_run_here(ctx, inp, [&](std::int64_t row, std::int64_t count, std::int64_t number) {
    if (!again) count = std::min(count, end_row_ - number);
    if (count > 0) from->get(layer, number, k, std::span(host).subspan(row * k, count * k));
  });
  ctx.device().copy_from_host(ids.view().data, host.data(), ids.bytes());
  return true;
}

void Routing::note(const Context& ctx, std::int64_t layer, const Chunk& inp, const Choice& choice) {
  const Rerun rerun = ctx.scheduling().scope.rerun;
  if (rerun == Rerun::second_run) return;
  rows_cut_ = inp.placement.rows.has(Axis::x);
  const std::int64_t sequences = inp.rows.sequences,
                     at = layer * pass_.sequences + first_sequence(inp.rows);
  ctx.backend.run(ops::RouteCounts{.out = counts_.view().row_range(at, sequences),
                                   .ids = choice.ids.view(),
                                   .scores = choice.scores.view(),
                                   .log_sums = choice.log_sums.view(),
                                   .score_sums = choice.score_sums.view(),
                                   .counted = of_rows_here(ctx, inp, inp.rows.counted),
                                   .first_row = first_here(ctx, inp),
                                   .positions = inp.rows.positions});
  const bool repeats = rerun == Rerun::first_run;
  if (!repeats && !options_.record) return;
  const auto host = on_host(ctx, choice.ids);
  if (!host) return;
  const std::int64_t k = options_.per_row;
  for_each_run_here(ctx, inp, [&](std::int64_t row, std::int64_t count, std::int64_t number) {
    const std::int32_t* const begin = host.get() + row * k;
    if (repeats) first_run_.put(layer, number, k, {begin, begin + count * k});
    const std::int64_t real = std::min(count, end_row_ - number);
    if (options_.record && real > 0)
      options_.record->put(layer, number, k, {begin, begin + real * k});
  });
}

namespace {

/// Sums values of each coordinate over all coordinates; afterwards all ranks have the sums.
void sum_over_places(const Context& ctx, std::vector<double>& values) {
  if (context_part(ctx.grid.shape(), ctx.grid.coords()) != 0) std::ranges::fill(values, 0);
  Tensor sums = ctx.empty(1, std::ssize(values), DType::f64);
  ctx.device().copy_from_host(sums.view().data, values.data(), sums.bytes());
  for (Axis axis : {Axis::z, Axis::data})
    sums.set_pending(ctx.grid.along(axis).all_reduce(buffer_of(sums.view()), kLabel));
  ctx.device().copy_to_host(values.data(), sums.view().data, sums.bytes());
}

}  // namespace

/// Adds the gradient of the balance loss of one scope to `to` (E), and returns its loss. counts:
/// (2E + 2), see ops::RouteCounts.
double Routing::balance_scope(std::span<const double> counts, std::span<float> to) const {
  const auto E = static_cast<std::size_t>(options_.experts);
  const bool joined = options_.balance.scope == BalanceScope::hugging_face;
  const auto N = static_cast<double>(rows_), layers = static_cast<double>(options_.layers),
             k = static_cast<double>(options_.per_row);
  const double rows = counts[2 * E + 1];  // of a joined scope: of all layers
  if (rows == 0) return 0;
  const double factor = static_cast<double>(E) * (joined ? k : 1) / (layers * N);
  double loss = 0;
  for (std::size_t i = 0; i < E; ++i) {
    const double f = counts[i] / (k * rows);
    loss += factor * f * counts[E + i];
    to[i] = static_cast<float>(loss_scale_ * (options_.balance.weight * factor * f));
  }
  return loss;
}

void Routing::finish_pass(const Context& ctx) {
  const std::int64_t E = options_.experts, rows = counts_.rows();
  const auto sum_counts = [&](Communicator& group) {
    counts_.set_pending(group.all_reduce(buffer_of(counts_.view()), kLabel));
  };
  if (rows_cut_) sum_counts(ctx.grid.along(Axis::x));
  if (ctx.grid.shape().context > 1) sum_counts(ctx.grid.context());
  std::vector<double> counts(counts_.count());
  ctx.device().copy_to_host(counts.data(), counts_.view().data, counts_.bytes());
  if (rows_ == 0) return;
  if (ctx.grid.leads_batch_coordinate()) count(counts);
  std::vector<float> gradients(rows * E);
  const double loss = options_.balance.scope == BalanceScope::sequence
                          ? balance_sequences(counts, gradients)
                          : balance_batch(ctx, counts, gradients);
  const bool wide = options_.balance.scope != BalanceScope::sequence;
  if (ctx.grid.leads_batch_coordinate() && (!wide || ctx.grid.batch_coordinate() == 0))
    sums_.balance += loss;
  if (options_.balance.weight == 0) return;
  balance_ = ctx.empty(rows, E, DType::f32);
  ctx.device().copy_from_host(balance_.view().data, gradients.data(), balance_.bytes());
}

void Routing::keep(const Context& ctx, std::int64_t layer, const Chunk& inp, const Tensor& rows) {
  const Scheduling& scheduling = ctx.scheduling();
  if (scheduling.run.keep_dispatch && scheduling.scope.rerun == Rerun::first_run)
    kept_[{layer, inp.rows.first}] = rows;
}

Tensor Routing::take_kept(const Context& ctx, std::int64_t layer, const Chunk& inp) {
  if (ctx.scheduling().scope.rerun != Rerun::second_run) return {};
  const auto found = kept_.find({layer, inp.rows.first});
  return found == kept_.end() ? Tensor() : std::move(kept_.extract(found).mapped());
}

/// Adds the counts (L' · S, 2E + 2) of a coordinate to the step's.
void Routing::count(std::span<const double> counts) {
  const std::int64_t E = options_.experts, w = width(), S = pass_.sequences;
  for (std::int64_t row = 0; row < options_.layers * S; ++row) {
    for (std::int64_t i = 0; i < E; ++i) sums_.counts[row / S * E + i] += counts[row * w + i];
    sums_.z += counts[row * w + 2 * E] / static_cast<double>(options_.layers * rows_);
  }
}

/// The balance loss with a scope for each sequence, and its gradients (L' · S, E).
double Routing::balance_sequences(std::span<const double> counts, std::span<float> gradients) {
  const std::int64_t E = options_.experts, w = width();
  double loss = 0;
  for (std::int64_t row = 0; row < options_.layers * pass_.sequences; ++row)
    loss += balance_scope(counts.subspan(row * w, w), gradients.subspan(row * E, E));
  return loss;
}

/// The same with a scope for each layer of all coordinates, or for all layers together.
double Routing::balance_batch(const Context& ctx, std::span<const double> counts,
                              std::span<float> gradients) {
  const std::int64_t E = options_.experts, w = width(), S = pass_.sequences;
  const bool joined = options_.balance.scope == BalanceScope::hugging_face;
  const std::int64_t scopes = joined ? 1 : options_.layers;
  std::vector<double> sums(scopes * w);
  for (std::int64_t i = 0; i < std::ssize(counts); ++i)
    sums[(joined ? 0 : i / w / S) * w + i % w] += counts[i];
  sum_over_places(ctx, sums);
  std::vector<float> of_scopes(scopes * E);
  double loss = 0;
  for (std::int64_t scope = 0; scope < scopes; ++scope)
    loss += balance_scope(std::span(sums).subspan(scope * w, w),
                          std::span(of_scopes).subspan(scope * E, E));
  for (std::int64_t row = 0; row < options_.layers * S; ++row)
    std::copy_n(of_scopes.begin() + (joined ? 0 : row / S) * E, E, gradients.begin() + row * E);
  return loss;
}

View Routing::balance(std::int64_t layer, const Rows& rows) const {
  if (balance_.empty()) return {};
  return balance_.view().row_range(layer * pass_.sequences + first_sequence(rows), rows.sequences);
}

float Routing::z_factor() const {
  if (rows_ == 0) return 0;
  return static_cast<float>(
      loss_scale_ *
      (options_.balance.z / static_cast<double>(options_.layers) / static_cast<double>(rows_)));
}

}  // namespace axonn
