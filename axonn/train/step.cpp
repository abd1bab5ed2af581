#include "axonn/train/step.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <utility>

#include "axonn/base/check.h"
#include "axonn/data/batches.h"
#include "axonn/parallel/parameters.h"
#include "axonn/parallel/scheduling.h"
#include "axonn/train/step_graphs.h"

namespace axonn {

namespace {

void enter(const StepInput& input, Phase phase) {
  if (input.on_phase) input.on_phase(phase);
}

float loss_scale(const StepInput& input) {
  return static_cast<float>(1.0 / static_cast<double>(input.tokens));
}

template <typename T>
T value_of(const Context& ctx, const Tensor& tensor) {
  T value{};
  ctx.device().copy_to_host(&value, tensor.view().data, sizeof value);
  return value;
}

}  // namespace

TrainStep::TrainStep(Model& model, OptimizerState& optimizer)
    : model_(model),
      optimizer_(optimizer),
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
  graphs_ = std::make_unique<StepGraphs>();
}

void TrainStep::begin_step(const Context& ctx, const StepInput& input) {
  enter(input, Phase::forward);
  ctx.scheduling().step->reducing = nullptr;
  for (ParameterGroup* group : optimizer_.groups()) group->begin_step(ctx);
}

void TrainStep::pass(Context& ctx, const StepInput& input, int micro, const TokensOf& tokens_of,
                     const Tensor& total) {
  if (micro > 0) enter(input, Phase::forward);
  Tape tape;
  ctx.tape = &tape;
  StepState& state = *ctx.scheduling().step;
  state.last_micro_batch = micro + 1 == input.micro_batches;
  state.prefetcher.begin_pass();
  model_.loss(ctx, tokens_of(micro), loss_scale(input), total);
  enter(input, Phase::backward);
  tape.backward();
  ctx.tape = nullptr;
}

void TrainStep::gradients(Context& ctx, const StepInput& input, const Tensor& total) {
  begin_step(ctx, input);
  for (int micro = 0; micro < input.micro_batches; ++micro)
    pass(ctx, input, micro, input.tokens_of, total);
  finish_gradients(ctx, optimizer_.groups());
}

void TrainStep::finish_sums(const Context& ctx, const StepInput& input) {
  optimizer_.add_squared_norm(ctx, sums_.view().col_range(1, 1));
  enter(input, Phase::optimizer);
  sums_.set_pending(ctx.grid.world().all_reduce(buffer_of(sums_.raw_view()), "step"));
  ctx.backend.run(ops::ClipFactor{scale_.view(), sums_.view().col_range(1, 1),
                                  static_cast<float>(input.max_norm)});
}

void TrainStep::launch_graphs(Context& ctx, const StepInput& input) {
  begin_step(ctx, input);
  // A graph does not wait for work that began before it, so the new weights must have arrived.
  for (const ParameterGroup* group : model_.groups()) group->piece_of_compute();
  const Tensor total = sums_.col_range(0, 1);
  for (int micro = 0; micro < input.micro_batches; ++micro) {
    const Tokens& tokens = graphs_->place(ctx, input.tokens_of(micro));
    const auto placed = [&tokens](int) { return tokens; };
    graphs_->run(ctx.arena(), micro, input.micro_batches, [&] {
      pass(ctx, input, micro, placed, total);
      StepState& state = *ctx.scheduling().step;
      if (ParameterGroup* reducing = std::exchange(state.reducing, nullptr))
        reducing->finish_reduce(ctx);  // a piece must complete the reduction that it started
      if (state.last_micro_batch) {
        finish_gradients(ctx, optimizer_.groups());
        finish_sums(ctx, input);
        // The norm did not wait for groups of which this rank owns nothing.
        for (const ParameterGroup* group : optimizer_.groups()) group->gradient();
      }
    });
  }
}

Tokens make_tokens(const Context& ctx, const MicroBatch& batch) {
  const auto& [ids, targets, positions, starts] = batch.rows;
  const std::int64_t length = std::ssize(ids) / batch.sequences;
  return make_tokens(ctx, ids, targets, {batch.sequences, length, batch.first * length},
                     {.positions = positions, .starts = starts});
}

StepResult TrainStep::run(Context ctx, const StepInput& input) {
  ctx.own_scheduling().step = training_.get();
  if (sums_.empty()) {
    sums_ = ctx.empty(1, 4, DType::f64);
    scale_ = ctx.empty(1, 1, DType::f32);
  }
  Device& device = ctx.device();
  const std::array<double, 4> begin{0, 0, input.stop ? 1.0 : 0.0, input.busy ? 1.0 : 0.0};
  device.copy_from_host(sums_.view().data, begin.data(), sizeof begin);
  const bool told = static_cast<bool>(input.on_phase);  // a graph cannot report phases
  const StepGraphs::Constants constants{loss_scale(input), static_cast<float>(input.max_norm)};
  if (graphs_ && warm_ && !told && graphs_->begin_step(ctx, constants)) {
    launch_graphs(ctx, input);
  } else {
    gradients(ctx, input, sums_.col_range(0, 1));
    finish_sums(ctx, input);
  }
  warm_ = true;

  const auto [loss, squares, stops, busy] = value_of<std::array<double, 4>>(ctx, sums_);
  StepResult report;
  report.loss = loss / static_cast<double>(input.tokens);
  report.grad_norm = std::sqrt(squares);
  report.finite = std::isfinite(report.loss) && std::isfinite(report.grad_norm);
  report.stop = stops > 0;
  report.busy = busy > 0;
  report.applied = report.finite && (!input.accept || input.accept(report.loss, report.grad_norm));
  if (report.applied) optimizer_.update(ctx, input.step, input.lr, scale_.view());
  if (!graphs_) sums_ = scale_ = Tensor();
  return report;
}

void TrainStep::repeat(Context ctx, const StepInput& input) {
  StepState state;
  ctx.own_scheduling().step = &state;
  gradients(ctx, input, ctx.zeros(1, 1, DType::f64));
  for (const ParameterGroup* group : optimizer_.groups()) group->gradient();  // waits for the sums
}

void TrainStep::rehearse(const Context& ctx, StepInput input) {
  input.micro_batches = std::min(2, input.micro_batches);
  repeat(ctx, input);
}

double TrainStep::evaluate(Context ctx, Batches& batches) {
  ctx.own_scheduling().step = evaluation_.get();
  Tensor total = ctx.zeros(1, 1, DType::f64);
  std::int64_t targets = 0;
  for (std::int64_t step = 0; step < batches.steps(); ++step) {
    const std::shared_ptr<const Batch> batch = batches.at(step);
    targets += batch->whole.targets;
    for (const MicroBatch& micro : batch->micro_batches) {
      evaluation_->prefetcher.begin_pass();
      model_.loss(ctx, make_tokens(ctx, micro), 1, total);
    }
  }
  total.set_pending(ctx.grid.world().all_reduce(buffer_of(total.raw_view()), "evaluation"));
  return value_of<double>(ctx, total) / static_cast<double>(targets);
}

}  // namespace axonn
