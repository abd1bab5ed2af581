#include "axonn/run/train/step.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <iterator>
#include <limits>
#include <span>
#include <string>
#include <utility>

#include "axonn/data/corpus/batches.h"
#include "axonn/foundation/base/check.h"
#include "axonn/ranks/parallel/parameters.h"
#include "axonn/ranks/parallel/scheduling.h"
#include "axonn/run/train/loss_term.h"
#include "axonn/run/train/step_graphs.h"

namespace axonn {

namespace {

void enter(const StepInput& input, Phase phase) {
  if (input.on_phase) input.on_phase(phase);
}

/// Of the sum of a micro-batch's losses, in backward.
float gradient_factor(const StepInput& input) {
  return static_cast<float>(input.loss_scale /
                            static_cast<double>(std::max<std::int64_t>(input.tokens, 1)));
}

/// Sums over all ranks that every step has, and the last of them: ranks whose weights differed.
constexpr std::int64_t kSums = 6, kDiffering = 5;
/// How often a step is done at most, if its weights have changed in memory each time.
constexpr int kTries = 3;

template <typename T>
T value_of(const Context& ctx, const Tensor& tensor) {
  T value{};
  ctx.device().copy_to_host(&value, tensor.view().data, sizeof value);
  return value;
}

}  // namespace

void set_clipping(StepInput& input, const TrainingConfig& training) {
  input.max_norm = training.max_norm;
  input.norm_type = training.norm_type;
  input.clip_value = training.clip_value;
}

double StepResult::metric(std::string_view name) const {
  const auto found = std::ranges::find(metrics, name, &Metric::name);
  return found == metrics.end() ? std::numeric_limits<double>::quiet_NaN() : found->value;
}

TrainStep::TrainStep(Model& model, OptimizerState& optimizer,
                     std::vector<std::unique_ptr<LossTerm>> terms, LossScale loss_scale)
    : model_(model),
      optimizer_(optimizer),
      terms_(std::move(terms)),
      loss_scale_(std::move(loss_scale)),
      training_(std::make_unique<StepState>()),
      evaluation_(std::make_unique<StepState>()) {}

TrainStep::~TrainStep() = default;

void TrainStep::use_graphs(const Context& ctx) {
  if (!ctx.device().captures())
    refuse("[training] cuda_graph: device ", ctx.device().name(),
           " does not support graphs; set parallelism.device = \"cuda\", or leave "
           "training.cuda_graph out");
  if (!ctx.grid.world().on_streams())
    refuse(
        "[training] cuda_graph: ranks communicate through host memory, which a graph cannot "
        "capture; graphs need NCCL (parallelism.transport) and a GPU per rank");
  for (const auto& term : terms_)
    if (const std::string obstacle = term->graph_obstacle(); !obstacle.empty())
      refuse("[training] cuda_graph: ", obstacle, "; leave training.cuda_graph out");
  graphs_ = std::make_unique<StepGraphs>();
}

template <typename F>
void TrainStep::for_each_term(const F& f) const {
  std::int64_t begin = kSums;
  for (const auto& term : terms_) {
    f(*term, begin);
    begin += term->count();
  }
}

std::int64_t TrainStep::sums_count() const {
  std::int64_t count = kSums;
  for (const auto& term : terms_) count += term->count();
  return count;
}

void TrainStep::begin_step(const Context& ctx, const StepInput& input) {
  AXONN_CHECK(input.tokens_of && input.micro_batches > 0 && input.tokens >= 0,
              "the input of a step wants tokens_of, at least one micro-batch and a token ",
              "count; got ", input.micro_batches, " micro-batches and ", input.tokens,
              " tokens; Training::input() makes it");
  enter(input, Phase::forward);
  ctx.scheduling().step->reducing = nullptr;
  optimizer_.begin_step();
  for (ParameterGroup* group : optimizer_.groups()) group->begin_step(ctx);
  for (const auto& term : terms_) term->begin_step(input);
}

void TrainStep::pass(const Context& step, const StepInput& input, int micro,
                     const TokensOf& tokens_of, const Tensor& sums) {
  if (micro > 0) enter(input, Phase::forward);
  Tape tape;
  Context ctx = step;  // the tape, and what the terms attach, are this pass's
  ctx.tape = &tape;
  StepState& state = *ctx.scheduling().step;
  state.more_micro_batches = micro + 1 < input.micro_batches;
  state.prefetcher.begin_pass();
  const Tokens tokens = tokens_of(micro);
  for_each_term([&](LossTerm& term, std::int64_t begin) {
    term.begin_pass(ctx, tokens.rows, sums.view().col_range(begin, term.count()));
  });
  model_.loss(ctx, tokens, gradient_factor(input), sums.col_range(0, 1));
  for (const auto& term : terms_) term->finish_pass(ctx);
  enter(input, Phase::backward);
  tape.backward();
}

void TrainStep::score(Context ctx, const StepInput& input) {
  if (std::ranges::none_of(terms_, [](const auto& term) { return term->scores(); })) return;
  ctx.own_scheduling().step = evaluation_.get();
  for (int micro = 0; micro < input.micro_batches; ++micro) {
    const Tokens tokens = input.tokens_of(micro);
    for (const auto& term : terms_) {
      if (!term->scores()) continue;
      evaluation_->prefetcher.begin_pass();
      evaluation_->more_micro_batches = micro + 1 < input.micro_batches;
      term->score(ctx, model_, tokens, micro);
    }
  }
  for (const auto& term : terms_) term->finish_scores(ctx, input);
}

void TrainStep::gradients(const Context& ctx, const StepInput& input, const Tensor& sums) {
  score(ctx, input);
  begin_step(ctx, input);
  for (int micro = 0; micro < input.micro_batches; ++micro)
    pass(ctx, input, micro, input.tokens_of, sums);
  finish_gradients(ctx, optimizer_.groups());
}

void TrainStep::finish_sums(const Context& ctx, const StepInput& input) {
  if (optimizer_.check_copies()) {
    const double differing = 1;
    ctx.device().copy_from_host(sums_.view().col_range(kDiffering, 1).data, &differing,
                                sizeof differing);
  }
  if (input.loss_scale != 1) optimizer_.scale_gradients(ctx, 1 / input.loss_scale);
  optimizer_.add_squared_norm(ctx, sums_.view().col_range(1, 1));
  enter(input, Phase::optimizer);
  for_each_term([&](LossTerm& term, std::int64_t begin) {
    term.finish_sums(ctx, sums_.view().col_range(begin, term.count()));
  });
  sums_.set_pending(ctx.grid.world().all_reduce(buffer_of(sums_.raw_view()), "step"));
  const View squared = sums_.view().col_range(1, 1);
  ops::ClipFactor clip{scale_.view(), squared, static_cast<float>(input.max_norm)};
  Tensor sum;
  if (input.max_norm > 0 && input.norm_type != 2) {
    const double p = input.norm_type;
    sum = ctx.zeros(1, 1, DType::f64);
    optimizer_.add_norm(ctx, p, squared, sum.view());
    sum.set_pending(ctx.grid.world().all_reduce(buffer_of(sum.raw_view()), "norm",
                                                std::isinf(p) ? ReduceOp::max : ReduceOp::sum));
    clip.sum = sum.view();
    clip.p = p;
  }
  ctx.backend.run(clip);
}

void TrainStep::launch_graphs(const Context& ctx, const StepInput& input) {
  begin_step(ctx, input);
  // A graph does not wait for work that began before it, so the new weights must have arrived.
  for (const ParameterGroup* group : model_.groups()) group->piece_of_compute();
  for (int micro = 0; micro < input.micro_batches; ++micro) {
    const Tokens& tokens = graphs_->copy_to(ctx, input.tokens_of(micro));
    const auto placed = [&tokens](int) { return tokens; };
    graphs_->run(ctx.arena(), micro, input.micro_batches, [&] {
      pass(ctx, input, micro, placed, sums_);
      StepState& state = *ctx.scheduling().step;
      if (ParameterGroup* reducing = std::exchange(state.reducing, nullptr))
        reducing->finish_reduce(ctx);  // a piece must complete the reduction that it started
      if (!state.more_micro_batches) {
        finish_gradients(ctx, optimizer_.groups());
        finish_sums(ctx, input);
        // The norm did not wait for groups of which this rank owns nothing.
        for (const ParameterGroup* group : optimizer_.groups()) group->gradient();
      }
    });
  }
}

Tokens make_tokens(const Context& ctx, const MicroBatch& batch) {
  const auto& [ids, targets, positions, starts, branches] = batch.rows;
  const std::int64_t length = std::ssize(ids) / batch.sequences;
  std::vector<std::int32_t> counted;
  if (!positions.empty() || batch.may_pad)  // packed sequences may have padding, too
    for (const std::int32_t target : targets) counted.push_back(target == kPaddingTarget ? 0 : 1);
  Tokens tokens = make_tokens(ctx, ids, targets, {batch.sequences, length, batch.first * length},
                              {.positions = positions,
                               .starts = starts,
                               .counted = counted,
                               .branches = branches,
                               .further = batch.further});
  tokens.numbers = batch.numbers;
  return tokens;
}

std::vector<double> TrainStep::compute_sums(const Context& ctx, const StepInput& input) {
  const auto flag = [](bool set) { return set ? 1.0 : 0.0; };
  std::vector<double> sums{0, 0, flag(input.stop), flag(input.busy), flag(input.save), 0};
  sums.resize(sums_.count());
  ctx.device().copy_from_host(sums_.view().data, sums.data(), sums_.bytes());
  const bool told = static_cast<bool>(input.on_phase);  // a graph cannot report phases
  const StepGraphs::Constants constants{gradient_factor(input),
                                        static_cast<float>(input.loss_scale),
                                        static_cast<float>(input.max_norm)};
  if (graphs_ && warm_ && !told && graphs_->begin_step(ctx, constants)) {
    launch_graphs(ctx, input);
  } else {
    gradients(ctx, input, sums_);
    finish_sums(ctx, input);
  }
  warm_ = true;
  ctx.device().copy_to_host(sums.data(), sums_.view().data, sums_.bytes());
  return sums;
}

std::vector<double> TrainStep::sums_of_whole_weights(const Context& ctx, const StepInput& input) {
  for (int tries = 1;; ++tries) {
    std::vector<double> sums = compute_sums(ctx, input);
    if (sums[kDiffering] == 0) return sums;
    optimizer_.mend_copies(ctx);
    AXONN_CHECK(tries < kTries, "silent corruption: weights of ", sums[kDiffering],
                " ranks changed in memory while step ", input.step + 1, " was done, in each of ",
                tries, " tries; the warnings in logs/ name them");
  }
}

StepResult TrainStep::run(Context ctx, const StepInput& input) {
  ctx.own_scheduling().step = training_.get();
  if (sums_.empty()) {
    sums_ = ctx.empty(1, sums_count(), DType::f64);
    scale_ = ctx.empty(1, 1, DType::f32);
  }
  const std::vector<double> sums = sums_of_whole_weights(ctx, input);
  const double loss = sums[0], squares = sums[1];
  StepResult report;
  report.has_loss = input.tokens > 0;
  report.loss = report.has_loss ? loss / static_cast<double>(input.tokens)
                                : std::numeric_limits<double>::quiet_NaN();
  for_each_term([&](LossTerm& term, std::int64_t begin) {
    const auto of_term = std::span<const double>(sums).subspan(begin, term.count());
    if (const auto own = term.loss(of_term, input)) report.loss = *own;
  });
  report.grad_norm = std::sqrt(squares);
  const bool finite_loss = std::isfinite(loss) && (std::isfinite(report.loss) || !report.has_loss),
             finite_norm = std::isfinite(report.grad_norm);
  report.finite = finite_loss && finite_norm;
  report.overflow = loss_scale_.active() && finite_loss && !finite_norm;
  // The order of sums decides whether it is infinity or NaN.
  if (report.overflow) report.grad_norm = std::numeric_limits<double>::infinity();
  report.stop = sums[2] > 0;
  report.busy = sums[3] > 0;
  report.save = sums[4] > 0;
  report.applied = report.finite && (!input.accept || input.accept(report.loss, report.grad_norm));
  for_each_term([&](LossTerm& term, std::int64_t begin) {
    const auto of_term = std::span<const double>(sums).subspan(begin, term.count());
    std::ranges::copy(term.metrics(of_term, input), std::back_inserter(report.metrics));
    if (report.applied) term.before_update(ctx, optimizer_.groups(), of_term);
  });
  note_loss_scale(input, report);
  if (report.applied && input.clip_value > 0) optimizer_.clip_values(ctx, input.clip_value);
  if (!report.applied) optimizer_.check_sums();  // a flipped bit may be why
  if (report.applied) {
    const std::int64_t skipped = input.skipped + loss_scale_.state().skipped_total;
    optimizer_.update(ctx, input.step - skipped, input.lr, scale_.view());
  }
  if (!graphs_) sums_ = scale_ = Tensor();
  return report;
}

void TrainStep::note_loss_scale(const StepInput& input, StepResult& report) {
  if (!loss_scale_.active()) return;
  if (report.finite || report.overflow) loss_scale_.update(report.overflow);
  report.metrics.push_back({.name = "loss_scale", .value = input.loss_scale});
  report.metrics.push_back(
      {.name = "skipped_steps",
       .value = static_cast<double>(input.skipped + loss_scale_.state().skipped_total)});
}

void TrainStep::repeat(Context ctx, const StepInput& input) {
  StepState state;
  ctx.own_scheduling().step = &state;
  const Tensor sums = ctx.zeros(1, sums_count(), DType::f64);
  gradients(ctx, input, sums);
  for (const ParameterGroup* group : optimizer_.groups()) group->gradient();  // waits for the sums
}

void TrainStep::rehearse(const Context& ctx, StepInput input) {
  input.micro_batches = std::min(2, input.micro_batches);
  repeat(ctx, input);
}

double TrainStep::forward(Context ctx, const Tokens& tokens) {
  ctx.own_scheduling().step = evaluation_.get();
  evaluation_->prefetcher.begin_pass();
  evaluation_->more_micro_batches = false;
  const Tensor total = ctx.zeros(1, 1, DType::f64);
  model_.loss(ctx, tokens, 1, total);
  return value_of<double>(ctx, total);
}

double TrainStep::evaluate(Context ctx, Batches& batches) {
  ctx.own_scheduling().step = evaluation_.get();
  Tensor sums = ctx.zeros(1, 2, DType::f64);  // of losses, of targets
  const Tensor total = sums.col_range(0, 1);
  double targets = 0;
  for (std::int64_t step = 0; step < batches.steps(); ++step) {
    const std::shared_ptr<const Batch> batch = batches.at(step);
    if (ctx.grid.leads_batch_coordinate()) targets += static_cast<double>(batch->counted);
    for (const MicroBatch& micro : batch->micro_batches) {
      evaluation_->prefetcher.begin_pass();
      evaluation_->more_micro_batches =
          step + 1 < batches.steps() || &micro != &batch->micro_batches.back();
      model_.loss(ctx, make_tokens(ctx, micro), 1, total);
    }
  }
  ctx.device().copy_from_host(sums.view().col_range(1, 1).data, &targets, sizeof targets);
  sums.set_pending(ctx.grid.world().all_reduce(buffer_of(sums.raw_view()), "evaluation"));
  std::array<double, 2> all{};
  ctx.device().copy_to_host(all.data(), sums.view().data, sizeof all);
  if (all[1] == 0)
    refuse("evaluate: none of the targets of these batches counts, so there is no mean loss; give ",
           "it data with targets");
  return all[0] / all[1];
}

}  // namespace axonn
