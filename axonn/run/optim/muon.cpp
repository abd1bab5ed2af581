#include "axonn/run/optim/muon.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <utility>

#include "axonn/ranks/parallel/scheduling.h"
#include "axonn/run/optim/adamw.h"
#include "axonn/run/optim/factors.h"

namespace axonn {

namespace {

/// A hidden matrix: rows [row, row + rows) of a parameter.
struct HiddenMatrix {
  std::size_t group = 0, parameter = 0;
  std::int64_t row = 0, rows = 0, cols = 0;

  /// Proportional to the flops of a Newton-Schulz step: 4 n²m + 2 n³, n the shorter side.
  double work() const {
    const auto n = static_cast<double>(std::min(rows, cols)),
               m = static_cast<double>(std::max(rows, cols));
    return n * n * (2 * m + n);
  }
  bool has(const Slice& slice) const { return slice.row >= row && slice.row < row + rows; }
};

/// A slice of a matrix in this rank's piece of a group.
struct HeldSlice {
  std::size_t group = 0;
  std::int64_t offset = 0, count = 0, decayed = 0;
  bool owned = false;
  int to = 0;         ///< the owner of the matrix
  double factor = 1;  ///< of the update
};

/// A slice of this rank's matrix on a rank that holds it.
struct RemoteSlice {
  int rank = 0;
  Slice slice;  ///< rows counted from the matrix's first
};

/// The work of one rank in a round.
struct MuonRound {
  std::vector<HeldSlice> held;        ///< by owner of the matrix
  std::vector<RemoteSlice> gathered;  ///< of the matrix that this rank owns, by rank
  std::int64_t rows = 0, cols = 0;    ///< of that matrix; 0: none
  /// Counts of each rank: of U from owners of elements to owners of matrices, of X to all holders.
  std::vector<std::int64_t> u_to, u_from, x_to, x_from;
};

std::int64_t sum_of(const std::vector<std::int64_t>& counts) {
  return std::accumulate(counts.begin(), counts.end(), std::int64_t{0});
}

std::vector<HiddenMatrix> hidden_matrices(std::span<ParameterGroup* const> groups) {
  std::vector<HiddenMatrix> all;
  for (std::size_t g = 0; g < groups.size(); ++g)
    for (std::size_t i = 0; i < groups[g]->parameters().size(); ++i) {
      const ParameterSpec& spec = groups[g]->parameters()[i]->spec();
      if (!spec.hidden) continue;
      std::vector<Segment> segments = spec.layout.segments;
      if (segments.empty()) segments = {{.rows = spec.layout.rows}};
      std::int64_t row = 0;
      for (const Segment& segment : segments) {
        all.push_back({g, i, row, segment.rows, spec.layout.cols});
        row += segment.rows;
      }
    }
  std::ranges::stable_sort(all, std::ranges::greater{}, &HiddenMatrix::work);
  return all;
}

/// Plans the rounds of one rank.
class MuonRounds {
 public:
  MuonRounds(const Grid& grid, std::span<ParameterGroup* const> groups, MuonScale scale)
      : grid_(grid), groups_(groups), scale_(scale) {
    for (const ParameterGroup* group : groups) {
      auto& of_parts = sizes_.emplace_back();
      for (int part = 0; part < grid.shape().experts; ++part) {
        Coords at;
        at.at_axis[static_cast<int>(Axis::z)] = part;
        of_parts.push_back(group->layout().sizes(at));
      }
    }
  }

  std::vector<MuonRound> rounds() {
    const int ranks = grid_.shape().ranks();
    std::vector<double> work(ranks, 0);
    std::vector<std::size_t> taken(ranks, 0);
    for (const HiddenMatrix& matrix : hidden_matrices(groups_)) {
      const int owner = static_cast<int>(std::ranges::min_element(work) - work.begin());
      work[owner] += matrix.work();
      add(matrix, owner, taken[owner]++);
    }
    rounds_.resize(std::ranges::max(taken));
    for (MuonRound& round : rounds_) count(round);
    return std::move(rounds_);
  }

 private:
  /// The slices of the matrix on the rank at these coordinates.
  std::vector<Slice> slices_at(const HiddenMatrix& matrix, const Coords& at) const {
    const FlatSizes& sizes = sizes_[matrix.group][experts_part(grid_.shape(), at)];
    std::vector<Slice> slices = groups_[matrix.group]->layout().slices(at, sizes, matrix.parameter);
    std::erase_if(slices, [&](const Slice& slice) { return !matrix.has(slice); });
    return slices;
  }

  void add(const HiddenMatrix& matrix, int owner, std::size_t number) {
    if (rounds_.size() <= number) rounds_.resize(number + 1);
    MuonRound& round = rounds_[number];
    const bool decays = groups_[matrix.group]->parameters()[matrix.parameter]->spec().decays;
    for (const Slice& slice : slices_at(matrix, grid_.coords()))
      round.held.push_back({.group = matrix.group,
                            .offset = slice.offset,
                            .count = slice.count(),
                            .decayed = decays ? slice.count() : 0,
                            .owned = slice.owned,
                            .to = owner,
                            .factor = muon_factor(scale_, matrix.rows, matrix.cols)});
    if (owner != grid_.world().rank()) return;
    round.rows = matrix.rows;
    round.cols = matrix.cols;
    for (int rank = 0; rank < grid_.shape().ranks(); ++rank)
      for (Slice slice : slices_at(matrix, coords_of(grid_.shape(), rank))) {
        slice.row -= matrix.row;
        round.gathered.push_back({rank, slice});
      }
  }

  void count(MuonRound& round) const {
    std::ranges::stable_sort(round.held, {}, &HeldSlice::to);
    for (auto* counts : {&round.u_to, &round.u_from, &round.x_to, &round.x_from})
      counts->resize(grid_.shape().ranks());
    for (const HeldSlice& held : round.held) {
      if (held.owned) round.u_to[held.to] += held.count;
      round.x_from[held.to] += held.count;
    }
    for (const auto& [rank, slice] : round.gathered) {
      if (slice.owned) round.u_from[rank] += slice.count();
      round.x_to[rank] += slice.count();
    }
  }

  const Grid& grid_;
  std::span<ParameterGroup* const> groups_;
  const MuonScale scale_;
  std::vector<std::vector<FlatSizes>> sizes_;  // of each group, by part of the experts
  std::vector<MuonRound> rounds_;
};

/// Calls f(block, part) for at most three rectangles that make up a slice: block is the rectangle
/// in the matrix, part the same elements in `flat`, where the slice begins.
void for_blocks(const Slice& slice, const View& matrix, const View& flat, const auto& f) {
  for_rectangles(slice, [&](const Rectangle& at) {
    f(matrix.row_range(at.row, at.rows).col_range(at.col, at.cols), at.in(flat));
  });
}

class Muon final : public Optimizer {
 public:
  explicit Muon(const OptimizerConfig& config)
      : config_(config), steps_(newton_schulz_steps(config)) {}

  std::vector<std::string> state_names() const override { return {"exp_avg", "exp_avg_sq"}; }
  std::vector<StateSign> state_signs() const override {
    return {StateSign::any, StateSign::non_negative};
  }

  void prepare(const Context& ctx, std::span<ParameterGroup* const> groups) override {
    groups_.assign(groups.begin(), groups.end());
    rounds_ = MuonRounds(ctx.grid, groups, config_.muon_scale).rounds();
  }

  void update_together(const Context& ctx, const Update& update,
                       std::span<const StateViews> states) const override {
    ctx.backend.mark(kMuonLayer);
    const bool ahead = ctx.scheduling().run.overlap.data;
    Tensor next;
    for (std::size_t i = 0; i < rounds_.size(); ++i) {
      if (next.empty()) next = send(ctx, rounds_[i], update, states);
      Tensor u = std::exchange(next, Tensor());
      if (ahead && i + 1 < rounds_.size()) next = send(ctx, rounds_[i + 1], update, states);
      apply(ctx, rounds_[i], update, orthogonal(ctx, rounds_[i], std::move(u)));
    }
  }

  void update(const Context& ctx, const ParameterGroup& group,
              const Update& update) const override {
    for (const auto& [spec, slice] : group.piece_slices())
      if (!spec->hidden)
        update_adamw(ctx, config_, group, update,
                     {.begin = slice.offset,
                      .count = slice.count(),
                      .decayed = spec->decays ? slice.count() : 0});
  }

 private:
  /// A tensor (1, n), also where n is 0: a rank without elements takes part in an exchange.
  static Tensor buffer_for(const Context& ctx, std::int64_t n, DType type) {
    return ctx.empty(1, std::max<std::int64_t>(n, 1), type, MemoryUse::optimizer);
  }

  /// Adds the gradients to the momentum of the round's matrices, and starts the way of U to the
  /// owners. Returns what arrives here.
  Tensor send(const Context& ctx, const MuonRound& round, const Update& update,
              std::span<const StateViews> states) const {
    const std::int64_t sent = sum_of(round.u_to), arriving = sum_of(round.u_from);
    // Behind the elements to send: U of elements that another rank sends, which only make momentum.
    const Tensor out = buffer_for(ctx, sum_of(round.x_from), DType::f32);
    std::int64_t at = 0, behind = sent;
    for (const HeldSlice& held : round.held) {
      std::int64_t& column = held.owned ? at : behind;
      const UpdateRange range{.begin = held.offset, .count = held.count};
      for_parts(ctx, states[held.group], range, 1, [&](const UpdateRange& piece, Views momentum) {
        ctx.backend.run(ops::Momentum{
            .momentum = momentum.front(),
            .gradient = groups_[held.group]->gradient().col_range(piece.begin, piece.count),
            .out = out.raw_view().col_range(column, piece.count),
            .scale = update.scale,
            .beta = static_cast<float>(config_.momentum),
            .nesterov = config_.nesterov});
        column += piece.count;
      });
    }
    Tensor u = buffer_for(ctx, arriving, DType::f32);
    Work work = ctx.grid.world().all_to_all(buffer_of(u.raw_view().col_range(0, arriving)),
                                            buffer_of(out.raw_view().col_range(0, sent)),
                                            {round.u_to, round.u_from}, "muon momentum");
    work.keep(out.owner());
    u.set_pending(std::move(work));
    return u;
  }

  /// Makes X of this rank's matrix from U, and exchanges all ranks' X. Returns the parts of X that
  /// this rank holds, in f32.
  Tensor orthogonal(const Context& ctx, const MuonRound& round, Tensor u) const {
    const std::int64_t sent = sum_of(round.x_to), arriving = sum_of(round.x_from);
    Tensor matrix = normalised(ctx, round, std::move(u));
    if (!matrix.empty()) orthogonalise(ctx, matrix, steps_);
    const Tensor out = buffer_for(ctx, sent, ctx.dtype);
    std::int64_t at = 0;
    for (const auto& [rank, slice] : round.gathered) {
      for_blocks(slice, matrix.view(), out.raw_view().col_range(at, slice.count()),
                 [&](const View& block, const View& part) {
                   ctx.backend.run(ops::Cast{part, block});
                 });
      at += slice.count();
    }
    matrix = Tensor();
    Tensor x = buffer_for(ctx, arriving, ctx.dtype);
    Work work = ctx.grid.world().all_to_all(buffer_of(x.raw_view().col_range(0, arriving)),
                                            buffer_of(out.raw_view().col_range(0, sent)),
                                            {round.x_to, round.x_from}, "muon update");
    work.keep(out.owner());
    x.set_pending(std::move(work));
    if (ctx.dtype == DType::f32) return x;
    const Tensor wide = buffer_for(ctx, arriving, DType::f32);
    ctx.backend.run(ops::Cast{wide.raw_view(), x.view()});
    return wide;
  }

  /// U of this rank's matrix over its norm; empty if the rank has none. The parts of the matrix lie
  /// one after another in u.
  static Tensor normalised(const Context& ctx, const MuonRound& round, Tensor u) {
    const View all = u.view();  // waits for the exchange, of which every rank is a part
    if (round.rows == 0) return {};
    const Tensor whole = ctx.empty(round.rows, round.cols, DType::f32, MemoryUse::optimizer);
    std::int64_t at = 0;
    for (const auto& [rank, slice] : round.gathered) {
      if (!slice.owned) continue;
      for_blocks(slice, whole.raw_view(), all.col_range(at, slice.count()),
                 [&](const View& block, const View& part) {
                   ctx.backend.run(ops::Cast{block, part});
                 });
      at += slice.count();
    }
    u = Tensor();
    const Tensor squares = ctx.zeros(1, 1, DType::f64, MemoryUse::optimizer);
    ctx.backend.run(ops::SquaredSum{squares.view(), whole.raw_view()});
    Tensor x = ctx.empty(round.rows, round.cols, ctx.dtype, MemoryUse::optimizer);
    ctx.backend.run(ops::DivideByNorm{x.raw_view(), whole.raw_view(), squares.view()});
    return x;
  }

  void apply(const Context& ctx, const MuonRound& round, const Update& update,
             const Tensor& x) const {
    const View all = x.view();
    std::int64_t at = 0;
    for (const HeldSlice& held : round.held) {
      const auto part = [&](const View& piece) { return piece.col_range(held.offset, held.count); };
      ctx.backend.run(
          ops::Sgd{.master = part(groups_[held.group]->master()),
                   .gradient = all.col_range(at, held.count),
                   .out = part(groups_[held.group]->piece_of_compute()),
                   .lr = static_cast<float>(update.lr * held.factor),
                   .weight_decay = static_cast<float>(config_.weight_decay / held.factor),
                   .decayed = held.decayed});
      at += held.count;
    }
  }

  OptimizerConfig config_;
  NewtonSchulzSteps steps_;
  std::vector<const ParameterGroup*> groups_;
  std::vector<MuonRound> rounds_;
};

}  // namespace

std::unique_ptr<Optimizer> make_muon(const OptimizerConfig& config) {
  return std::make_unique<Muon>(config);
}

double muon_factor(MuonScale scale, std::int64_t rows, std::int64_t cols) {
  // A random orthogonal matrix has elements of size 1 / sqrt(longer side); AdamW's updates of
  // typical gradients have 0.2 to 0.4.
  if (scale == MuonScale::rms) return 0.2 * std::sqrt(static_cast<double>(std::max(rows, cols)));
  return std::sqrt(std::max(1.0, static_cast<double>(rows) / static_cast<double>(cols)));
}

NewtonSchulzSteps newton_schulz_steps(const OptimizerConfig& config) {
  NewtonSchulzSteps steps{{3.4445F, -4.7750F, 2.0315F}};
  if (config.muon_coefficients == MuonCoefficients::schedule)
    steps = {{4.0848F, -6.8946F, 2.9270F},
             {3.9505F, -6.3029F, 2.6377F},
             {3.7418F, -5.5913F, 2.3037F},
             {2.8769F, -3.1427F, 1.2046F},
             {2.8366F, -3.0525F, 1.2012F}};
  // Steps beyond the schedule repeat its last.
  steps.resize(static_cast<std::size_t>(config.muon_steps), steps.back());
  return steps;
}

void orthogonalise(const Context& ctx, const Tensor& x, const NewtonSchulzSteps& steps) {
  const bool tall = x.rows() > x.cols();
  const std::int64_t n = std::min(x.rows(), x.cols());
  const auto like_x = [&](std::int64_t rows, std::int64_t cols) {
    return ctx.empty(rows, cols, x.dtype(), x.use());
  };
  const Tensor gram = like_x(n, n), polynomial = like_x(n, n), product = like_x(x.rows(), x.cols());
  const View X = x.view(), A = gram.view(), P = polynomial.view(), Y = product.view();
  for (const auto& [a, b, c] : steps) {
    ctx.backend.matmul({.out = A, .a = X, .b = X, .a_transposed = tall, .b_transposed = !tall});
    ctx.backend.matmul({.out = P, .a = A, .b = A});
    ctx.backend.run(ops::WeightedSum{.out = P, .a = A, .b = P, .alpha = b, .beta = c});
    ctx.backend.matmul({.out = Y, .a = tall ? X : P, .b = tall ? P : X});
    ctx.backend.run(ops::WeightedSum{.out = X, .a = X, .b = Y, .alpha = a, .beta = 1});
  }
}

}  // namespace axonn
