#include <functional>
#include <initializer_list>
#include <map>
#include <string_view>
#include <utility>
#include <variant>

#include <fmt/format.h>

#include "axonn/base/check.h"
#include "axonn/base/clock.h"
#include "axonn/comm/self.h"
#include "axonn/measure/dry_step.h"
#include "axonn/ops/forwarding_backend.h"
#include "axonn/plan/costs.h"
#include "axonn/plan/machine/fit.h"
#include "axonn/plan/machine/probe_parts.h"
#include "axonn/train/training.h"

namespace axonn {

namespace {

/// Records the time of each operation of another backend. Waits for the device before and after
/// each, so that operations do not overlap.
class TimedBackend final : public ForwardingBackend {
 public:
  using ForwardingBackend::ForwardingBackend;

  /// Nothing is fused, so that the operations are those of a dry step.
  bool fuses(const Matmul&) override { return false; }

  /// Operations and seconds since the last call, in order.
  std::vector<std::pair<std::string, double>> take() { return std::exchange(timed_, {}); }

 protected:
  void around(std::string_view operation, const std::function<void()>& run,
              std::initializer_list<View>) override {
    Stream& stream = device().compute();
    stream.synchronize();
    const double start = now_seconds();
    run();
    stream.synchronize();
    timed_.emplace_back(operation, now_seconds() - start);
  }

 private:
  std::vector<std::pair<std::string, double>> timed_;
};

/// A model with every operation of its family, so small that its steps are short even on a share of
/// a core.
Config small_model(ModelFamily family, DType dtype, bool quick) {
  Config config;
  config.model = {.family = family,
                  .layers = 2,
                  .hidden = quick ? 64 : 256,
                  .heads = 4,
                  .vocab = quick ? 256 : 1024};
  config.model.kv_heads = family == ModelFamily::llama ? 2 : 0;
  config.model.qk_norm = family == ModelFamily::llama;
  config.training.steps = 1;
  config.training.seq_len = quick ? 32 : 128;
  config.training.global_batch = 1;
  config.training.threads = 1;  // not used: the session is given its backend
  config.training.dtype = dtype;
  config.optimizer.lr = 1e-4;
  config.data.synthetic = 1;  // never read: the tokens are made up
  validate(config);
  return config;  // resolved() derives the micro-batch from the batch
}

/// Steps of config that this rank runs alone.
class LoneSteps {
 public:
  LoneSteps(const Config& config, Backend& inner)
      : world_(make_self()),
        training_(config, *world_, make_timed(inner), {.data = false}),
        input_(made_up_input(training_.model)) {
    training_.model.initialise();
  }

  double step_s() {
    const double start = now_seconds();
    training_.step.run(training_.model.context(), input_);
    return now_seconds() - start;
  }
  TimedBackend& timed() { return *timed_; }

 private:
  std::unique_ptr<Backend> make_timed(Backend& inner) {
    auto timed = std::make_unique<TimedBackend>(inner);
    timed_ = timed.get();
    return timed;
  }

  TimedBackend* timed_ = nullptr;  // the run's backend
  std::unique_ptr<Communicator> world_;
  Training training_;
  StepInput input_;
};

/// Whether it is an operation of Device, not of Backend.
bool is_of_device(const Schedule::Compute& op) {
  return op.operation.starts_with("copy") || op.operation == "fill_zero";
}

/// The operations of the backend in a step of config, in order.
std::vector<Schedule::Compute> operations_of(const Config& config) {
  std::vector<Schedule::Compute> operations;
  for (const Schedule::Event& event : dry_step(config, 0, {.schedule = true}).schedule.events)
    if (const auto* op = std::get_if<Schedule::Compute>(&event); op && !is_of_device(*op))
      operations.push_back(*op);
  return operations;
}

/// The times of each kind of operation.
using TimesByOperation = std::map<std::string, std::vector<TimedRows>>;

/// Adds the seconds of each operation in a step of config, averaged over steps and ranks.
void time_steps(const ProbeContext& ctx, Config config, TimesByOperation& times) {
  const double seconds = ctx.options.quick ? 0.02 : 1.5, enough = ctx.options.quick ? 0 : 0.03;
  constexpr int kMostSequences = 64;
  // Increases the batch on a faster device, so that launches do not dominate.
  for (double taken = 0;; config.training.global_batch *= 2) {
    LoneSteps steps(resolved(config), ctx.backend);
    steps.step_s();
    taken = mean_over_ranks(ctx.world, {steps.step_s()}).front();
    if (taken < enough && config.training.global_batch < kMostSequences) continue;
    const int count = std::clamp(static_cast<int>(seconds / taken), 3, 100);
    const std::vector<Schedule::Compute> operations = operations_of(resolved(config));
    std::vector<double> sums(operations.size());
    steps.timed().take();
    for (int i = 0; i < count; ++i) {
      steps.step_s();
      const auto timed = steps.timed().take();
      AXONN_CHECK(timed.size() == operations.size(), "probe: a step has ", timed.size(),
                  " operations and a dry step ", operations.size());
      for (std::size_t j = 0; j < timed.size(); ++j) {
        AXONN_CHECK(timed[j].first == operations[j].operation, "probe: operation ", j, " is ",
                    timed[j].first, " and in a dry step ", operations[j].operation);
        sums[j] += timed[j].second / count;
      }
    }
    sums = mean_over_ranks(ctx.world, sums);
    for (std::size_t j = 0; j < operations.size(); ++j) {
      const Schedule::Compute& op = operations[j];
      times[op.operation].push_back({op.flops > 0 ? op.flops : moved_bytes(op), sums[j]});
    }
    return;
  }
}

}  // namespace

void probe_steps(const ProbeContext& ctx, Machine& machine) {
  TimesByOperation times;
  for (const ModelFamily family : {ModelFamily::gpt, ModelFamily::llama})
    for (const DType dtype : {DType::f32, DType::bf16})
      time_steps(ctx, small_model(family, dtype, ctx.options.quick), times);
  times.erase("matmul");
  std::vector<TimedRows> attention = times.extract("attention").mapped();
  const auto backward = times.extract("attention_backward");
  attention.insert(attention.end(), backward.mapped().begin(), backward.mapped().end());
  machine.attention_flops_per_s = fit_rows_rate(attention, machine.launch_s);
  ctx.report(fmt::format("attention      {:9.1f} Gflop/s", machine.attention_flops_per_s * 1e-9));
  for (const auto& [operation, rows] : times) {
    const double rate = fit_rows_rate(rows, machine.launch_s);
    machine.rowwise_bytes_per_s[operation] = rate;
    ctx.report(fmt::format("  {:<27} {:9.2f} GB/s", operation, rate * 1e-9));
  }
}

}  // namespace axonn
