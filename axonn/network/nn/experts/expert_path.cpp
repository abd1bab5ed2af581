#include "axonn/network/nn/experts/expert_path.h"

#include <cmath>
#include <numeric>

#include "axonn/network/nn/experts/routing.h"
#include "axonn/ranks/parallel/scheduling.h"

namespace axonn {

namespace {

/// The rows that `ranks` ranks have for each of E experts, rank by rank. A device without values
/// counts them as even.
std::vector<std::int64_t> counts_on_host(const Context& ctx, const Tensor& counts, int ranks,
                                         std::int64_t routed_rows) {
  const std::int64_t E = counts.count() / ranks;
  if (!ctx.device().keeps_values()) {
    std::vector<std::int64_t> even(counts.count(), routed_rows / E);
    for (auto of_rank = even.begin(); of_rank != even.end(); of_rank += E)
      for (std::int64_t expert = 0; expert < routed_rows % E; ++expert) ++of_rank[expert];
    return even;
  }
  std::vector<std::int64_t> all(counts.count());
  std::vector<std::int32_t> host(counts.count());
  ctx.device().copy_to_host(host.data(), counts.view().data, counts.bytes());
  std::ranges::copy(host, all.begin());
  return all;
}

/// All experts are here.
class OneHolder final : public ExpertPath {
 public:
  OneHolder(const Context& ctx, const Placement& placement, std::vector<std::int64_t> counts)
      : ctx_(ctx), cut_(cut_over(placement, Axis::x)) {
    rows_of_ = std::move(counts);
  }

  Tensor whole(const Tensor& rows) const override {
    return Gather(ctx_, rows, Axis::x, cut_).whole(ctx_, {});
  }
  Tensor exchange(const Tensor& routed) const override { return routed; }
  Tensor gather(const Tensor& rows) const override { return rows; }
  Tensor back(const Tensor& results) const override { return results; }
  bool exchanges() const override { return false; }
  Tensor sum(const Tensor& rows) const override {
    Tensor sum = rows;
    sum_over(ctx_, sum, Axis::x, cut_, {});
    return sum;
  }

 private:
  Context ctx_;
  Cut cut_;
};

/// Each of the ranks that share experts holds a part of them.
class SeveralHolders final : public ExpertPath {
 public:
  SeveralHolders(const Context& ctx, const Placement& placement, const Tensor& counts,
                 std::int64_t routed_rows)
      : ctx_(ctx), cut_(cut_over(placement, Axis::x)), routed_rows_(routed_rows) {
    Communicator& group = ctx.grid.experts();
    const int ranks = group.size(), here = group.rank();
    Tensor all = ctx.empty(ranks, counts.count(), DType::i32);
    all.set_pending(group.all_gather(buffer_of(all.raw_view()), buffer_of(counts.view()), label()));
    const std::vector<std::int64_t> rows = counts_on_host(ctx, all, ranks, routed_rows);
    const std::int64_t E = counts.count(), held = E / ranks;
    const auto of = [&](int rank, std::int64_t expert) { return rows[rank * E + expert]; };
    // A plan's load comes from the other ranks.
    const Routing* routing = ctx.find<Routing>();
    const bool planned = !ctx.device().keeps_values() && routing;
    const double load = planned ? routing->options().balance.expected_load : 1;
    const double factor = (load * ranks - 1) / (ranks - 1);
    const auto got = [&](int rank, std::int64_t i) {
      const std::int64_t count = of(rank, here * held + i);
      return rank == here || !planned ? count : std::llround(factor * static_cast<double>(count));
    };
    rows_of_.resize(held);
    to_.resize(ranks);
    from_.resize(ranks);
    for (int r = 0; r < ranks; ++r)
      for (std::int64_t i = 0; i < held; ++i) {
        to_[r] += of(here, r * held + i);
        from_[r] += got(r, i);
        rows_of_[i] += got(r, i);
      }
    if (this->rows() == 0) return;
    if (!ctx.device().keeps_values()) {
      places_ = ctx.empty(this->rows(), 1, DType::i32);
      return;
    }
    // Rows come by rank, then expert; they are wanted by expert, then rank.
    std::vector<std::int32_t> places;
    places.reserve(this->rows());
    std::vector<std::int64_t> next(held);  // place of the next row of each expert
    std::exclusive_scan(rows_of_.begin(), rows_of_.end(), next.begin(), std::int64_t{0});
    for (int r = 0; r < ranks; ++r)
      for (std::int64_t i = 0; i < held; ++i)
        for (std::int64_t n = got(r, i); n > 0; --n)
          places.push_back(static_cast<std::int32_t>(next[i]++));
    places_ = ctx.on_device(places).reshape(std::ssize(places), 1);
  }

  Tensor whole(const Tensor& rows) const override {
    const Communicator& x = ctx_.grid.along(Axis::x);
    const std::int64_t W = rows.cols() / x.size();
    if (x.size() == 1) return rows;
    if (cut_ == Cut::same) {
      const Tensor mine = ctx_.empty(rows.rows(), W, rows.dtype());
      ctx_.backend.run(ops::Cast{mine.view(), rows.view().col_range(x.rank() * W, W)});
      return mine;
    }
    const Tensor pieces = ctx_.empty(x.size() * rows.rows(), W, rows.dtype());
    for (int i = 0; i < x.size(); ++i)
      ctx_.backend.run(ops::Cast{pieces.view().row_range(i * rows.rows(), rows.rows()),
                                 rows.view().col_range(i * W, W)});
    return swap(pieces);
  }

  Tensor exchange(const Tensor& routed) const override {
    const Tensor got = send(routed, to_, from_, rows());
    if (rows() == 0) return got;
    Tensor ordered = ctx_.like(got);
    ctx_.backend.run(ops::SpreadRows{ordered.view(), got.view(), places_.view()});
    return ordered;
  }

  Tensor gather(const Tensor& rows) const override {
    const std::int64_t C = rows.cols() * ctx_.grid.extent(Axis::x);
    if (rows.rows() == 0) return ctx_.empty(0, C, rows.dtype());
    return Gather(ctx_, rows, Axis::x, Cut::columns).whole(ctx_, {C});
  }

  bool exchanges() const override { return true; }

  Tensor back(const Tensor& results) const override {
    const std::int64_t m = rows(), W = results.cols() / ctx_.grid.extent(Axis::x);
    Tensor sent = ctx_.empty(m, W, results.dtype());
    if (m > 0) {
      Tensor sums = results;
      sum_over(ctx_, sums, Axis::x, Cut::columns, {results.cols()});
      ctx_.backend.run(ops::CombineRows{sent.view(), sums.view(), places_.view()});
    }
    return send(sent, from_, to_, routed_rows_);
  }

  Tensor sum(const Tensor& rows) const override {
    const Communicator& x = ctx_.grid.along(Axis::x);
    const std::int64_t C = rows.cols() * x.size();
    if (x.size() == 1) return rows;
    if (cut_ == Cut::same) return Gather(ctx_, rows, Axis::x, Cut::columns).whole(ctx_, {C});
    const Tensor pieces = swap(rows);
    const std::int64_t r = rows.rows() / x.size(), W = rows.cols();
    const Tensor mine = ctx_.empty(r, C, rows.dtype());
    for (int i = 0; i < x.size(); ++i)
      ctx_.backend.run(
          ops::Cast{mine.view().col_range(i * W, W), pieces.view().row_range(i * r, r)});
    return mine;
  }

 private:
  std::string_view label() const { return ctx_.scheduling().scope.label; }

  /// Exchanges equal runs of rows over x.
  Tensor swap(const Tensor& pieces) const {
    Tensor swapped = ctx_.like(pieces);
    Work work = ctx_.grid.along(Axis::x).all_to_all(buffer_of(swapped.raw_view()),
                                                    buffer_of(pieces.view()), label());
    work.keep(pieces.owner());
    swapped.set_pending(std::move(work));
    return swapped;
  }

  /// Sends to[r] rows to rank r of those that share experts, and gets from[r], `count` together.
  Tensor send(const Tensor& rows, const std::vector<std::int64_t>& to,
              const std::vector<std::int64_t>& from, std::int64_t count) const {
    const auto elements = [&](std::vector<std::int64_t> of) {
      for (std::int64_t& each : of) each *= rows.cols();
      return of;
    };
    Tensor got = ctx_.empty(count, rows.cols(), rows.dtype());
    const std::vector<std::int64_t> gives = elements(to), gets = elements(from);
    Work work = ctx_.grid.experts().all_to_all(buffer_of(got.raw_view()), buffer_of(rows.view()),
                                               {.to = gives, .from = gets}, label());
    work.keep(rows.owner());
    got.set_pending(std::move(work));
    return got;
  }

  Context ctx_;
  Cut cut_;
  std::int64_t routed_rows_;             // n
  std::vector<std::int64_t> to_, from_;  // rows for, and from, each rank that shares experts
  Tensor places_;  // (m, 1) i32: of the rows as they come, their places by expert; empty if m is 0
};

}  // namespace

std::int64_t ExpertPath::rows() const {
  return std::accumulate(rows_of_.begin(), rows_of_.end(), std::int64_t{0});
}

std::unique_ptr<ExpertPath> make_expert_path(const Context& ctx, const Placement& placement,
                                             const Tensor& counts, std::int64_t routed_rows) {
  if (ctx.grid.shape().experts == 1)
    return std::make_unique<OneHolder>(ctx, placement, counts_on_host(ctx, counts, 1, routed_rows));
  return std::make_unique<SeveralHolders>(ctx, placement, counts, routed_rows);
}

}  // namespace axonn
