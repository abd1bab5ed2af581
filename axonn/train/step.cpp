#include "axonn/train/step.h"

#include <algorithm>
#include <array>
#include <cmath>

#include "axonn/parallel/gradients.h"

namespace axonn {

namespace {

void enter(const StepInput& input, Phase phase) {
  if (input.on_phase) input.on_phase(phase);
}

template <typename T>
T value_of(const Context& ctx, const Tensor& tensor) {
  T value{};
  ctx.arena.device().copy_to_host(&value, tensor.view().data, sizeof value);
  return value;
}

}  // namespace

void TrainStep::gradients(Context& ctx, const StepInput& input, const Tensor& total) {
  enter(input, Phase::forward);
  ParameterGroup* reducing = nullptr;
  ctx.reducing = &reducing;
  for (ParameterGroup* group : optimizer_.groups()) group->begin_step(ctx);
  const float scale = static_cast<float>(1.0 / static_cast<double>(input.tokens));
  for (int micro = 0; micro < input.micro_batches; ++micro) {
    if (micro > 0) enter(input, Phase::forward);
    Tape tape;
    ctx.tape = &tape;
    ctx.last_micro_batch = micro + 1 == input.micro_batches;
    if (ctx.prefetcher) ctx.prefetcher->begin_pass();
    model_.loss(ctx, input.tokens_of(micro), scale, total);
    enter(input, Phase::backward);
    tape.backward();
  }
  ctx.tape = nullptr;
  ctx.reducing = nullptr;
  finish_gradients(ctx, optimizer_.groups());
}

StepResult TrainStep::run(Context ctx, const StepInput& input) {
  ctx.prefetcher = &training_;
  // The loss, the squared norm and the flags, to be summed over all ranks.
  Tensor sums = ctx.zeros(1, 4, DType::f64);
  gradients(ctx, input, sums.col_range(0, 1));
  optimizer_.add_squared_norm(ctx, sums.view().col_range(1, 1));
  enter(input, Phase::optimizer);
  const std::array<double, 2> flags{input.stop ? 1.0 : 0.0, input.busy ? 1.0 : 0.0};
  ctx.arena.device().copy_from_host(sums.view().col_range(2, 2).data, flags.data(), sizeof flags);
  sums.set_pending(ctx.grid.world().all_reduce(buffer_of(sums.raw_view()), "step"));

  Tensor scale = ctx.empty(1, 1, DType::f32);
  ctx.backend.clip_factor(scale.view(), sums.view().col_range(1, 1),
                          static_cast<float>(input.max_norm));
  const auto [loss, squares, stops, busy] = value_of<std::array<double, 4>>(ctx, sums);
  StepResult report;
  report.loss = loss / static_cast<double>(input.tokens);
  report.grad_norm = std::sqrt(squares);
  report.finite = std::isfinite(report.loss) && std::isfinite(report.grad_norm);
  report.stop = stops > 0;
  report.busy = busy > 0;
  report.applied = report.finite && (!input.accept || input.accept(report.loss, report.grad_norm));
  if (report.applied) optimizer_.update(ctx, input.step, input.lr, scale.view());
  return report;
}

void TrainStep::rehearse(Context ctx, const StepInput& input) {
  StepInput some = input;
  some.micro_batches = std::min(2, input.micro_batches);
  gradients(ctx, some, ctx.zeros(1, 1, DType::f64));
  for (const ParameterGroup* group : optimizer_.groups()) group->gradient();  // waits for the sums
}

std::string TrainStep::diagnose(Context ctx, const StepInput& input) {
  Diagnosis diagnosis;
  ctx.diagnosis = &diagnosis;
  Tensor total = ctx.zeros(1, 1, DType::f64);
  gradients(ctx, input, total);
  if (!diagnosis.block.empty()) return diagnosis.block + " (forward)";
  if (!std::isfinite(value_of<double>(ctx, total))) return "loss (forward)";
  const auto& groups = optimizer_.groups();
  for (auto group = groups.rbegin(); group != groups.rend(); ++group) {
    Tensor count = ctx.zeros(1, 1, DType::i64);
    ctx.backend.count_nonfinite(count.view(), (*group)->gradient());
    if (value_of<std::int64_t>(ctx, count) > 0) return (*group)->name() + " (backward)";
  }
  return {};
}

double TrainStep::evaluate(Context ctx, const StepInput& input) {
  ctx.prefetcher = &evaluation_;
  Tensor total = ctx.zeros(1, 1, DType::f64);
  for (int micro = 0; micro < input.micro_batches; ++micro) {
    evaluation_.begin_pass();
    model_.loss(ctx, input.tokens_of(micro), 1, total);
  }
  total.set_pending(ctx.grid.world().all_reduce(buffer_of(total.raw_view()), "evaluation"));
  return value_of<double>(ctx, total) / static_cast<double>(input.tokens);
}

}  // namespace axonn
