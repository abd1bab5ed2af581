#include "axonn/run/optim/adafactor.h"

#include <algorithm>
#include <cmath>
#include <vector>

namespace axonn {

namespace {

/// The update of one group.
class GroupUpdate {
 public:
  GroupUpdate(const Context& ctx, const OptimizerConfig& config, const ParameterGroup& group,
              const Optimizer::Update& update)
      : ctx_(ctx),
        config_(config),
        group_(group),
        update_(update),
        layout_(*update.factor_layout),
        count_(std::ssize(layout_.factored())),
        t_(static_cast<double>(update.step + 1)),
        factors_(ctx.zeros(1, layout_.flat(), DType::f32, MemoryUse::optimizer)),
        sums_(ctx.zeros(1, 3 * count_, DType::f64, MemoryUse::optimizer)) {}

  void run() {
    add_squares();
    change_factors();
    add_sizes();
    step();
  }

 private:
  /// A part of a parameter that this rank holds, whose shape the operations take.
  struct Part {
    const FactorLayout::Factored& factors;
    std::int64_t number = 0;  ///< of the parameter
    std::int64_t offset = 0, count = 0;
    View rows, cols;  ///< its factors; no rows of a vector
    std::int64_t height = 1;

    /// Its elements in a buffer (1, P).
    View in(const View& piece) const {
      View part = piece.col_range(offset, count);
      part.rows = height;
      part.cols = part.stride = count / height;
      return part;
    }
  };

  /// Calls f(part) for all parts of the slices for which `wanted` holds.
  void for_parts(bool only_owned, const auto& f) const {
    const View all = factors_.raw_view();
    for (const auto& [spec, slice] : group_.piece_slices()) {
      if (only_owned && !slice.owned) continue;
      const std::size_t number = layout_.index_of(*spec);
      const FactorLayout::Factored& factors = layout_.factored()[number];
      for_rectangles(slice, [&](const Rectangle& at) {
        Part part{.factors = factors,
                  .number = static_cast<std::int64_t>(number),
                  .offset = slice.offset + at.offset,
                  .count = at.rows * at.cols};
        const View rows = all.col_range(factors.rows_begin + at.row, at.rows);
        if (factors.is_vector()) {
          part.cols = rows;  // of each element
        } else {
          part.rows = rows;
          part.cols = all.col_range(factors.cols_begin + at.col, at.cols);
          part.height = at.rows;
        }
        f(part);
      });
    }
  }

  /// (1, 1) f64 of a parameter: the sum of its weights' squares, of its steps', or of its R.
  enum class Sum { weights, steps, rows };
  View sum(Sum of, std::int64_t number) const {
    return sums_.raw_view().col_range(static_cast<std::int64_t>(of) * count_ + number, 1);
  }

  /// factors_ = this rank's shares of the mean squares of rows and columns.
  void add_squares() const {
    for_parts(true, [&](const Part& part) {
      ctx_.backend.run(ops::AddSquares{
          .rows = part.rows,
          .cols = part.cols,
          .gradient = part.in(group_.gradient()),
          .scale = update_.scale,
          .row_share = 1 / static_cast<float>(part.factors.cols()),
          .col_share = part.factors.is_vector() ? 1 : 1 / static_cast<float>(part.factors.rows())});
      if (config_.scale_parameter)
        ctx_.backend.run(ops::SquaredSum{sum(Sum::weights, part.number), part.in(group_.master())});
    });
  }

  /// Changes this rank's piece of the state; then factors_ has the state of all ranks.
  void change_factors() const {
    Communicator& world = ctx_.grid.world();
    const Tensor mean = ctx_.empty(1, layout_.piece(), DType::f32, MemoryUse::optimizer);
    world.reduce_scatter(buffer_of(mean.raw_view()), buffer_of(factors_.raw_view()), kLabel).wait();
    const double added = std::pow(t_, config_.beta2_decay);
    ctx_.backend.run(ops::WeightedSum{.out = update_.factors,
                                      .a = update_.factors,
                                      .b = mean.raw_view(),
                                      .alpha = static_cast<float>(1 - added),
                                      .beta = static_cast<float>(added)});
    world.all_gather(buffer_of(factors_.raw_view()), buffer_of(update_.factors), kLabel).wait();
  }

  ops::FactoredMoment moment_of(const Part& part) const {
    const auto eps = static_cast<float>(config_.eps1);
    const bool paper = config_.adafactor_form == AdafactorForm::paper;
    ops::FactoredMoment moment{
        .cols = part.cols, .added = paper ? eps : 0, .lowest = paper ? 0 : eps};
    if (part.factors.is_vector()) return moment;
    moment.rows = part.rows;
    moment.sum = sum(Sum::rows, part.number);
    moment.count = static_cast<float>(part.factors.rows());
    return moment;
  }

  /// Sums R of the matrices that this rank updates, and over all ranks the squares of weights and
  /// steps.
  void add_sizes() const {
    std::vector<bool> has_sum(count_);
    for_parts(false, [&](const Part& part) {
      if (part.factors.is_vector() || has_sum[part.number]) return;
      has_sum[part.number] = true;
      ctx_.backend.run(
          ops::Sum{sum(Sum::rows, part.number),
                   factors_.raw_view().col_range(part.factors.rows_begin, part.factors.rows())});
    });
    for_parts(true, [&](const Part& part) {
      ctx_.backend.run(ops::AdafactorSquares{.out = sum(Sum::steps, part.number),
                                             .gradient = part.in(group_.gradient()),
                                             .moment = moment_of(part),
                                             .scale = update_.scale});
    });
    const View reduced = sums_.raw_view().col_range(0, static_cast<int>(Sum::rows) * count_);
    ctx_.grid.world().all_reduce(buffer_of(reduced), kLabel).wait();
  }

  void step() const {
    const double lr = update_.lr,
                 size = config_.relative_step ? std::min(lr, 1 / std::sqrt(t_)) : lr;
    const bool paper = config_.adafactor_form == AdafactorForm::paper;
    for_parts(false, [&](const Part& part) {
      const double decay = part.factors.spec->decays ? config_.weight_decay : 0;
      ops::Adafactor op{.master = part.in(group_.master()),
                        .gradient = part.in(group_.gradient()),
                        .out = part.in(group_.piece_of_compute()),
                        .moment = moment_of(part),
                        .scale = update_.scale,
                        .step_squares = sum(Sum::steps, part.number),
                        .count = static_cast<double>(part.factors.spec->layout.count()),
                        .step = static_cast<float>(size),
                        .least_size = static_cast<float>(config_.eps2),
                        .threshold = static_cast<float>(config_.clip_threshold),
                        .beta1 = static_cast<float>(config_.adafactor_beta1),
                        .shrink = static_cast<float>(paper ? 0 : lr * decay),
                        .weight_decay = static_cast<float>(paper ? decay : 0)};
      if (config_.scale_parameter) op.weight_squares = sum(Sum::weights, part.number);
      if (config_.adafactor_beta1 > 0) op.momentum = part.in(update_.state[0]);
      ctx_.backend.run(op);
    });
  }

  static constexpr const char* kLabel = "adafactor";

  const Context& ctx_;
  const OptimizerConfig& config_;
  const ParameterGroup& group_;
  const Optimizer::Update& update_;
  const FactorLayout& layout_;
  const std::int64_t count_;  // of parameters
  const double t_;            // number of this update, from 1
  const Tensor factors_;      // (1, N) f32: shares of mean squares, then R and C
  const Tensor sums_;         // (1, 3 count_) f64, see sum()
};

class Adafactor final : public Optimizer {
 public:
  explicit Adafactor(const OptimizerConfig& config) : config_(config) {}

  std::vector<std::string> state_names() const override {
    if (config_.adafactor_beta1 > 0) return {"exp_avg"};
    return {};
  }
  bool keeps_factors() const override { return true; }

  void update(const Context& ctx, const ParameterGroup& group,
              const Update& update) const override {
    GroupUpdate(ctx, config_, group, update).run();
  }

 private:
  OptimizerConfig config_;
};

}  // namespace

std::unique_ptr<Optimizer> make_adafactor(const OptimizerConfig& config) {
  return std::make_unique<Adafactor>(config);
}

}  // namespace axonn
