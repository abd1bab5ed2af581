#include "axonn/train/step.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <utility>

#include "axonn/base/check.h"
#include "axonn/data/batches.h"
#include "axonn/parallel/parameters.h"
#include "axonn/parallel/scheduling.h"
#include "axonn/train/expert_balance.h"
#include "axonn/train/step_graphs.h"

namespace axonn {

namespace {

void enter(const StepInput& input, Phase phase) {
  if (input.on_phase) input.on_phase(phase);
}

float loss_scale(const StepInput& input) {
  return static_cast<float>(1.0 / static_cast<double>(input.tokens));
}

/// Sums over all ranks that every step has.
constexpr std::int64_t kSums = 5;

template <typename T>
T value_of(const Context& ctx, const Tensor& tensor) {
  T value{};
  ctx.device().copy_to_host(&value, tensor.view().data, sizeof value);
  return value;
}

}  // namespace

TrainStep::TrainStep(Model& model, OptimizerState& optimizer, const BalanceConfig& balance,
                     double z_loss)
    : model_(model),
      optimizer_(optimizer),
      z_loss_{.weight = static_cast<float>(z_loss)},
      training_(std::make_unique<StepState>()),
      evaluation_(std::make_unique<StepState>()) {
  const Routers routers = model.routers();
  if (!routers.biases.empty()) balance_ = std::make_unique<ExpertBalance>(routers, balance);
}

TrainStep::~TrainStep() = default;

Routing* TrainStep::routing() { return balance_ ? &balance_->routing() : nullptr; }

void TrainStep::use_graphs(const Context& ctx) {
  if (!ctx.device().captures())
    refuse("[training] cuda_graph: device ", ctx.device().name(),
           " does not support graphs; set parallelism.device = \"cuda\", or leave "
           "training.cuda_graph out");
  if (!ctx.grid.world().on_streams())
    refuse(
        "[training] cuda_graph: ranks communicate through host memory, which a graph cannot "
        "capture; graphs need NCCL (parallelism.transport) and a GPU per rank");
  if (balance_)
    refuse(
        "[training] cuda_graph: how many tokens each expert gets is only known in the step, and "
        "a graph cannot wait for that; leave training.cuda_graph out");
  graphs_ = std::make_unique<StepGraphs>();
}

std::int64_t TrainStep::sums_count() const {
  return kSums + (z_loss_.weight > 0 ? 1 : 0) + (balance_ ? balance_->count() : 0);
}

void TrainStep::begin_step(const Context& ctx, const StepInput& input) {
  AXONN_CHECK(input.tokens_of && input.micro_batches > 0 && input.tokens > 0,
              "the input of a step wants tokens_of, at least one micro-batch and a token; got ",
              input.micro_batches, " micro-batches and ", input.tokens,
              " tokens; Training::input() makes it");
  enter(input, Phase::forward);
  ctx.scheduling().step->reducing = nullptr;
  for (ParameterGroup* group : optimizer_.groups()) group->begin_step(ctx);
  if (balance_) balance_->routing().begin_step(input.inputs);
}

void TrainStep::pass(Context& ctx, const StepInput& input, int micro, const TokensOf& tokens_of,
                     const Tensor& total) {
  if (micro > 0) enter(input, Phase::forward);
  Tape tape;
  ctx.tape = &tape;
  StepState& state = *ctx.scheduling().step;
  state.last_micro_batch = micro + 1 == input.micro_batches;
  state.prefetcher.begin_pass();
  const Tokens tokens = tokens_of(micro);
  ctx.routing = routing();
  if (ctx.routing) ctx.routing->begin_pass(ctx, tokens.rows);
  if (z_loss_.weight > 0) ctx.z_loss = &z_loss_;
  model_.loss(ctx, tokens, loss_scale(input), total);
  ctx.z_loss = nullptr;
  if (ctx.routing) ctx.routing->finish_pass(ctx);
  enter(input, Phase::backward);
  tape.backward();
  ctx.tape = nullptr;
  ctx.routing = nullptr;
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
  if (balance_) {
    const std::vector<double> sums = balance_->sums();
    const View to = sums_.view().col_range(sums_count() - balance_->count(), balance_->count());
    ctx.device().copy_from_host(to.data, sums.data(), balance_->count() * bytes_of(DType::f64));
  }
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
  std::vector<std::int32_t> counted;
  if (!positions.empty())  // packed: there may be padding
    for (const std::int32_t target : targets) counted.push_back(target == kPaddingTarget ? 0 : 1);
  return make_tokens(ctx, ids, targets, {batch.sequences, length, batch.first * length},
                     {.positions = positions, .starts = starts, .counted = counted});
}

StepResult TrainStep::run(Context ctx, const StepInput& input) {
  ctx.own_scheduling().step = training_.get();
  if (sums_.empty()) {
    sums_ = ctx.empty(1, sums_count(), DType::f64);
    scale_ = ctx.empty(1, 1, DType::f32);
  }
  Device& device = ctx.device();
  // The last is that of the z-loss.
  const auto flag = [](bool set) { return set ? 1.0 : 0.0; };
  const std::array<double, kSums + 1> begin{0, 0, flag(input.stop), flag(input.busy),
                                            flag(input.save)};
  device.copy_from_host(sums_.view().data, begin.data(),
                        (z_loss_.weight > 0 ? kSums + 1 : kSums) * bytes_of(DType::f64));
  if (z_loss_.weight > 0) z_loss_.total = sums_.view().col_range(kSums, 1);
  const bool told = static_cast<bool>(input.on_phase);  // a graph cannot report phases
  const StepGraphs::Constants constants{loss_scale(input), static_cast<float>(input.max_norm)};
  if (graphs_ && warm_ && !told && graphs_->begin_step(ctx, constants)) {
    launch_graphs(ctx, input);
  } else {
    gradients(ctx, input, sums_.col_range(0, 1));
    finish_sums(ctx, input);
  }
  warm_ = true;

  std::vector<double> sums(sums_.count());
  device.copy_to_host(sums.data(), sums_.view().data, sums_.bytes());
  const double loss = sums[0], squares = sums[1];
  const std::span<const double> of_experts = std::span(sums).last(balance_ ? balance_->count() : 0);
  StepResult report;
  report.loss = loss / static_cast<double>(input.tokens);
  report.grad_norm = std::sqrt(squares);
  report.finite = std::isfinite(report.loss) && std::isfinite(report.grad_norm);
  report.stop = sums[2] > 0;
  report.busy = sums[3] > 0;
  report.save = sums[4] > 0;
  report.applied = report.finite && (!input.accept || input.accept(report.loss, report.grad_norm));
  if (z_loss_.weight > 0) report.z_loss = sums[kSums] / static_cast<double>(input.tokens);
  if (balance_) report.experts = balance_->load(of_experts);
  if (report.applied && balance_) balance_->move_biases(ctx, optimizer_.groups(), of_experts);
  if (report.applied) optimizer_.update(ctx, input.step - input.skipped, input.lr, scale_.view());
  if (!graphs_) sums_ = scale_ = Tensor();
  return report;
}

void TrainStep::repeat(Context ctx, const StepInput& input) {
  StepState state;
  ctx.own_scheduling().step = &state;
  const Tensor totals = ctx.zeros(1, 2, DType::f64);
  z_loss_.total = totals.view().col_range(1, 1);
  gradients(ctx, input, totals.col_range(0, 1));
  for (const ParameterGroup* group : optimizer_.groups()) group->gradient();  // waits for the sums
}

void TrainStep::rehearse(const Context& ctx, StepInput input) {
  input.micro_batches = std::min(2, input.micro_batches);
  repeat(ctx, input);
}

double TrainStep::forward(Context ctx, const Tokens& tokens) {
  ctx.own_scheduling().step = evaluation_.get();
  evaluation_->prefetcher.begin_pass();
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
    if (ctx.grid.leads_place()) targets += static_cast<double>(batch->counted);
    for (const MicroBatch& micro : batch->micro_batches) {
      evaluation_->prefetcher.begin_pass();
      model_.loss(ctx, make_tokens(ctx, micro), 1, total);
    }
  }
  ctx.device().copy_from_host(sums.view().col_range(1, 1).data, &targets, sizeof targets);
  sums.set_pending(ctx.grid.world().all_reduce(buffer_of(sums.raw_view()), "evaluation"));
  std::array<double, 2> all{};
  ctx.device().copy_to_host(all.data(), sums.view().data, sizeof all);
  return all[0] / std::max(all[1], 1.0);
}

}  // namespace axonn
